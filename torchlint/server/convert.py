"""From findings to what the protocol calls diagnostics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsprotocol import types

from torchlint.engine import SYNTAX_ERROR, UNUSED_SUPPRESSION

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torchlint.diagnostics import Diagnostic
    from torchlint.server.positions import Text
    from torchlint.server.session import Linted

SOURCE = "torchlint"


def by_part(linted: Linted) -> dict[str, list[types.Diagnostic]]:
    """The diagnostics for each text of a document, those without any included."""
    found: dict[str, list[types.Diagnostic]] = {part.uri: [] for part in linted.document.parts}
    for finding in linted.report.findings:
        part = linted.document.part(finding.cell)
        if part is not None:
            found[part.uri].append(diagnostic(finding, part.text))
    return found


def diagnostics(findings: Iterable[Diagnostic], text: Text) -> list[types.Diagnostic]:
    """The diagnostics of a file."""
    return [diagnostic(finding, text) for finding in findings]


def diagnostic(finding: Diagnostic, text: Text) -> types.Diagnostic:
    """One finding in the client's units."""
    return types.Diagnostic(
        range=span(finding, text),
        message=finding.message,
        severity=_severity(finding),
        code=finding.code,
        code_description=types.CodeDescription(finding.url),
        source=SOURCE,
        tags=[types.DiagnosticTag.Unnecessary] if finding.code == UNUSED_SUPPRESSION else None,
    )


def span(finding: Diagnostic, text: Text) -> types.Range:
    """Where a finding is."""
    start, end = finding.location, finding.end_location
    return types.Range(text.place(start.row - 1, start.column - 1), text.place(end.row - 1, end.column - 1))


def _severity(finding: Diagnostic) -> types.DiagnosticSeverity:
    if finding.code == SYNTAX_ERROR:
        return types.DiagnosticSeverity.Error
    return types.DiagnosticSeverity.Warning if finding.level == "warning" else types.DiagnosticSeverity.Information
