"""What verifying a script showed, as text: for the terminal, for other programs, for a pull request, for a browser."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import msgspec

from torchlint.reports.summary import counted

from ..reports import wording
from ..reports.escaping import block_in_html, block_in_markdown, in_html, in_markdown, inline, lines
from ..reports.json import storable
from ..reports.terminal import plain_console

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console

    from .fixes import Fix
    from .outcome import Comparison, Ratio, Report

FORMATS = ("table", "json", "markdown", "html")

_STYLES = {"faster": "bold green", "leaner": "green", "slower": "bold red", "differs": "bold red", "failed": "bold red"}


class Grid(msgspec.Struct, frozen=True):
    """A table of texts that are not escaped yet."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def render(report: Report, form: str, *, color: bool = False, width: int = 120) -> str:
    """The report in one of `FORMATS`, ending in a newline. `color` and `width` are for "table" alone."""
    if form == "json":
        return _json(report)
    if form == "markdown":
        return _markdown(report)
    if form == "html":
        return _html(report)
    return _terminal(report, color, width)


# What is said, whatever the format


def headline(report: Report) -> str:
    """The script with its arguments, as it would be typed."""
    return " ".join(("verified:", report.script, *report.arguments))


def facts(report: Report) -> list[str]:
    """Where and how it was measured, each as one line."""
    found = []
    if report.environment is not None:
        found.append(", ".join(f"{name}: {value}" for name, value in wording.environment(report.environment)))
    if report.boundary:
        pairs = report.comparison.pairs
        how = f"{report.steps} steps a run, the first {report.warmup} not timed; steps are {report.boundary}"
        found.append(
            f"{how}; {counted(pairs, 'pair')} of runs, seed {report.seed}"
            + (f", {report.clock}" if report.clock else "")
        )
    found.append(f"measured: {report.measured}")
    return found


def grids(report: Report) -> list[Grid]:
    """The tables of the report: what was measured, which fix brought how much, which fixes there are."""
    found = []
    if report.comparison.step is not None:
        found.append(Grid("original and fixed", ("", "before", "after", "ratio"), tuple(_measured(report))))
    if report.parts:
        heads = ("fixes", "verdict", "step", "whole run", "syncs a step", "peak memory", "loss")
        found.append(Grid("which fix brought how much", heads, tuple(_part(part) for part in report.parts)))
    if report.comparison.fixes:
        found.append(_fixes("fixes", report.comparison.fixes))
    if report.idle:
        found.append(_fixes("fixes in files that the script does not import, left out", report.idle))
    return found


def sentences(report: Report) -> list[str]:
    """What else there is to say, each as one line."""
    comparison = report.comparison
    said = [comparison.losses.note] if comparison.losses is not None and comparison.losses.note else []
    if comparison.syncs is not None and report.device == "cpu":
        said.append(
            "synchronizations are counted as if every tensor lived on a GPU; times on a GPU are not measured here"
        )
    said += [f"{part.version}: {part.reason}" for part in report.parts]
    said += [*comparison.notes, *report.notes]
    return list(dict.fromkeys(said))


def outputs(report: Report) -> list[tuple[str, str]]:
    """What failed runs printed last: pairs of a version and its output."""
    compared = (report.comparison, *report.parts)
    return [(one.version, one.output) for one in compared if one.output]


def _measured(report: Report) -> Iterable[tuple[str, ...]]:
    found = report.comparison
    for what, ratio in (("time per step, median", found.step), ("whole run, per step", found.whole)):
        if ratio is not None:
            yield what, wording.seconds(ratio.before), wording.seconds(ratio.after), _ratio(ratio)
    if found.syncs is not None:
        yield "synchronizations per step", f"{found.syncs[0]:.3g}", f"{found.syncs[1]:.3g}", ""
    if found.memory is not None:
        memory = found.memory
        yield f"peak {report.memory}", wording.size(memory.before), wording.size(memory.after), _ratio(memory)
    if found.losses is not None and found.losses.before and found.losses.after:
        curves = (_curve(found.losses.before), _curve(found.losses.after))
        yield "loss, first to last", *curves, "agrees" if found.losses.agree else "differs"


def _part(part: Comparison) -> tuple[str, ...]:
    syncs = f"{part.syncs[0]:.3g} to {part.syncs[1]:.3g}" if part.syncs is not None else ""
    loss = "" if part.losses is None else "agrees" if part.losses.agree else "differs"
    return part.version, part.verdict.value, _ratio(part.step), _ratio(part.whole), syncs, _ratio(part.memory), loss


def _fixes(title: str, fixes: Sequence[Fix]) -> Grid:
    rows = tuple((f"{fix.code} {fix.name}", fix.place, fix.message, _safety(fix)) for fix in fixes)
    return Grid(title, ("rule", "where", "fix", "safety"), rows)


