"""A table as one page that needs nothing else: no script, no font, style or picture from elsewhere."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from .. import plots
from . import wording
from .escaping import block_in_html, in_html
from .style import STYLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ..records import Row, Sighting, Sweep, Table

_BADGES = {"faster": "good", "leaner": "good", "slower": "bad", "differs": "bad", "failed": "bad"}
# Whatever might get past the escaping: the browser neither runs nor loads anything.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def render_html(table: Table) -> str:
    """The table as an HTML page, in light or dark colors as the reader's system says, and fit for paper."""
    body = [
        "<h1>torchlint verify</h1>",
        f"<p class=lead>{in_html(wording.summary(table.rows))}</p>" if table.rows else "",
        _environment(table),
        *_rows(table.rows),
        *map(_sweep, table.sweeps),
        _sightings(table.sightings) if table.sightings else "",
        *(f"<p>{in_html(note)}</p>" for note in table.notes),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>torchlint verify</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in body if part)
        + "\n</main>\n</body>\n</html>\n"
    )


def _grid(heads: Sequence[str], body: Iterable[Sequence[str]], caption: str = "") -> str:
    """A table whose heads are plain text and whose cells are HTML."""
    top = "".join(f"<th scope=col>{in_html(head)}</th>" for head in heads)
    lines = "\n".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>" for cells in body)
    title = f"<caption>{in_html(caption)}</caption>" if caption else ""
    return f"<div class=scroll><table>{title}<thead><tr>{top}</tr></thead>\n<tbody>\n{lines}\n</tbody></table></div>"


def _environment(table: Table) -> str:
    facts = [*wording.environment(table.environment), ("measured", table.measured)]
    items = "\n".join(f"<div><dt>{in_html(name)}</dt><dd>{in_html(value)}</dd></div>" for name, value in facts)
    return f"<section>\n<h2>Environment</h2>\n<dl class=facts>\n{items}\n</dl>\n</section>"


def _rows(rows: Sequence[Row]) -> Iterator[str]:
    if not rows:
        return
    heads = ("rule", "verdict", "times faster", "time before and after", "what it removes", "values")
    body = [
        (
            f'<a href="#{in_html(row.code)}"><b>{in_html(row.code)}</b> {in_html(row.name)}</a>',
            _badge(row),
            in_html(wording.ratio(row.timing)),
            in_html(wording.times(row.timing)),
            in_html(wording.claimed(row)),
            in_html(wording.values(row.values)),
        )
        for row in rows
    ]
    yield f"<section>\n<h2>Rules</h2>\n{_grid(heads, body)}\n{_ratio_plot(rows)}</section>"
    yield _legend()
    yield "<section>\n<h2>Each rule</h2>\n" + "\n".join(map(_details, rows)) + "\n</section>"


def _badge(row: Row) -> str:
    return f'<span class="badge {_BADGES.get(row.verdict.value, "neutral")}">{in_html(row.verdict.value)}</span>'


def _ratio_plot(rows: Sequence[Row]) -> str:
    if all(row.timing is None for row in rows):
        return ""
    return _picture(lambda theme: plots.draw_ratios(rows, theme), "How many times faster each rule's workload became.")


def _picture(draw: Callable[[plots.Theme], bytes], words: str) -> str:
    """A plot inside of the page, in the reader's colors."""
    light, dark = (
        "data:image/svg+xml;base64," + base64.b64encode(draw(theme)).decode() for theme in (plots.LIGHT, plots.DARK)
    )
    return (
        f'<figure><picture><source media="screen and (prefers-color-scheme: dark)" srcset="{dark}">'
        f'<img src="{light}" alt="{in_html(words)}"></picture></figure>\n'
    )


def _legend() -> str:
    items = "\n".join(
        f"<div><dt>{in_html(verdict.value)}</dt><dd>{in_html(meaning)}</dd></div>"
        for verdict, meaning in wording.MEANINGS.items()
    )
    return f"<section>\n<h2>What the verdicts mean</h2>\n<dl class=legend>\n{items}\n</dl>\n</section>"


def _details(row: Row) -> str:
    return f'<article id="{in_html(row.code)}">\n' + "\n".join(_detail_parts(row)) + "\n</article>"


def _detail_parts(row: Row) -> Iterator[str]:
    yield f"<h3>{in_html(wording.title(row))} {_badge(row)}</h3>\n<p>{in_html(row.reason)}</p>"
    facts = [("workload", row.workload), ("claim", row.claim), ("fix", wording.fix(row)), ("measured", row.measured)]
    if row.quick:
        facts.append(("run", "quick: fewer pairs than usual"))
    items = "".join(f"<div><dt>{name}</dt><dd>{in_html(text)}</dd></div>" for name, text in facts if text)
    yield f"<dl class=facts>{items}</dl>"
    if row.measurements:
        yield _measurements(row)
    if row.values is not None and (row.values.deviations or row.values.note):
        texts = [row.values.note, *(f"{one.name}: {one.message}" for one in row.values.deviations)]
        yield "<ul>" + "".join(f"<li>{in_html(text)}</li>" for text in texts if text) + "</ul>"
    yield from (f"<p class=note>{in_html(note)}</p>" for note in row.notes)
    if row.failure is not None:
        yield f"<p><b>{in_html(wording.failure(row.failure))}</b></p>"
        if row.failure.output:
            yield f"<pre>{block_in_html(row.failure.output)}</pre>"
    if row.diff:
        yield f"<details><summary>What the fix changed</summary>\n<pre>{block_in_html(row.diff)}</pre></details>"


def _measurements(row: Row) -> str:
    body = [
        (
            in_html(one.label) + (" <span class=mark>claimed</span>" if one.claimed else ""),
            *map(in_html, wording.before_after(one)),
            in_html(one.how),
        )
        for one in row.measurements
    ]
    return _grid(("counted", "before", "after", "how"), body)


def _sweep(sweep: Sweep) -> str:
    picture = _picture(lambda theme: plots.draw_sweep(sweep, theme), f"{sweep.title}: time over {sweep.size_label}.")
    cells = ([in_html(cell) for cell in row] for row in wording.sweep_rows(sweep))
    numbers = _grid(wording.sweep_columns(sweep), cells)
    texts = "".join(f"<p>{in_html(text)}</p>\n" for text in (sweep.conclusion, *sweep.notes) if text)
    return (
        f"<section>\n<h2>{in_html(sweep.title)}</h2>\n<p class=note>sweep {in_html(sweep.name)}, rule "
        f"{in_html(sweep.code)}, measured {in_html(sweep.measured)}; bars are the interval between the quartiles</p>\n"
        f"{texts}{picture}<details><summary>The numbers</summary>\n{numbers}</details>\n</section>"
    )


def _sightings(sightings: Sequence[Sighting]) -> str:
    body = [
        (
            in_html(f"{sighting.code} {sighting.pattern}"),
            f"<code>{in_html(f'{sighting.file}:{sighting.line}')}</code>",
            f'<span class="badge {_standing(sighting)}">{in_html(wording.agreement(sighting))}</span>',
            in_html(sighting.static),
            in_html(sighting.profiled),
            str(sighting.count or ""),
        )
        for sighting in sightings
    ]
    heads = ("habit", "place", "seen by", "the linter says", "the profiler saw", "times")
    summary = in_html(wording.cross_check_summary(sightings))
    return f"<section>\n<h2>Linter and profiler side by side</h2>\n<p>{summary}</p>\n{_grid(heads, body)}\n</section>"


def _standing(sighting: Sighting) -> str:
    return "good" if sighting.agrees else "neutral" if sighting.note else "bad"
