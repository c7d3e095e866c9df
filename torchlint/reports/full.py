"""Each finding with its source lines, the place underlined, and what its fix would do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchlint.reports.concise import heading
from torchlint.reports.output import Output, visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torchlint.diagnostics import Diagnostic, FileReport

_WIDEST = 160


def write(reports: Iterable[FileReport], output: Output) -> None:
    """A block of lines for each finding, a blank line after each."""
    for report in reports:
        for finding in report.findings:
            output.line(*heading(report.path, finding))
            _write_excerpt(finding, output)
            _write_fix(finding, output)
            output.line()


def _write_excerpt(finding: Diagnostic, output: Output) -> None:
    excerpt = finding.excerpt
    if not excerpt.lines:
        return
    margin = len(str(excerpt.row + len(excerpt.lines) - 1))
    output.line((f"{'':{margin}} |", "blue"))
    for row, line in enumerate(excerpt.lines, excerpt.row):
        shift = _shift(finding, row)
        output.line((f"{row:>{margin}} | ", "blue"), (visible(line[shift : shift + _WIDEST]), ""))
        if row == finding.location.row:
            blank, mark = _underline(finding, line, shift)
            output.line((f"{'':{margin}} | ", "blue"), (blank, ""), (mark, "bold red"))


def _shift(finding: Diagnostic, row: int) -> int:
    """How many characters to leave out at the start of a line that is too long to show its place otherwise."""
    return max(finding.location.column - _WIDEST // 2, 0) if row == finding.location.row else 0


def _underline(finding: Diagnostic, line: str, shift: int) -> tuple[str, str]:
    """The blanks before the place and the marks below it, as wide as a terminal shows the characters above."""
    start = finding.location.column - 1
    on_one_line = finding.end_location.row == finding.location.row
    end = min(finding.end_location.column - 1 if on_one_line else len(line.rstrip()), shift + _WIDEST)
    return " " * _width(visible(line[shift:start])), "^" * max(_width(visible(line[start:end])), 1)


def _width(text: str) -> int:
    """The number of terminal cells that a text takes."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(character) else 2 if east_asian_width(character) in "WF" else 1 for character in text)


def _write_fix(finding: Diagnostic, output: Output) -> None:
    if finding.fix is None:
        return
    label = "fix" if finding.fix.is_safe else "unsafe fix"
    reason = f" ({visible(finding.fix.reason)})" if finding.fix.reason else ""
    output.line((f"  = {label}: ", "bold cyan"), (f"{visible(finding.fix.message)}{reason}", ""))
