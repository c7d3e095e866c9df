"""What the documentation site adds to the files of docs/ while mkdocs builds it.

- The navigation gets a page for each rule, by family; a page whose file is not there is left out of it.
- CHANGELOG.md and CONTRIBUTING.md of the top folder become pages.
- A comment `<!-- from README.md: Heading -->` is replaced by what stands there under that heading.
- Links that lead out of docs/ lead to the page made of that file, or become the path that they name.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

from torchlint import all_rules

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

TOP = Path(__file__).resolve().parent.parent
PAGES_OF_TOP_FILES = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "README.md": "index.md"}
MADE = {page: name for name, page in PAGES_OF_TOP_FILES.items() if page != "index.md"}

_INCLUSION = re.compile(r"^<!-- from README\.md: (?P<heading>.+?) -->$", re.MULTILINE)
_FENCED = re.compile(r"^(?P<fence>`{3,}).*?^(?P=fence)$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ (?P<title>.+)$", re.MULTILINE)
_CODE_OR_LINK = re.compile(
    r"^(?P<fence>`{3,}).*?^(?P=fence)$"
    r"|\[(?P<text>[^\]]*)\]\((?!\w+:|#)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)"
    r"|`[^`\n]*`",
    re.MULTILINE | re.DOTALL,
)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill the navigation."""
    nav = list(config.nav or [])
    for section in nav:
        if "Rules" in section:
            section["Rules"] = [*section["Rules"], *_families()]
    config.nav = _existing(nav, Path(config.docs_dir))
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages made of files of the top folder."""
    for page, name in MADE.items():
        files.append(File.generated(config, page, content=(TOP / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put in what comes from the README, and lead links to pages of the site. Raises PluginError for a lost heading."""
    uri = page.file.src_uri
    docs = Path(config.docs_dir)
    folder = TOP if uri in MADE else (docs / uri).parent
    text = _relinked(markdown, folder, uri, docs)
    return _INCLUSION.sub(lambda found: _relinked(readme_section(found["heading"]), TOP, uri, docs), text)


def readme_section(heading: str) -> str:
    """What the README says under a heading, up to the next one. Raises PluginError if it has no such heading."""
    readme = (TOP / "README.md").read_text(encoding="utf-8")
    fenced = [found.span() for found in _FENCED.finditer(readme)]
    headings = [
        found for found in _HEADING.finditer(readme) if not any(start <= found.start() < end for start, end in fenced)
    ]
    for number, found in enumerate(headings):
        if found["title"] == heading:
            end = headings[number + 1].start() if number + 1 < len(headings) else len(readme)
            return readme[found.end() : end].strip()
    raise PluginError(f"README.md: has no heading {heading!r}; a page of docs/ takes what stands under it")


def _families() -> list[dict[str, list[str]]]:
    """The pages of the rules by family, in the order of the codes."""
    families: dict[str, list[str]] = {}
    for rule in all_rules():
        families.setdefault(rule.family().capitalize(), []).append(f"rules/{rule.code.lower()}.md")
    return [{family: pages} for family, pages in families.items()]


def _existing(nav: list[Any], docs: Path) -> list[Any]:
    """The navigation without pages that are neither in docs/ nor made here."""
    kept: list[Any] = []
    for item in nav:
        title, target = next(iter(item.items())) if isinstance(item, dict) else (None, item)
        if isinstance(target, list):
            kept.append({title: _existing(target, docs)})
        elif target in MADE or (docs / target).is_file():
            kept.append(item)
    return kept


def _relinked(markdown: str, folder: Path, page: str, docs: Path) -> str:
    """`markdown`, whose relative links begin in `folder`, as text of the site's page `page`."""

    def relinked(found: re.Match[str]) -> str:
        if found["path"] is None:
            return found[0]
        target = Path(os.path.normpath(folder / found["path"]))
        uri = _page_of(target, docs)
        if uri is not None:
            relative = posixpath.relpath(uri, posixpath.dirname(page) or ".")
            return f"[{found['text']}]({relative}{found['anchor'] or ''})"
        # The site holds no source files: say where it is, unless the text of the link does.
        place = target.relative_to(TOP).as_posix() if target.is_relative_to(TOP) else found["path"]
        return found["text"] if place in found["text"] else f"{found['text']} (`{place}`)"

    return _CODE_OR_LINK.sub(relinked, markdown)


def _page_of(target: Path, docs: Path) -> str | None:
    """The page or asset of the site that a file becomes."""
    if target.parent == TOP and target.name in PAGES_OF_TOP_FILES:
        return PAGES_OF_TOP_FILES[target.name]
    return target.relative_to(docs).as_posix() if target.is_relative_to(docs) else None
