"""Sweeps are records of measured times, and their plots are images that say what they show."""

from __future__ import annotations

import io
import time
import xml.etree.ElementTree as ElementTree
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("torch")

import torch
from PIL import Image

from torchlint.runtime_verify.environment import usable_cores
from torchlint.runtime_verify.plots import DARK, LIGHT, Theme, draw_ratios, draw_sweep
from torchlint.runtime_verify.records import Point, Row, Series, Sweep, Timing, Verdict
from torchlint.runtime_verify.sweeps import SWEEPS, Effort, Plan, Variant, Work, measure_plan, measure_sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BRIEF = Effort(rounds=3, seconds=0.001)


def sleeping(milliseconds: float) -> Callable[[int], Work]:
    return lambda size: lambda: time.sleep(milliseconds * size / 1000)


def plan(*variants: Variant, conclude: Callable[[Sequence[Series]], str] = lambda series: "measured") -> Plan:
    return Plan("sleep", "TL999", "Sleeping", "repetitions", (1, 4), variants, conclude, ("a note",))


def nothing(step: str) -> None:
    """Progress that nobody follows."""


def drawn(sweep: Sweep, theme: Theme = LIGHT) -> str:
    """All letters of a plot."""
    root = ElementTree.fromstring(draw_sweep(sweep, theme))
    return "\n".join(text.strip() for element in root.iter() for text in (element.text or "",) if text.strip())


SWEEP = Sweep(
    "demo",
    "TL502",
    "Title with $5 and <b>markup</b> & more",
    "width [elements]",
    (
        Series("float32", tuple(Point(size, 0.002, 0.0019, 0.0024) for size in (1000, 1004, 1008))),
        Series("bfloat16 $x$", tuple(Point(size, 0.001, 0.0009, 0.0012) for size in (1000, 1004, 1008))),
    ),
    "now",
)


# measuring


def test_every_point_has_its_median_between_its_quartiles() -> None:
    sweep = measure_plan(plan(Variant("short", sleeping(1)), Variant("long", sleeping(3))), BRIEF, 1, nothing)
    assert [series.label for series in sweep.series] == ["short", "long"]
    for series in sweep.series:
        assert [point.size for point in series.points] == [1, 4]
        assert all(0 < point.low <= point.seconds <= point.high for point in series.points)
    short, long = (series.points for series in sweep.series)
    assert short[0].seconds >= 0.001
    assert long[1].seconds >= 0.012
    assert (sweep.conclusion, sweep.notes, sweep.code) == ("measured", ("a note",), "TL999")


def test_rounds_visit_all_points_and_not_always_in_the_same_order() -> None:
    visits: list[tuple[str, int]] = []

    def visiting(label: str) -> Variant:
        def prepare(size: int) -> Work:
            visits.append((label, size))
            return lambda: time.sleep(0.001)

        return Variant(label, prepare)

    rounds: list[str] = []
    measure_plan(plan(visiting("a"), visiting("b")), BRIEF, 1, rounds.append)
    each = [visits[start : start + 4] for start in range(0, len(visits), 4)]
    assert len(each) == len(rounds) == 3
    assert all(sorted(order) == [("a", 1), ("a", 4), ("b", 1), ("b", 4)] for order in each)
    assert len({tuple(order) for order in each}) > 1


def test_a_variant_that_the_device_cannot_run_becomes_a_note() -> None:
    def impossible(size: int) -> Work:
        raise RuntimeError("no kernel for float16\nand much more")

    sweep = measure_plan(plan(Variant("float16", impossible), Variant("short", sleeping(1))), BRIEF, 1, nothing)
    assert [series.label for series in sweep.series] == ["short"]
    assert sweep.notes == ("a note", "float16 was not measured: no kernel for float16")
    assert measure_plan(plan(Variant("float16", impossible)), BRIEF, 1, nothing).conclusion == ""


def test_threads_are_those_that_were_asked_for() -> None:
    seen: set[int] = set()
    work = Variant("threads", lambda size: lambda: seen.add(torch.get_num_threads()))
    before = torch.get_num_threads()
    measure_plan(plan(work), BRIEF, 1, nothing)
    assert 1 in seen
    assert torch.get_num_threads() == before


def test_an_unknown_sweep_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        measure_sweep("nothing", "cpu", threads=1, progress=nothing)


