"""The newest measured row of a rule, as the last section of the rule's page. Needs no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .reports import wording
from .results import FOLDER, newest_row

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .records import Environment, Row


def section(code: str, folder: Path = FOLDER) -> str:
    """The section in Markdown, or "" where nothing was measured of the rule."""
    measured = newest_row(code, folder)
    if measured is None:
        return ""
    lines = "\n".join(f"- {line}" for line in _lines(*measured))
    return f"## Measured\n**{measured.row.verdict.value}**: {measured.row.reason}.\n\n{lines}\n"


def _lines(row: Row, place: Environment) -> Iterator[str]:
    yield f"workload: {row.workload.rstrip('.')}"
    if row.claimed:
        yield f"what the rule claims to remove: {wording.claimed(row)}"
    if row.timing is not None:
        quick = ", a quick run" if row.quick else ""
        yield f"time for one run: {wording.times(row.timing)}, ratio {wording.ratio(row.timing)}{quick}"
    if row.values is not None:
        yield f"values: {wording.values(row.values)}"
        if row.values.note:
            yield row.values.note
    yield from row.notes
    yield (
        f"measured on {row.measured[:10]} with torch {place.torch} on {place.device} ({place.device_name}), "
        f"{place.threads} of {place.cores} cores"
    )
    if place.device == "cpu":
        yield "times on a GPU are not measured yet"
