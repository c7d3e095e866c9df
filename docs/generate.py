"""Writes what the documentation takes from the rules: a page for each, and the tables that list them.

    python docs/generate.py

A page is what `torchlint rule TL101` prints, with what was measured of the rule last. A table stands between two marker
comments; the rest of its file is written by hand.
"""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

from torchlint import Rule, all_rules
from torchlint.cli import main as torchlint

DOCS = Path(__file__).resolve().parent
PAGES = DOCS / "rules"
TABLES = {DOCS.parent / "README.md": "docs/rules", DOCS / "index.md": "rules"}

_TABLE = re.compile(r"(?<=<!-- rules, by docs/generate\.py -->\n).*?(?=<!-- end of rules -->)", re.DOTALL)


def generated() -> dict[Path, str]:
    """Every generated file with the text that it should hold."""
    files = {PAGES / f"{rule.code.lower()}.md": _page(rule) for rule in all_rules()}
    for path, pages in TABLES.items():
        text, count = _TABLE.subn(lambda _, pages=pages: _table(pages), path.read_text(encoding="utf-8"))
        if count != 1:
            raise ValueError(f"{path}: holds {count} places for the table of rules, not one")
        files[path] = text
    return files


def _page(rule: type[Rule]) -> str:
    page = io.StringIO()
    with contextlib.redirect_stdout(page):
        torchlint(["rule", rule.code])
    return page.getvalue()


def _table(pages: str) -> str:
    lines = ["| code | name | what it finds | level | fix |", "|---|---|---|---|---|"]
    for rule in all_rules():
        summary = " ".join(rule.page().split("\n\n")[0].split())
        fix = rule.fixable.value if rule.fixable else "none"
        opt_in = "" if rule.default else " (opt-in)"
        link = f"[{rule.code}]({pages}/{rule.code.lower()}.md)"
        lines.append(f"| {link} | {rule.name} | {summary} | {rule.level.value}{opt_in} | {fix} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write every file that is not current, and delete pages of rules that are gone."""
    files = generated()
    PAGES.mkdir(exist_ok=True)
    for path, text in files.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8", newline="\n")
            print(f"wrote {path.relative_to(DOCS.parent)}")
    for path in set(PAGES.glob("*.md")) - set(files):
        path.unlink()
        print(f"deleted {path.relative_to(DOCS.parent)}")


if __name__ == "__main__":
    main()
