"""The page of `--output-format html` in a real browser: headless Chromium, from file://, with its filters clicked."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from command_line import CommandLine
from programs import program
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.select import Select

if TYPE_CHECKING:
    from collections.abc import Iterator

    from selenium.webdriver.remote.webelement import WebElement

MOVE = "import torch\n\nx = torch.zeros(3).to('cuda')\n"
ZERO = """\
import torch


def train(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.zero_grad(set_to_none=False)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(64, 90)
        self.last = torch.nn.Linear(90, 64)

    def forward(self, x):
        return self.last(self.head(x))
"""
HOSTILE = "<img src=x onerror=alert(1)>.py"
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    chromium, driver = program("chromium"), program("chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, "--window-size=1200,1400"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = webdriver.Chrome(options=options, service=Service(driver))
    chrome.set_page_load_timeout(60)
    yield chrome
    chrome.quit()


@pytest.fixture
def page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], browser: webdriver.Chrome
) -> webdriver.Chrome:
    """The report on a small project, open in the browser."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHLINT_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("pkg/deep/a.py", "pkg/b.py", HOSTILE):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(ZERO if name == "pkg/b.py" else MOVE + "'<script>alert(2)</script>'\n")
    run = CommandLine(capsys)("--select", "TL201,TL405,TL502", "--output-format", "html", "-o", "report.html")
    assert run.status == 1
    browser.get(Path("report.html").absolute().as_uri())
    return browser


def log(page: webdriver.Chrome) -> list[str]:
    """What the browser's console says."""
    return [entry["message"] for entry in page.get_log("browser")]  # type: ignore[no-untyped-call]


def shown(page: webdriver.Chrome) -> list[str]:
    """The codes of the findings that can be seen."""
    articles = page.find_elements(By.TAG_NAME, "article")
    return sorted(str(article.get_attribute("data-rule")) for article in articles if article.is_displayed())


def count(page: webdriver.Chrome) -> str:
    return page.find_element(By.ID, "shown").text


def choose(page: webdriver.Chrome, name: str, value: str) -> None:
    Select(page.find_element(By.NAME, name)).select_by_value(value)


def reset(page: webdriver.Chrome) -> None:
    page.find_element(By.CSS_SELECTOR, "button[type=reset]").click()


def rows(page: webdriver.Chrome, table: str) -> list[list[str]]:
    found = page.find_elements(By.CSS_SELECTOR, f"#{table} tr")[1:]
    return [[cell.text for cell in row.find_elements(By.TAG_NAME, "td")] for row in found]


def test_the_page_opens_without_an_error_or_a_request(page: webdriver.Chrome) -> None:
    assert page.title == "torchlint report"
    assert log(page) == []
    assert page.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert page.find_elements(By.TAG_NAME, "img") == []
    assert len(page.find_elements(By.TAG_NAME, "script")) == 1
    assert HOSTILE in page.find_element(By.TAG_NAME, "main").text
    assert "'<script>alert(2)</script>'" in page.find_element(By.TAG_NAME, "main").text


def test_findings_are_counted_by_rule_and_folder(page: webdriver.Chrome) -> None:
    assert rows(page, "rules") == [
        ["2", "2", "TL201 create-then-move"],
        ["2", "0", "TL502 unaligned-dim"],
        ["1", "1", "TL405 zero-grad-keeps-zeros"],
    ]
    assert rows(page, "folders") == [["3", "pkg"], ["1", "."], ["1", "pkg/deep"]]
    assert "5 issues in 3 of 3 files." in page.find_element(By.CLASS_NAME, "total").text


def test_filters_choose_what_is_visible(page: webdriver.Chrome) -> None:
    everything = ["TL201", "TL201", "TL405", "TL502", "TL502"]
    assert (shown(page), count(page)) == (everything, "5 of 5 shown")
    choose(page, "rule", "TL201")
    assert (shown(page), count(page)) == (["TL201", "TL201"], "2 of 5 shown")
    choose(page, "folder", "pkg")
    assert shown(page) == ["TL201"]
    headings = [heading.text for heading in page.find_elements(By.CSS_SELECTOR, ".file > h2") if heading.is_displayed()]
    assert headings == ["pkg/deep/a.py (1)"]
    reset(page)
    assert shown(page) == everything
    choose(page, "level", "info")
    assert shown(page) == ["TL502", "TL502"]
    reset(page)
    page.find_element(By.NAME, "fixable").click()
    assert shown(page) == ["TL201", "TL201", "TL405"]
    page.find_element(By.NAME, "text").send_keys("SET_TO_NONE")
    assert (shown(page), count(page)) == (["TL405"], "1 of 5 shown")
    page.find_element(By.NAME, "text").clear()
    page.find_element(By.NAME, "text").send_keys("<IMG src")
    assert shown(page) == ["TL201"]
    reset(page)
    assert (shown(page), count(page)) == (everything, "5 of 5 shown")


def test_a_click_in_a_table_filters(page: webdriver.Chrome) -> None:
    page.find_element(By.XPATH, "//button[text()='TL405 zero-grad-keeps-zeros']").click()
    assert shown(page) == ["TL405"]
    reset(page)
    page.find_element(By.XPATH, "//button[text()='pkg/deep']").click()
    assert shown(page) == ["TL201"]


def article_of(page: webdriver.Chrome, code: str) -> WebElement:
    return page.find_element(By.CSS_SELECTOR, f"article[data-rule={code}]")


def test_the_place_is_marked_and_the_fix_is_a_diff(page: webdriver.Chrome) -> None:
    article = article_of(page, "TL405")
    assert article.find_element(By.TAG_NAME, "mark").text == "optimizer.zero_grad(set_to_none=False)"
    assert article.find_element(By.CLASS_NAME, "place").text == "warning line 6, column 5 · zero-grad-keeps-zeros"
    diff = article.find_element(By.CLASS_NAME, "diff")
    assert not diff.is_displayed()
    article.find_element(By.TAG_NAME, "summary").click()
    assert diff.is_displayed()
    changed = [line.text for line in diff.find_elements(By.CSS_SELECTOR, ".minus, .plus")]
    assert changed == ["-    optimizer.zero_grad(set_to_none=False)", "+    optimizer.zero_grad()"]
    assert article_of(page, "TL502").find_elements(By.CSS_SELECTOR, ".fix") == []


def ground(page: webdriver.Chrome) -> str:
    return str(page.execute_script("return getComputedStyle(document.body).backgroundColor"))


def test_the_page_follows_the_readers_choice_of_light_or_dark(page: webdriver.Chrome) -> None:
    grounds = []
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        grounds.append(ground(page))
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert grounds == ["rgb(255, 255, 255)", "rgb(20, 23, 27)"]


def test_the_page_prints_with_every_diff_open_and_no_filters(page: webdriver.Chrome) -> None:
    data = base64.b64decode(page.print_page())
    assert data.startswith(b"%PDF-")
    assert all(details.get_attribute("open") for details in page.find_elements(By.TAG_NAME, "details"))
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert not page.find_element(By.TAG_NAME, "form").is_displayed()
    assert all(diff.is_displayed() for diff in page.find_elements(By.CLASS_NAME, "diff"))
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_without_its_script_the_page_shows_everything(page: webdriver.Chrome) -> None:
    page.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        page.refresh()
        assert len(shown(page)) == 5
        assert not page.find_element(By.TAG_NAME, "form").is_displayed()
    finally:
        page.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_a_script_that_got_into_the_page_would_not_run(page: webdriver.Chrome) -> None:
    text = Path("report.html").read_text(encoding="utf-8")
    Path("report.html").write_text(text.replace("<main>", "<main><script>document.title = 'taken'</script>"))
    page.refresh()
    assert page.title == "torchlint report"
    assert "Content Security Policy" in log(page)[0]
