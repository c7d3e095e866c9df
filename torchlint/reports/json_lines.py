"""Findings as JSON, one object on each line: the objects of the format `json`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchlint.reports.encoding import encode
from torchlint.reports.json import row

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torchlint.diagnostics import FileReport


def render(reports: Iterable[FileReport]) -> str:
    """A line for each finding, no text where there is none. File names are absolute paths."""
    return "".join(encode(row(report.path, finding), 0) for report in reports for finding in report.findings)
