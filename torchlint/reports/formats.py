"""The machine-readable formats and the page: by name, to the text of a report."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torchlint.diagnostics import FileReport
    from torchlint.reports.context import Context

# The formats that need nothing but the findings.
_PLAIN = {"json": "json", "json-lines": "json_lines"}
_IN_CONTEXT = {
    **{name: name for name in ("lsp", "sarif", "github", "gitlab", "junit", "azure")},
    "html": "html_page",
}


def render(name: str, reports: Sequence[FileReport], context: Context) -> str:
    """The report in one of these formats. Each is imported when it is asked for."""
    if name in _PLAIN:
        return str(import_module(f"torchlint.reports.{_PLAIN[name]}").render(reports))
    return str(import_module(f"torchlint.reports.{_IN_CONTEXT[name]}").render(reports, context))
