"""The repairs of a run as one unified diff."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from torchlint.reports.output import Output, visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torchlint.diagnostics import FileReport


def unified(path: str, before: str, after: str) -> str:
    """The unified diff of two texts of a file; `path` is what its header shows."""
    import difflib

    lines = difflib.unified_diff(_lines(before), _lines(after), path, path)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def write(reports: Iterable[FileReport], output: Output) -> None:
    """The diffs of all files. Without color they are written as they are, so that `patch` can read them."""
    for report in reports:
        if not output.color:
            output.stream.write(report.diff)
            continue
        for line in report.diff.removesuffix("\n").split("\n") if report.diff else ():
            output.line((visible(line), _style(line)))


def _lines(text: str) -> list[str]:
    r"""The lines with their newlines. A lone `\r` ends none here: `patch` knows `\n` alone."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _style(line: str) -> str:
    if line.startswith(("---", "+++")):
        return "bold"
    return {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
