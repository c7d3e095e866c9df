"""How times depend on sizes, for the rules whose gain a size decides.

Every point is measured with `torch.utils.benchmark`, in several rounds, each of which visits the points in another
order: what slows the machine down for a while widens intervals, and does not look like an effect of one size.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from statistics import median, quantiles
from typing import Any

import torch
from torch.nn.functional import avg_pool2d, linear
from torch.utils.benchmark import Timer
from torch.utils.data import DataLoader, Dataset, TensorDataset

from .environment import usable_cores
from .records import Point, Series, Sweep

Work = Callable[[], object]
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Variant:
    """One line of the plot: `prepare` makes the work for a size, which is then called again and again."""

    label: str
    prepare: Callable[[int], Work]


@dataclass(frozen=True)
class Plan:
    """What is to be measured. `conclude` says in a sentence what the lines show; `notes` are sentences about how."""

    name: str
    code: str
    title: str
    size_label: str
    sizes: tuple[int, ...]
    variants: tuple[Variant, ...]
    conclude: Callable[[Sequence[Series]], str]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Effort:
    """How long to measure: so many rounds over all points, at least so many seconds for each point in each round."""

    rounds: int
    seconds: float


FULL = Effort(rounds=7, seconds=0.1)
QUICK = Effort(rounds=3, seconds=0.01)


def measure_sweep(name: str, device: str, *, threads: int, quick: bool = False, progress: Progress) -> Sweep:
    """One of `SWEEPS`, measured on a device. `progress` is told the name of each round.

    A variant that the device cannot run becomes a note. Raises KeyError for a name that there is not.
    """
    return measure_plan(SWEEPS[name](device, quick), QUICK if quick else FULL, threads, progress)


def measure_plan(plan: Plan, effort: Effort, threads: int, progress: Progress) -> Sweep:
    """Measure every point of a plan."""
    times: dict[tuple[str, int], list[float]] = {}
    failures: dict[str, str] = {}
    points = [(variant, size) for variant in plan.variants for size in plan.sizes]
    order = random.Random(plan.name)
    for number in range(effort.rounds):
        progress(f"{plan.name}, round {number + 1} of {effort.rounds}")
        order.shuffle(points)
        for variant, size in points:
            if variant.label in failures:
                continue
            try:
                times.setdefault((variant.label, size), []).extend(_time(variant.prepare(size), effort, threads))
            except (RuntimeError, NotImplementedError, MemoryError) as error:
                failures[variant.label] = f"{variant.label} was not measured: {str(error).partition(chr(10))[0]}"
    series = tuple(
        Series(variant.label, tuple(_point(size, times[variant.label, size]) for size in plan.sizes))
        for variant in plan.variants
        if variant.label not in failures
    )
    return Sweep(
        name=plan.name,
        code=plan.code,
        title=plan.title,
        size_label=plan.size_label,
        series=series,
        measured=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        conclusion=plan.conclude(series) if series else "",
        notes=(*plan.notes, *failures.values()),
    )


def _time(work: Work, effort: Effort, threads: int) -> list[float]:
    """Seconds for one call, several times; the first call is not among them."""
    work()
    timer = Timer("work()", globals={"work": work}, num_threads=threads)
    return list(timer.blocked_autorange(min_run_time=effort.seconds).times)


def _point(size: int, seconds: Sequence[float]) -> Point:
    """The median and the quartiles of all rounds."""
    low, middle, high = quantiles(seconds, n=4, method="inclusive") if len(seconds) > 1 else [seconds[0]] * 3
    return Point(size, middle, low, high)


# dimensions around multiples of 8


def _matmul_dims(device: str, quick: bool) -> Plan:
    rows = 4096 if device == "cuda" else 32
    dtypes = (torch.float32, torch.bfloat16, torch.float16)
    return Plan(
        name="matmul-dims",
        code="TL502",
        title="A linear layer whose width is around multiples of 8",
        size_label="width (in_features and out_features)",
        sizes=tuple(range(1000, 1033, 4 if quick else 1)),
        variants=tuple(Variant(str(dtype).removeprefix("torch."), _product(device, rows, dtype)) for dtype in dtypes),
        conclude=_aligned_or_not,
        notes=(f"{rows} rows in each batch, forward only, without a bias",),
    )


def _product(device: str, rows: int, dtype: torch.dtype) -> Callable[[int], Work]:
    def prepare(width: int) -> Work:
        inputs = torch.randn(rows, width, device=device).to(dtype)
        weight = torch.randn(width, width, device=device).to(dtype)
        return lambda: linear(inputs, weight)

    return prepare


def _aligned_or_not(series: Sequence[Series]) -> str:
    """How much longer the widths take that are no multiples of 8."""
    parts = []
    for line in series:
        aligned = median(point.seconds for point in line.points if point.size % 8 == 0)
        others = median(point.seconds for point in line.points if point.size % 8)
        parts.append(f"{others / aligned:.2f} times as long in {line.label}")
    return f"Widths that are no multiple of 8 take, by the median, {', '.join(parts)}."


# concatenation in a loop


def _cat_length(device: str, quick: bool) -> Plan:
    sizes = (2, 8, 32) if quick else (2, 4, 8, 16, 32, 64, 128, 256, 512)
    return Plan(
        name="cat-length",
        code="TL203",
        title="Collecting batches: torch.cat in the loop, or once after it",
        size_label="batches",
        sizes=sizes,
        variants=(Variant("cat in the loop", _growing(device)), Variant("list, then one cat", _collected(device))),
        conclude=_loop_or_once,
        notes=("each batch is a float32 tensor of 64 by 128",),
    )


def _batches(device: str, count: int) -> list[torch.Tensor]:
    return [torch.randn(64, 128, device=device) for _ in range(count)]


def _growing(device: str) -> Callable[[int], Work]:
    def prepare(count: int) -> Work:
        batches = _batches(device, count)

        def work() -> torch.Tensor:
            collected = torch.empty(0, 128, device=device)
            for batch in batches:
                collected = torch.cat((collected, batch))
            return collected

        return work

    return prepare


def _collected(device: str) -> Callable[[int], Work]:
    def prepare(count: int) -> Work:
        batches = _batches(device, count)

        def work() -> torch.Tensor:
            collected = []
            for batch in batches:
                collected.append(batch)  # noqa: PERF402 - the loop is what is measured
            return torch.cat(collected)

        return work

    return prepare


def _loop_or_once(series: Sequence[Series]) -> str:
    if len(series) < 2:
        return ""
    loop, once = (line.points for line in series)
    few, many = loop[0].seconds / once[0].seconds, loop[-1].seconds / once[-1].seconds
    return (
        f"With {loop[0].size:g} batches the cat in the loop takes {few:.3g} times as long, "
        f"with {loop[-1].size:g} batches {many:.3g} times."
    )


# workers of a DataLoader


class _Pictures(Dataset[torch.Tensor]):
    """Items that take some work to make, as decoding and augmenting a picture does."""

    def __init__(self, items: int) -> None:
        self._items = items

    def __len__(self) -> int:
        return self._items

    def __getitem__(self, index: int) -> torch.Tensor:
        picture = torch.full((1, 3, 256, 256), float(index)).sin()
        for _ in range(4):
            picture = picture.flip(-1).mul(0.9).add(0.1)
        return avg_pool2d(picture, 4)[0]


def _loader_workers(device: str, quick: bool) -> Plan:
    most = usable_cores()
    workers = [0, *(count for count in (1, 2, 4, 8, 16) if count <= most)]
    items = 64 if quick else 512
    return Plan(
        name="loader-workers",
        code="TL301",
        title="An epoch of a DataLoader by its number of workers",
        size_label="num_workers",
        sizes=tuple(workers),
        variants=(
            Variant("items that take work", lambda count: _epoch(_Pictures(items), count)),
            Variant("tensors in memory", lambda count: _epoch(TensorDataset(torch.randn(items, 3, 64, 64)), count)),
        ),
        conclude=_best_count,
        notes=(
            f"{items} items in batches of 16; starting the workers is part of each epoch",
            f"this process may use {most} core{'' if most == 1 else 's'}; nothing else is done with the batches",
        ),
    )


def _epoch(dataset: Dataset[Any], workers: int) -> Work:
    loader = DataLoader(dataset, batch_size=16, num_workers=workers)
    return lambda: sum(1 for _ in loader)


def _best_count(series: Sequence[Series]) -> str:
    """Which number of workers was the fastest, and how it compares with none."""
    parts = []
    for line in series:
        none, best = line.points[0], min(line.points, key=lambda point: point.seconds)
        if best.size == 0:
            parts.append(f"{line.label}: no number of workers is faster than none")
        else:
            parts.append(f"{line.label}: fastest with {best.size:g}, in {best.seconds / none.seconds:.2f} of the time")
    return "; ".join(parts) + "."


SWEEPS: dict[str, Callable[[str, bool], Plan]] = {
    "matmul-dims": _matmul_dims,
    "cat-length": _cat_length,
    "loader-workers": _loader_workers,
}
"""Every sweep by its name: a function from the device and whether to be quick to the plan."""
