"""Plots of what was measured, drawn with matplotlib's object interface: no window, no state that others share."""

from __future__ import annotations

import io
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from torchlint.reports.output import visible

from .records import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .records import Row, Sweep


class Theme(msgspec.Struct, frozen=True):
    """Colors of a plot. The lines' are told apart by people who see no red or no green (Okabe and Ito, 2008)."""

    background: str
    text: str
    grid: str
    lines: tuple[str, ...]
    good: str
    bad: str
    neutral: str


LIGHT = Theme(
    background="#ffffff",
    text="#1f2328",
    grid="#d8dee4",
    lines=("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00"),
    good="#007a5a",
    bad="#c2410c",
    neutral="#6b7280",
)
DARK = Theme(
    background="#161b22",
    text="#e6edf3",
    grid="#30363d",
    lines=("#56b4e9", "#e69f00", "#2bc299", "#e39ac3", "#4f9dd9", "#f0e442"),
    good="#3fc79a",
    bad="#ff8a5c",
    neutral="#9aa4b0",
)
_MARKERS = ("o", "s", "^", "D", "v", "P")
_WIDTH = 7.5
# The most welcome first: a later one is a tick only if it is far enough from those before it.
_ROUND_RATIOS = (
    1,
    2,
    0.5,
    5,
    10,
    100,
    0.1,
    20,
    50,
    0.2,
    1.5,
    3,
    1.2,
    0.8,
    1.1,
    0.9,
    0.7,
    1.3,
    1.4,
    0.6,
    200,
    500,
    1000,
)


def draw_sweep(sweep: Sweep, theme: Theme = LIGHT, form: str = "svg") -> bytes:
    """A line for each variant, time over size, with the interval of each point; `form` is "svg" or "png".

    The time is in the unit that suits its values, on an axis that starts at 0, or is logarithmic where the times span
    more than a factor of 30.
    """
    with _figure(theme, 4.2) as (figure, axes):
        unit, factor = _time_unit(sweep)
        for series, color, marker in zip(sweep.series, _cycle(theme.lines), _cycle(_MARKERS), strict=False):
            middle = [point.seconds / factor for point in series.points]
            below = [(point.seconds - point.low) / factor for point in series.points]
            above = [(point.high - point.seconds) / factor for point in series.points]
            axes.errorbar(
                [point.size for point in series.points],
                middle,
                yerr=[[max(one, 0.0) for one in below], [max(one, 0.0) for one in above]],
                label=_plain(series.label),
                color=color,
                marker=marker,
                markersize=5,
                linewidth=1.6,
                capsize=3,
            )
        _scale(axes, sweep)
        axes.set_title(_plain(sweep.title), color=theme.text, loc="left", fontsize=12)
        axes.set_xlabel(_plain(sweep.size_label))
        axes.set_ylabel(f"median time of one call [{unit}]")
        if len(sweep.series) > 1:
            axes.legend(frameon=False, labelcolor=theme.text)
        return _image(figure, form)


def draw_ratios(rows: Sequence[Row], theme: Theme = LIGHT, form: str = "svg") -> bytes:
    """A point for each timed row, time before over time after, with its interval, on a logarithmic axis."""
    timed = [(row, row.timing) for row in rows if row.timing is not None]
    with _figure(theme, 1.3 + 0.36 * len(timed)) as (figure, axes):
        axes.axvline(1.0, color=theme.neutral, linewidth=1)
        for height, (row, timing) in enumerate(reversed(timed)):
            color = theme.bad if row.verdict.is_bad else theme.good if _pays(row) else theme.neutral
            axes.plot([timing.low, timing.high], [height, height], color=color, linewidth=2.2, solid_capstyle="butt")
            axes.plot([timing.ratio], [height], color=color, marker="o", markersize=6)
        axes.set_yticks(range(len(timed)), [_plain(f"{row.code} {row.name}") for row, _ in reversed(timed)])
        axes.set_ylim(-0.7, len(timed) - 0.3)
        axes.set_xscale("log")
        ends = [end for _, timing in timed for end in (timing.low, timing.high)]
        _mark_ratios(axes, min([*ends, 0.9]), max([*ends, 1.1]))
        axes.set_xlabel("times faster with the fix (median before / median after, 95 % interval)")
        axes.grid(axis="y", visible=False)
        return _image(figure, form)


