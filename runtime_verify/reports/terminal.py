"""A table on a terminal, or as plain text."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from ..records import Verdict
from . import wording
from .escaping import inline, lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import TextIO

    from rich.console import Console

    from ..records import Row, Sighting, Sweep, Table

_STYLES = {
    Verdict.FASTER: "bold green",
    Verdict.LEANER: "green",
    Verdict.NO_GAIN: "yellow",
    Verdict.SLOWER: "bold red",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.DIFFERS: "bold red",
    Verdict.NOT_MEASURED_HERE: "dim",
    Verdict.FAILED: "bold red",
}


def plain_console(stream: TextIO, color: bool, width: int) -> Console:
    """A console on which no text is taken for markup, numbers or emoji."""
    from rich.console import Console

    return Console(
        file=stream,
        force_terminal=color,
        no_color=not color,
        color_system="standard" if color else None,
        width=width,
        markup=False,
        highlight=False,
        emoji=False,
        legacy_windows=False,
    )


def render_terminal(table: Table, *, color: bool, width: int) -> str:
    """The table as text of at most `width` characters a line, but for what is not to be broken."""
    stream = io.StringIO()
    console = plain_console(stream, color, width)
    _write_environment(console, table)
    if table.rows:
        _write_rows(console, table.rows)
    for sweep in table.sweeps:
        _write_sweep(console, sweep)
    if table.sightings:
        _write_sightings(console, table.sightings)
    for note in table.notes:
        _line(console, "note: " + inline(note))
    return stream.getvalue()


def _line(console: Console, text: str = "", style: str = "") -> None:
    from rich.text import Text

    console.print(Text(text, style), soft_wrap=True)


def _write_environment(console: Console, table: Table) -> None:
    facts = [f"{name}: {inline(value)}" for name, value in wording.environment(table.environment)]
    _line(console, ", ".join([*facts, f"measured: {inline(table.measured)}"]), "dim")


def _write_rows(console: Console, rows: Sequence[Row]) -> None:
    body = [
        [
            (wording.title(row), ""),
            (row.verdict.value, _STYLES[row.verdict]),
            (wording.ratio(row.timing), ""),
            (wording.claimed(row), ""),
            (wording.values(row.values), ""),
        ]
        for row in rows
    ]
    _write_grid(console, ("rule", "verdict", "times faster", "what it removes", "values"), body)
    for row in rows:
        _line(console, f"{inline(wording.title(row))}: {inline(row.reason)}", "red" if row.verdict.is_bad else "")
        for note in row.notes:
            _line(console, f"  note: {inline(note)}")
        if row.failure is not None:
            _line(console, f"  {inline(wording.failure(row.failure))}")
            for text in lines(row.failure.output):
                _line(console, f"  | {text}", "dim")
    _line(console, wording.summary(rows), "bold")


def _write_sweep(console: Console, sweep: Sweep) -> None:
    _line(console)
    _line(console, inline(f"{sweep.name}: {sweep.title}"), "bold")
    body = [[(cell, "") for cell in cells] for cells in wording.sweep_rows(sweep)]
    _write_grid(console, wording.sweep_columns(sweep), body, spaced=False)
    for text in (sweep.conclusion, *sweep.notes):
        if text:
            _line(console, inline(text))


def _write_sightings(console: Console, sightings: Sequence[Sighting]) -> None:
    _line(console)
    body = [
        [
            (f"{sighting.code} {sighting.pattern}", ""),
            (f"{sighting.file}:{sighting.line}", ""),
            (wording.agreement(sighting), "green" if sighting.agrees else "dim" if sighting.note else "bold yellow"),
            (sighting.static, ""),
            (sighting.profiled + (f" ({sighting.count} times)" if sighting.count > 1 else ""), ""),
        ]
        for sighting in sightings
    ]
    _write_grid(console, ("habit", "place", "seen by", "the linter says", "the profiler saw"), body)
    _line(console, wording.cross_check_summary(sightings), "bold")


def _write_grid(
    console: Console, heads: Iterable[str], body: Iterable[Sequence[tuple[str, str]]], *, spaced: bool = True
) -> None:
    """A table with a border on both sides of each line, so that no text stands at the start of one."""
    from rich import box
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid(box=box.ROUNDED if console.is_terminal else box.ASCII2, show_lines=spaced)
    for head in heads:
        grid.add_column(Text(inline(head), "bold"), overflow="fold")
    for cells in body:
        grid.add_row(*(Text(inline(text), style) for text, style in cells))
    console.print(grid)
