"""Findings as a code quality report of GitLab, whose shape is a part of Code Climate's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchlint.fingerprints import Fingerprints
from torchlint.reports.context import place_in_cell
from torchlint.reports.encoding import encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torchlint.diagnostics import FileReport
    from torchlint.reports.context import Context

_SEVERITY = {"warning": "major", "info": "minor"}


def render(reports: Iterable[FileReport], context: Context) -> str:
    """A list of issues. Paths start at the root of the repository; fingerprints stay when lines elsewhere change."""
    fingerprints = Fingerprints()
    return encode([issue for report in reports for issue in _issues(report, context, fingerprints)])


def _issues(report: FileReport, context: Context, fingerprints: Fingerprints) -> Iterator[dict[str, Any]]:
    if not report.findings:
        return
    text, path = context.text(report), context.shown(report.path)
    for finding in report.findings:
        first, last = text.file_rows(finding)
        where = f"{place_in_cell(finding)}: " if finding.cell else ""
        yield {
            "type": "issue",
            "check_name": finding.code,
            "description": f"{where}{finding.code} {finding.message}",
            "categories": ["Performance"],
            "severity": _SEVERITY[finding.level],
            "fingerprint": fingerprints.of(path, finding),
            "location": {"path": path, "lines": {"begin": first, "end": last}},
        }
