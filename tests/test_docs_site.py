"""The documentation site: it builds without a warning, its links lead somewhere, and a browser finds rules in it."""

from __future__ import annotations

import argparse
import functools
import http.server
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import threading
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urljoin, urlsplit

import markdown  # type: ignore[import-untyped]
import pytest
from mkdocs.exceptions import PluginError
from programs import program
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select, WebDriverWait

from torchlint import all_rules, cli
from torchlint.config import read_config
from torchlint.diagnostics import DOCUMENTATION

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from selenium.webdriver.remote.webelement import WebElement

ROOT = Path(__file__).resolve().parent.parent
SITE = DOCUMENTATION.removesuffix("rules/")
SECONDS = 20


def build(folder: Path, *, offline: bool = False) -> subprocess.CompletedProcess[str]:
    """Build the site of this checkout into a folder."""
    # mkdocs-material announces its end of life by what it calls a warning; it is none about the site.
    environment = os.environ | {"OFFLINE": str(offline).lower(), "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of the site, and what mkdocs said."""
    folder = tmp_path_factory.mktemp("site")
    completed = build(folder)
    assert completed.returncode == 0, completed.stderr
    return folder, completed.stdout + completed.stderr


@pytest.fixture(scope="module")
def site(built: tuple[Path, str]) -> Path:
    return built[0]


class Parsed(HTMLParser):
    """The anchors of a page, what it links to, and what it loads to be shown."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.anchors: set[str] = {""}
        self.links: list[str] = []
        self.loads: list[str] = []
        self.navigation: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors.update(given[name] for name in ("id", "name") if name in given)
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
            if "md-nav__link" in given.get("class", ""):
                self.navigation.append(given["href"])
        if tag == "link" and given.get("rel") not in ("canonical", "prev", "next", "edit"):
            self.loads.append(given["href"])
        if "src" in given:
            self.loads.append(given["src"])


def pages(site: Path) -> dict[str, Parsed]:
    """The pages of a site by their addresses in it, such as `rules/tl101/`."""
    found = {path.relative_to(site).as_posix(): Parsed(path) for path in site.rglob("*.html")}
    return {address.removesuffix("index.html"): page for address, page in found.items()}


# The build


def test_the_site_builds_without_a_warning(built: tuple[Path, str]) -> None:
    assert not re.search("warning|error", built[1], re.IGNORECASE), built[1]
    assert "Documentation built" in built[1]


def test_every_link_inside_the_site_leads_to_a_page_and_a_place_in_it(site: Path) -> None:
    known = pages(site)
    dead = []
    for address, page in known.items():
        for link in [*page.links, *page.loads]:
            target = urlsplit(urljoin(SITE + address, link))
            if not target.geturl().startswith(SITE):
                continue
            path = unquote(target.path.removeprefix("/"))
            if path in known:
                if unquote(target.fragment) not in known[path].anchors:
                    dead.append(f"{address}: {link}")
            elif not (site / path).is_file():
                dead.append(f"{address}: {link}")
    assert len(known) > len(all_rules())
    assert dead == []


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    loads = [load for page in pages(site).values() for load in page.loads]
    styles = [*site.rglob("*.css")]
    # The theme fetches what draws such diagrams where a page has one.
    assert [page for page in site.rglob("*.html") if 'class="mermaid"' in page.read_text(encoding="utf-8")] == []
    assert any(load.endswith(".js") for load in loads)
    assert [load for load in loads if urlsplit(load).netloc] == []
    assert styles
    assert [style for style in styles if re.search(r"url\(['\"]?(https?:)?//", style.read_text(encoding="utf-8"))] == []


def test_every_rule_has_a_page_where_its_reports_say(site: Path) -> None:
    known = pages(site)
    navigation = {urljoin(SITE, link) for link in known[""].navigation}
    for rule in all_rules():
        url = f"{DOCUMENTATION}{rule.code.lower()}/"
        assert url in navigation
        text = (site / url.removeprefix(SITE) / "index.html").read_text(encoding="utf-8")
        assert f'<h1 id="{rule.code.lower()}-{rule.name}">' in text


def test_the_site_holds_no_source_of_its_own_making(site: Path) -> None:
    assert [*site.rglob("*.py"), *site.rglob("*.md")] == []


def test_the_top_files_are_pages(site: Path) -> None:
    for name, page in {"CHANGELOG.md": "changelog", "CONTRIBUTING.md": "contributing"}.items():
        text = (site / page / "index.html").read_text(encoding="utf-8")
        for heading in re.findall(r"^## \[?([^\]\n]+)", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE):
            assert re.search(rf"<h2 id=\"[^\"]+\">\[?{re.escape(heading)}", text), heading


def test_a_page_of_the_navigation_may_be_missing(tmp_path: Path) -> None:
    for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "mkdocs.yml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    for name in ("editors.md", "ci.md", "measuring.md"):
        (tmp_path / "docs" / name).unlink(missing_ok=True)
    (tmp_path / "docs" / "ci.md").write_text("# Running in CI\n", encoding="utf-8")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    completed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert completed.returncode == 0, completed.stderr
    known = pages(tmp_path / "site")
    assert "ci/" in known[""].navigation
    assert "editors/" not in known[""].navigation


def test_settings_in_the_documentation_are_valid(tmp_path: Path) -> None:
    tried = 0
    for page in (ROOT / "docs").glob("*.md"):
        for block in re.findall(r"^```toml\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            if "[tool.torchlint" in block:
                path = tmp_path / "pyproject.toml"
                path.write_text(block, encoding="utf-8")
                assert read_config(path) is not None, page
                tried += 1
    assert tried


# What pages are made of


def loaded(name: str) -> ModuleType:
    """A module of docs/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("verb", cli.VERBS)
def test_the_command_line_page_has_the_options_that_help_shows(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main([verb, "--help"])
    rows = re.findall(r"^  (-.*?)(?:  |$)", capsys.readouterr().out, re.MULTILINE)
    shown = {option for row in rows for option in re.findall(r"(?<![\w-])--?[a-zA-Z][a-z-]*", row)}
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    section = page.partition(f"## torchlint {verb}\n")[2].partition("\n## ")[0]
    settings = page.partition("### Settings\n")[2].partition("\n### ")[0] if "#settings" in section else ""
    cells = re.findall(r"^\| (`-.*?) \| ", section + settings, re.MULTILINE)
    listed = {option for cell in cells for option in re.findall(r"`(--?[a-zA-Z][a-z-]*)", cell)}
    assert "--help" in shown
    assert listed == shown


def test_help_with_marks_of_markdown_and_html_is_shown_as_it_is() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--form", choices=("a", "b"), help="write <b>, a|b, *x_y* [l](u) & `c_d`, `e|f` at 100%%")
    parser.add_argument("--level", nargs="?", metavar="N", type=int)
    table = loaded("generate")._arguments(parser._actions[1:], parser)
    html = markdown.markdown(table, extensions=["tables"])
    assert "<td><code>--form {a,b}</code></td>" in html
    assert (
        "<td>write &lt;b&gt;, a&#124;b, *x_y* [l](u) &amp; <code>c_d</code>, <code>e&#124;f</code> at 100%</td>" in html
    )
    assert "<td><code>--level [N]</code></td>" in html


def test_a_section_of_the_readme_ends_at_the_next_heading() -> None:
    hooks = loaded("hooks")
    section = hooks.readme_section("Before and after")
    assert section.startswith("`train.py`")
    assert "diff" in section
    assert "## " not in section
    with pytest.raises(PluginError, match=r"no heading 'Before or after'"):
        hooks.readme_section("Before or after")


def test_links_out_of_the_site_become_pages_or_paths() -> None:
    hooks = loaded("hooks")
    docs = ROOT / "docs"

    def relinked(text: str, folder: Path, page: str) -> str:
        linked: str = hooks._relinked(text, folder, page, docs)
        return linked

    assert (
        relinked("[new](../../CHANGELOG.md#fixed)", docs / "rules", "rules/index.md") == "[new](../changelog.md#fixed)"
    )
    assert relinked("[it](docs/rules/tl101.md)", ROOT, "contributing.md") == "[it](rules/tl101.md)"
    assert relinked("[`Module`](torchlint/rule.py)", ROOT, "contributing.md") == "`Module` (`torchlint/rule.py`)"
    assert relinked("[`torchlint/rule.py`](torchlint/rule.py)", ROOT, "contributing.md") == "`torchlint/rule.py`"
    for kept in ("[x](https://example.org/a.md)", "[x](#place)", "`[x](a.md)`", "```\n[x](a.md)\n```"):
        assert relinked(kept, ROOT, "index.md") == kept


# In a browser


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = program("chromium", "chromium-browser", "google-chrome")
    for flag in ("headless", "no-sandbox", "disable-gpu", "no-first-run", "disable-background-networking"):
        options.add_argument(f"--{flag}")
    options.add_argument("--disable-dev-shm-usage")
    options.add_argument("--window-size=1300,900")
    driver = webdriver.Chrome(options, webdriver.ChromeService(program("chromedriver")))
    driver.set_page_load_timeout(SECONDS)
    yield driver
    driver.quit()


class _Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Where a server on this machine shows the site."""
    handler = functools.partial(_Silent, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


def shown_codes(browser: webdriver.Chrome) -> list[str]:
    """The codes in the rows of the table that can be seen."""
    rows = browser.find_elements(By.CSS_SELECTOR, "#rule-table tbody tr")
    return [row.find_element(By.TAG_NAME, "a").text for row in rows if row.is_displayed()]


def control(browser: webdriver.Chrome, label: str) -> WebElement:
    """The control of the filter that a label names."""
    return browser.find_element(By.XPATH, f"//form[@role='search']//label[text()='{label}']/*")


def choose(browser: webdriver.Chrome, label: str, option: str) -> None:
    Select(control(browser, label)).select_by_visible_text(option)


def status(browser: webdriver.Chrome) -> str:
    return browser.find_element(By.CSS_SELECTOR, "#rule-table [role=status]").text


def show_all(browser: webdriver.Chrome) -> None:
    browser.find_element(By.CSS_SELECTOR, "#rule-table button").click()
    WebDriverWait(browser, SECONDS).until(lambda _: len(shown_codes(browser)) == len(all_rules()))


def test_the_table_of_rules_is_filtered(browser: webdriver.Chrome, address: str) -> None:
    browser.get(f"{address}rules/")
    rules = all_rules()
    codes = [rule.code for rule in rules]
    assert shown_codes(browser) == codes
    assert status(browser) == f"{len(codes)} of {len(codes)} rules"

    choose(browser, "Family", "copies")
    assert shown_codes(browser) == [rule.code for rule in rules if rule.family() == "copies"]
    control(browser, "Text").send_keys("CAT  loop")
    assert shown_codes(browser) == ["TL203"]
    assert status(browser) == f"1 of {len(codes)} rules"
    show_all(browser)
    assert control(browser, "Text").get_attribute("value") == ""

    choose(browser, "Level", "info")
    assert shown_codes(browser) == [rule.code for rule in rules if rule.level.value == "info"]
    choose(browser, "Fix", "fixable")
    assert shown_codes(browser) == [rule.code for rule in rules if rule.level.value == "info" and rule.fixable]
    choose(browser, "Level", "any")
    assert shown_codes(browser) == [rule.code for rule in rules if rule.fixable]
    choose(browser, "Fix", "none")
    assert shown_codes(browser) == [rule.code for rule in rules if not rule.fixable]
    control(browser, "Text").send_keys("no such words")
    assert shown_codes(browser) == []
    assert status(browser).startswith("No rule matches")
    show_all(browser)

    choose(browser, "Default", "on")
    assert shown_codes(browser) == [rule.code for rule in rules if rule.default]


def test_the_table_fits_a_narrow_screen(browser: webdriver.Chrome, address: str) -> None:
    size = browser.get_window_size()
    browser.set_window_size(500, 900)
    try:
        browser.get(f"{address}rules/")
        choose(browser, "Family", "sync")
        assert shown_codes(browser) == [rule.code for rule in all_rules() if rule.family() == "sync"]
        table = browser.find_element(By.CSS_SELECTOR, "#rule-table table")
        assert table.rect["x"] + table.rect["width"] <= browser.execute_script("return innerWidth")
        assert not browser.execute_script("return document.documentElement.scrollWidth > innerWidth")
    finally:
        browser.set_window_size(size["width"], size["height"])


def find_by_search(browser: webdriver.Chrome, words: str, page: str) -> str:
    """Search, wait until the first result leads to a page, go there, and give its title."""
    field = browser.find_element(By.CSS_SELECTOR, "[data-md-component=search-query]")
    browser.execute_script("arguments[0].focus()", field)
    wait = WebDriverWait(browser, SECONDS)
    wait.until(lambda _: field.is_displayed() and field.is_enabled())
    field.send_keys(words)
    # Each letter brings new results, so that no element may be held.
    first = "return document.querySelector('.md-search-result__item:first-child a')?.href ?? ''"
    wait.until(lambda _: urlsplit(browser.execute_script(first)).path.endswith(page), f"{words}: finds no {page}")
    browser.get(browser.execute_script(first))
    return browser.find_element(By.TAG_NAME, "h1").text


def test_search_finds_a_rule_by_name_and_by_code(browser: webdriver.Chrome, address: str) -> None:
    for words in ("sync-in-loop", "TL101"):
        browser.get(address)
        assert find_by_search(browser, words, "/rules/tl101/").startswith("TL101 sync-in-loop")
    loaded = browser.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert loaded
    assert [url for url in loaded if not url.startswith(address)] == []


def test_filter_and_search_work_without_a_server(browser: webdriver.Chrome, tmp_path: Path) -> None:
    completed = build(tmp_path, offline=True)
    assert completed.returncode == 0, completed.stderr
    browser.get((tmp_path / "rules" / "index.html").as_uri())
    control(browser, "Text").send_keys("tl40")
    assert shown_codes(browser) == [rule.code for rule in all_rules() if rule.code.startswith("TL40")]
    assert find_by_search(browser, "eval-without-no-grad", "/rules/tl401.html").startswith("TL401 eval-without-no-grad")
    assert browser.current_url.startswith("file:")
