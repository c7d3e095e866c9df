"""The repairs of a run as one unified diff."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchlint.reports.output import Output, visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torchlint.diagnostics import FileReport


def write(reports: Iterable[FileReport], output: Output) -> None:
    """The diffs of all files. Without color they are written as they are, so that `patch` can read them."""
    for report in reports:
        if not output.color:
            output.stream.write(report.diff)
            continue
        for line in report.diff.removesuffix("\n").split("\n") if report.diff else ():
            output.line((visible(line.removesuffix("\r")), _style(line)))


def _style(line: str) -> str:
    if line.startswith(("---", "+++")):
        return "bold"
    return {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
