"""One line for each finding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchlint.reports.output import Output, Span, display_path, visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torchlint.diagnostics import Diagnostic, FileReport


def write(reports: Iterable[FileReport], output: Output) -> None:
    """`path:row:column: TL101 [*] message`."""
    for report in reports:
        for finding in report.findings:
            output.line(*heading(report.path, finding))


def heading(path: str, finding: Diagnostic) -> list[Span]:
    """The place (in a notebook with its cell), code and message of a finding; `[*]` marks one that can be fixed."""
    cell = f"cell {finding.cell}:" if finding.cell else ""
    place = f"{cell}{finding.location.row}:{finding.location.column}"
    mark: list[Span] = [("[*] ", "cyan")] if finding.fix else []
    color = "bold red" if finding.level == "warning" else "bold yellow"
    return [
        (display_path(path), "bold"),
        (f":{place}: ", "cyan"),
        (f"{finding.code} ", color),
        *mark,
        (visible(finding.message), ""),
    ]