def _pays(row: Row) -> bool:
    return row.verdict in (Verdict.FASTER, Verdict.LEANER)


def _mark_ratios(axes: Axes, low: float, high: float) -> None:
    """A few round ratios as ticks: matplotlib's own for less than a decade are too many or too few."""
    from math import log

    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    left, right = low / 1.08, high * 1.08
    ticks: list[float] = []
    for tick in _ROUND_RATIOS:
        far = all(abs(log(tick / other)) > log(right / left) / 12 for other in ticks)
        if left <= tick <= right and far:
            ticks.append(tick)
    axes.set_xlim(left, right)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    axes.xaxis.set_minor_locator(NullLocator())


def _scale(axes: Axes, sweep: Sweep) -> None:
    """Axes that fit: logarithmic where values span orders of magnitude, and ticks at the sizes themselves."""
    from matplotlib.ticker import FuncFormatter

    points = [point for series in sweep.series for point in series.points]
    times = [point.seconds for point in points if point.seconds > 0]
    sizes = sorted({point.size for point in points})
    if times and max(times) > 30 * min(times):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    else:
        axes.set_ylim(bottom=0)
    if len(sizes) > 2 and sizes[0] > 0 and sizes[-1] / sizes[0] >= 16:
        axes.set_xscale("log", base=2)
    ticks = sizes if len(sizes) <= 12 else [at for at in sizes if at % 8 == 0]
    if 0 < len(ticks) <= 12:
        axes.set_xticks(ticks, [f"{at:g}" for at in ticks], minor=False)
        axes.set_xticks([], minor=True)


def _time_unit(sweep: Sweep) -> tuple[str, float]:
    """The unit in which the largest time has one to three digits before its point."""
    longest = max((point.seconds for series in sweep.series for point in series.points), default=0.0)
    units = (("s", 1.0), ("ms", 1e-3), ("\u00b5s", 1e-6))
    return next(((name, factor) for name, factor in units if longest >= factor), ("ns", 1e-9))


def _cycle(values: tuple[str, ...]) -> Iterator[str]:
    while True:
        yield from values


def _plain(text: str) -> str:
    """Text without control characters, which no SVG may hold, and in which no dollar sign begins mathematics."""
    return visible(text).replace("$", r"\$")


@contextmanager
def _figure(theme: Theme, height: float) -> Iterator[tuple[Figure, Axes]]:
    """An empty plot in the theme's colors; `height` in inches."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    # Letters stay letters in an SVG: they can be searched, and it is the same each time.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "torchlint", "font.family": "sans-serif"}):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained", facecolor=theme.background)
        axes = figure.add_subplot(facecolor=theme.background)
        axes.tick_params(colors=theme.text)
        axes.grid(color=theme.grid, linewidth=0.7)
        axes.set_axisbelow(True)
        for side, spine in axes.spines.items():
            spine.set_visible(side in ("left", "bottom"))
            spine.set_color(theme.grid)
        for axis in (axes.xaxis, axes.yaxis):
            axis.label.set_color(theme.text)
        yield figure, axes


def _image(figure: Figure, form: str) -> bytes:
    if form not in ("svg", "png"):
        raise ValueError(f"no such format for a plot: {form!r}; there are svg and png")
    stream = io.BytesIO()
    # neither the time nor the version of the library is part of what was measured
    metadata = {"Date": None, "Creator": None} if form == "svg" else {"Software": None}
    figure.savefig(stream, format=form, dpi=150, metadata=metadata)
    return stream.getvalue()