def test_growing_a_tensor_costs_more_than_one_cat() -> None:
    sweep = measure_sweep("cat-length", "cpu", threads=1, quick=True, progress=nothing)
    loop, once = (series.points for series in sweep.series)
    assert loop[-1].size == once[-1].size == 32
    assert loop[-1].seconds > once[-1].seconds
    assert "with 32 batches" in sweep.conclusion


def test_the_workers_are_none_to_as_many_as_there_are_cores() -> None:
    plan = SWEEPS["loader-workers"]("cpu", True)
    assert plan.sizes[:2] == (0, 1)
    assert max(plan.sizes) <= max(usable_cores(), 1)
    for variant in plan.variants:
        assert variant.prepare(0)() == 4  # 64 items in batches of 16


def test_the_widths_lie_on_both_sides_of_multiples_of_eight_for_each_dtype() -> None:
    quick, full = (SWEEPS["matmul-dims"]("cpu", short) for short in (True, False))
    assert [variant.label for variant in full.variants] == ["float32", "bfloat16", "float16"]
    assert full.sizes == tuple(range(1000, 1033))
    assert {size % 8 for size in quick.sizes} == {0, 4}
    assert set(quick.sizes) < set(full.sizes)
    for variant in full.variants:
        result = variant.prepare(1001)()
        assert isinstance(result, torch.Tensor)
        assert (result.shape[1], str(result.dtype)) == (1001, f"torch.{variant.label}")


def test_conclusions_are_made_of_the_measured_times() -> None:
    points = (Point(1000, 1.0, 1, 1), Point(1001, 1.5, 1, 2), Point(1008, 1.0, 1, 1))
    assert "1.50 times as long in float32" in SWEEPS["matmul-dims"]("cpu", True).conclude([Series("float32", points)])
    workers = [
        Series("work", (Point(0, 2.0, 2, 2), Point(2, 0.5, 0.5, 0.5))),
        Series("memory", (Point(0, 1.0, 1, 1), Point(2, 3.0, 3, 3))),
    ]
    said = SWEEPS["loader-workers"]("cpu", True).conclude(workers)
    assert said == "work: fastest with 2, in 0.25 of the time; memory: no number of workers is faster than none."


# drawing


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_a_plot_is_an_svg_that_says_what_it_shows(theme: Theme) -> None:
    text = drawn(SWEEP, theme)
    for label in (SWEEP.title, "width [elements]", "float32", "bfloat16 $x$", "median time of one call [ms]", "1004"):
        assert label in text


def test_a_plot_is_a_png_in_the_colors_of_its_theme() -> None:
    for theme in (LIGHT, DARK):
        with Image.open(io.BytesIO(draw_sweep(SWEEP, theme, "png"))) as image:
            assert image.format == "PNG"
            assert image.width > 800
            assert image.height > 400
            assert "#{:02x}{:02x}{:02x}".format(*image.convert("RGB").getpixel((3, 3))) == theme.background
            colors = {color for _, color in image.convert("RGB").getcolors(1 << 24) or ()}
            assert tuple(bytes.fromhex(theme.lines[0][1:])) in colors


def test_a_plot_of_the_same_sweep_is_the_same_each_time() -> None:
    assert draw_sweep(SWEEP) == draw_sweep(SWEEP)


def test_no_figure_is_left_for_others_to_find() -> None:
    from matplotlib import pyplot, rcParams

    before = dict(rcParams)
    draw_sweep(SWEEP)
    assert pyplot.get_fignums() == []
    assert dict(rcParams) == before


def test_only_two_formats_are_drawn() -> None:
    with pytest.raises(ValueError, match="svg and png"):
        draw_sweep(SWEEP, LIGHT, "pdf")


@pytest.mark.parametrize(("ratio", "tick"), [(1.02, "1x"), (1.6, "1.5x"), (25.0, "10x")])
def test_ratios_have_their_rule_and_round_ticks(ratio: float, tick: str) -> None:
    timing = Timing((1.0,), (1.0,), ratio, ratio * 0.9, ratio * 1.1, 1.0, 1.0)
    rows = [
        Row("TL101", "sync-in-loop", Verdict.FASTER, "", "now", timing=timing),
        Row("TL301", "loader-without-workers", Verdict.NOT_MEASURED_HERE, "", "now"),
    ]
    root = ElementTree.fromstring(draw_ratios(rows))
    texts = {(element.text or "").strip() for element in root.iter()}
    assert "TL101 sync-in-loop" in texts
    assert tick in texts
    assert not any("TL301" in text for text in texts)
