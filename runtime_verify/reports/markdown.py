"""A table as Markdown, for a README or the summary of a CI run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..records import Unit
from . import wording
from .escaping import block_in_markdown, in_markdown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ..records import Row, Sighting, Sweep, Table


def render_markdown(table: Table) -> str:
    """The table as GitHub-flavoured Markdown, ending in a newline."""
    parts = ["# torchlint verify", _environment(table)]
    if table.rows:
        parts += ["## Rules", _rows(table.rows), _legend(table.rows), *map(_details, table.rows)]
    for sweep in table.sweeps:
        parts.append(_sweep(sweep))
    if table.sightings:
        parts += ["## Linter and profiler side by side", _sightings(table.sightings)]
    parts += [in_markdown(note) for note in table.notes]
    return "\n\n".join(parts) + "\n"


def _grid(heads: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """A Markdown table of texts that are not escaped yet."""
    lines = [_row(heads), "|" + " --- |" * len(heads), *map(_row, body)]
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(in_markdown, cells)) + " |"


def _environment(table: Table) -> str:
    return _grid(("environment", ""), [*wording.environment(table.environment), ("measured", table.measured)])


def _rows(rows: Sequence[Row]) -> str:
    heads = ("rule", "verdict", "times faster (95 % interval)", "time", "what it removes", "values")
    body = [
        (
            wording.title(row),
            row.verdict.value,
            wording.ratio(row.timing),
            wording.times(row.timing),
            wording.claimed(row),
            wording.values(row.values),
        )
        for row in rows
    ]
    return f"{_grid(heads, body)}\n\n{in_markdown(wording.summary(rows))}"


def _legend(rows: Sequence[Row]) -> str:
    """What the verdicts that occur mean."""
    occurring = {row.verdict for row in rows}
    return "\n".join(
        f"- **{verdict.value}**: {in_markdown(meaning)}"
        for verdict, meaning in wording.MEANINGS.items()
        if verdict in occurring
    )


def _details(row: Row) -> str:
    return "\n\n".join(_detail_parts(row))


def _detail_parts(row: Row) -> Iterator[str]:
    yield f"### {in_markdown(wording.title(row))}"
    yield in_markdown(row.reason)
    facts = [("workload", row.workload), ("claim", row.claim), ("fix", wording.fix(row)), ("measured", row.measured)]
    yield "\n".join(f"- {name}: {in_markdown(text)}" for name, text in facts if text)
    if row.measurements:
        yield _grid(
            ("counted", "before", "after", "how"),
            [(one.label, *wording.before_after(one), one.how) for one in row.measurements],
        )
    if row.values is not None and row.values.deviations:
        yield "\n".join(f"- {in_markdown(f'{one.name}: {one.message}')}" for one in row.values.deviations)
    yield from map(in_markdown, row.notes)
    if row.failure is not None:
        yield in_markdown(wording.failure(row.failure))
        if row.failure.output:
            yield block_in_markdown(row.failure.output)
    if row.diff:
        yield block_in_markdown(row.diff, "diff")


def _sweep(sweep: Sweep) -> str:
    parts = [f"## {in_markdown(sweep.title)}", _grid(wording.sweep_columns(sweep), wording.sweep_rows(sweep))]
    parts += [in_markdown(text) for text in (sweep.conclusion, *sweep.notes) if text]
    return "\n\n".join(parts)


def _sightings(sightings: Sequence[Sighting]) -> str:
    body = [
        (
            f"{sighting.code} {sighting.pattern}",
            f"{sighting.file}:{sighting.line}",
            wording.agreement(sighting),
            sighting.static,
            sighting.profiled,
            wording.amount(sighting.count, Unit.COUNT),
        )
        for sighting in sightings
    ]
    heads = ("habit", "place", "seen by", "the linter says", "the profiler saw", "times")
    return f"{_grid(heads, body)}\n\n{in_markdown(wording.cross_check_summary(sightings))}"
