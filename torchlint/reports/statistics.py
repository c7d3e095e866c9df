"""How often each rule was found."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torchlint.diagnostics import FileReport
    from torchlint.reports.output import Output


class Row(msgspec.Struct, frozen=True):
    """A rule's findings: how many, and how many of them can be fixed."""

    count: int
    code: str
    name: str
    fixable: int


def rows(reports: Iterable[FileReport]) -> list[Row]:
    """A row for each rule that was found, the most frequent first."""
    findings = [finding for report in reports for finding in report.findings]
    counts = Counter((finding.code, finding.name) for finding in findings)
    fixable = Counter(finding.code for finding in findings if finding.fix)
    found = [Row(count, code, name, fixable[code]) for (code, name), count in counts.items()]
    return sorted(found, key=lambda row: (-row.count, row.code))


def write(reports: Iterable[FileReport], output: Output) -> None:
    """A line for each rule: the count, the code, `[*]` where all can be fixed and `[-]` where some can, the name."""
    table = rows(reports)
    width = len(str(table[0].count)) if table else 0
    for row in table:
        mark = "[*]" if row.fixable == row.count else "[-]" if row.fixable else "[ ]"
        output.line(
            (f"{row.count:>{width}}  ", "bold"), (f"{row.code}  ", "bold red"), (f"{mark} ", "cyan"), (row.name, "")
        )


def render_json(reports: Iterable[FileReport]) -> str:
    """The same table as a JSON list of objects."""
    return msgspec.json.format(msgspec.json.encode(rows(reports)), indent=2).decode() + "\n"
