"""Findings as JSON, in the shape in which ruff writes its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchlint.reports.encoding import encode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torchlint.diagnostics import Diagnostic, FileReport, FixRecord, Location


def render(reports: Iterable[FileReport]) -> str:
    """A list of objects, one for each finding, ending in a newline. File names are absolute paths."""
    return encode([row(report.path, finding) for report in reports for finding in report.findings])


def row(path: str, finding: Diagnostic) -> dict[str, Any]:
    """The object that stands for one finding."""
    return {
        "cell": finding.cell or None,
        "code": finding.code,
        "end_location": _place(finding.end_location),
        "filename": path,
        "fix": _fix(finding.fix),
        "level": finding.level,
        "location": _place(finding.location),
        "message": finding.message,
        "name": finding.name,
        "url": finding.url,
    }


def _fix(fix: FixRecord | None) -> dict[str, Any] | None:
    if fix is None:
        return None
    edits = [
        {"content": edit.content, "end_location": _place(edit.end_location), "location": _place(edit.location)}
        for edit in fix.edits or ()
    ]
    return {"applicability": fix.applicability, "edits": edits, "message": fix.message}


def _place(location: Location) -> dict[str, int]:
    return {"column": location.column, "row": location.row}
