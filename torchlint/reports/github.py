"""Findings as workflow commands of GitHub Actions, which shows them on the lines of a pull request.

What has to be escaped, and that columns count only within one line: "Workflow commands for GitHub Actions", and the
functions escapeData and escapeProperty of the toolkit's package @actions/core.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchlint.reports.context import place_in_cell
from torchlint.reports.output import visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torchlint.diagnostics import Diagnostic, FileReport
    from torchlint.reports.context import Context, FileText

_COMMAND = {"warning": "warning", "info": "notice"}


def render(reports: Iterable[FileReport], context: Context) -> str:
    """A command for each finding. Paths start at the root of the repository."""
    return "".join(_command(path, finding, text) for path, finding, text in context.places(reports))


def _command(path: str, finding: Diagnostic, text: FileText) -> str:
    place = {"title": f"torchlint {finding.code} ({finding.name})", "file": path}
    first, last = text.file_rows(finding)
    place |= {"line": str(first), "endLine": str(last)}
    if first == last and not finding.cell:
        place |= {"col": str(finding.location.column), "endColumn": str(finding.end_location.column)}
    properties = ",".join(f"{key}={_property(value)}" for key, value in place.items())
    where = f"{place_in_cell(finding)}: " if finding.cell else ""
    message = f"{where}{finding.code} {finding.message}"
    return f"::{_COMMAND[finding.level]} {properties}::{_data(message)}\n"


def _data(text: str) -> str:
    """Text after the command. Newlines reach the reader as such; other control characters are shown escaped."""
    lines = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return visible(lines)


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
