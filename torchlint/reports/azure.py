"""Findings as logging commands of Azure Pipelines, which lists them as issues of the run.

What has to be escaped: "Logging commands" in the documentation of Azure Pipelines, and `escape` and `escapedata` of
taskcommand.ts in azure-pipelines-task-lib.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchlint.reports.context import place_in_cell
from torchlint.reports.output import visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torchlint.diagnostics import Diagnostic, FileReport
    from torchlint.reports.context import Context, FileText


def render(reports: Iterable[FileReport], context: Context) -> str:
    """A command for each finding. Paths start at the root of the repository."""
    return "".join(_command(path, finding, text) for path, finding, text in context.places(reports))


def _command(path: str, finding: Diagnostic, text: FileText) -> str:
    # Azure knows errors and warnings only: what is an info elsewhere is a warning here.
    place = {"type": "warning", "sourcepath": path, "linenumber": str(text.file_row(finding))}
    if not finding.cell:
        place["columnnumber"] = str(finding.location.column)
    place["code"] = finding.code
    properties = "".join(f"{key}={_property(value)};" for key, value in place.items())
    where = f"{place_in_cell(finding)}: " if finding.cell else ""
    return f"##vso[task.logissue {properties}]{_data(f'{where}{finding.message}')}\n"


def _data(text: str) -> str:
    """Text after the command. Newlines reach the reader as such; other control characters are shown escaped."""
    return visible(text.replace("%", "%AZP25").replace("\r", "%0D").replace("\n", "%0A"))


def _property(text: str) -> str:
    return _data(text).replace("]", "%5D").replace(";", "%3B")