def _safety(fix: Fix) -> str:
    return f"{fix.safety}: {fix.reason}" if fix.reason else fix.safety


def _ratio(ratio: Ratio | None) -> str:
    return str(ratio) if ratio is not None else ""


def _curve(losses: Sequence[float]) -> str:
    return f"{losses[0]:.4g} to {losses[-1]:.4g}"


def _verdict(report: Report) -> str:
    return f"{report.comparison.verdict.value}: {report.comparison.reason}"


# Formats


def _terminal(report: Report, color: bool, width: int) -> str:
    from rich.text import Text

    stream = io.StringIO()
    console = plain_console(stream, color, width)
    console.print(Text(inline(headline(report)), "bold"), soft_wrap=True)
    for fact in facts(report):
        console.print(Text(inline(fact), "dim"), soft_wrap=True)
    for grid in grids(report):
        _print_grid(console, grid)
    for sentence in sentences(report):
        console.print(Text(f"note: {inline(sentence)}"), soft_wrap=True)
    for version, output in outputs(report):
        console.print(Text(f"last output of {inline(version)}:"), soft_wrap=True)
        for line in lines(output):
            console.print(Text(f"    {line}", "dim"), soft_wrap=True)
    console.print(
        Text(inline(_verdict(report)), _STYLES.get(report.comparison.verdict.value, "yellow")), soft_wrap=True
    )
    return "\n".join(line.rstrip() for line in stream.getvalue().split("\n"))


def _print_grid(console: Console, grid: Grid) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=grid.title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for head in grid.heads:
        table.add_column(head, overflow="fold")
    for row in grid.rows:
        table.add_row(*(Text(inline(cell)) for cell in row))
    console.print(table)


def _markdown(report: Report) -> str:
    parts = [f"## {in_markdown(headline(report))}", f"**{in_markdown(_verdict(report))}**"]
    for grid in grids(report):
        head = f"| {' | '.join(grid.heads)} |\n|{' --- |' * len(grid.heads)}"
        body = "\n".join(f"| {' | '.join(in_markdown(cell) for cell in row)} |" for row in grid.rows)
        parts.append(f"### {grid.title}\n\n{head}\n{body}")
    parts.append("\n".join(f"- {in_markdown(text)}" for text in (*sentences(report), *facts(report))))
    for version, output in outputs(report):
        parts.append(f"Last output of {in_markdown(version)}:\n\n{block_in_markdown(output)}")
    return "\n\n".join(parts) + "\n"


def _html(report: Report) -> str:
    from ..reports.style import STYLE

    body = [f"<h1>{in_html(headline(report))}</h1>", f"<p class=lead>{in_html(_verdict(report))}</p>"]
    for grid in grids(report):
        heads = "".join(f"<th scope=col>{in_html(head)}</th>" for head in grid.heads)
        rows = "\n".join(f"<tr>{''.join(f'<td>{in_html(cell)}</td>' for cell in row)}</tr>" for row in grid.rows)
        table = f"<table><thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody></table>"
        body.append(f"<h2>{in_html(grid.title)}</h2>\n<div class=scroll>{table}</div>")
    losses = report.comparison.losses
    if losses is not None and losses.before and losses.after:
        body.append(f"<h2>loss</h2>\n{_plot(losses.before, losses.after)}")
    body += [f"<p>{in_html(text)}</p>" for text in (*sentences(report), *facts(report))]
    for version, output in outputs(report):
        body.append(f"<h2>last output of {in_html(version)}</h2>\n<pre>{block_in_html(output)}</pre>")
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>torchlint verify</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + "\n</main>\n</body>\n</html>\n"
    )


def _plot(before: Sequence[float], after: Sequence[float]) -> str:
    """Both loss curves as a picture inside of the page."""
    import base64

    from matplotlib.figure import Figure

    from ..plots import LIGHT

    figure = Figure(figsize=(7.5, 3), layout="constrained")
    axes = figure.subplots()
    for losses, label, color, style in ((before, "original", 0, "-"), (after, "fixed", 1, "--")):
        axes.plot(range(1, len(losses) + 1), losses, style, label=label, color=LIGHT.lines[color])
    axes.set_xlabel("backward")
    axes.set_ylabel("loss")
    axes.legend()
    picture = io.BytesIO()
    figure.savefig(picture, format="svg", metadata={"Date": None})
    encoded = base64.b64encode(picture.getvalue()).decode()
    return f'<p><img alt="loss curves of both versions" src="data:image/svg+xml;base64,{encoded}"></p>'


def _json(report: Report) -> str:
    """An indented object whose keys are the records' fields; what is no finite number is a text ("nan", "inf")."""
    return json.dumps(storable(msgspec.to_builtins(report)), indent=2, allow_nan=False) + "\n"
