"""Findings as a JSON list of the Language Server Protocol's `PublishDiagnosticsParams`.

Positions count from zero, and columns in UTF-16 code units. Each file with findings has one entry, each cell of a
notebook one of its own, whose URI is the notebook's with the fragment `cell=N` (cells counted from 1, all of them).
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchlint.reports.encoding import encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torchlint.diagnostics import Diagnostic, FileReport, FixRecord, Location
    from torchlint.reports.context import Context, FileText

# DiagnosticSeverity in the protocol: 1 error, 2 warning, 3 information, 4 hint.
_SEVERITY = {"warning": 2, "info": 3}


def render(reports: Iterable[FileReport], context: Context) -> str:
    """The list. The `data` of a diagnostic says what its fix is, and holds it as a `WorkspaceEdit`."""
    return encode([entry for report in reports for entry in _entries(report, context)])


def _entries(report: FileReport, context: Context) -> Iterator[dict[str, Any]]:
    if not report.findings:
        return
    text, uri = context.text(report), Path(report.path).as_uri()
    for cell, findings in groupby(report.findings, lambda finding: finding.cell):
        diagnostics = [_diagnostic(finding, uri, text) for finding in findings]
        yield {"uri": _cell_uri(uri, cell), "diagnostics": diagnostics}


def _cell_uri(uri: str, cell: int) -> str:
    return f"{uri}#cell={cell}" if cell else uri


def _diagnostic(finding: Diagnostic, uri: str, text: FileText) -> dict[str, Any]:
    return {
        "range": _range(finding.cell, finding.location, finding.end_location, text),
        "severity": _SEVERITY[finding.level],
        "code": finding.code,
        "codeDescription": {"href": finding.url},
        "source": "torchlint",
        "message": finding.message,
        "data": _data(finding.fix, uri, text),
    }


def _data(fix: FixRecord | None, uri: str, text: FileText) -> dict[str, Any] | None:
    if fix is None or not fix.edits:
        return None
    changes: dict[str, list[dict[str, Any]]] = {}
    for edit in fix.edits:
        change = {"range": _range(edit.cell, edit.location, edit.end_location, text), "newText": edit.content}
        changes.setdefault(_cell_uri(uri, edit.cell), []).append(change)
    return {
        "title": fix.message,
        "applicability": fix.applicability,
        "reason": fix.reason,
        "edit": {"changes": changes},
    }


def _range(cell: int, start: Location, end: Location, text: FileText) -> dict[str, Any]:
    return {
        "start": {"line": start.row - 1, "character": text.units(cell, start)},
        "end": {"line": end.row - 1, "character": text.units(cell, end)},
    }
