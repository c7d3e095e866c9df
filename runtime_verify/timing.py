"""The times of two versions, measured in turn so that whatever else the machine does meets both."""

from __future__ import annotations

import math
import time
from statistics import median
from typing import TYPE_CHECKING

from . import messages
from .records import Timing
from .statistics import CONFIDENCE, ratio_of_medians

if TYPE_CHECKING:
    from .children import Children

PAIRS = 30
QUICK_PAIRS = 8

_WARM_UP_SECONDS = 0.5
_SECONDS_FOR_ONE = 0.05
"""A single time of the slower version takes at least this long, by way of more runs: timers have their own noise."""

_MOST_RUNS = 200


def time_pairs(before: Children, after: Children, pairs: int, seed: int) -> Timing:
    """Time both versions `pairs` times each, in turn, the first of each pair changing. Raises WorkloadError."""
    for version in (before, after):
        version.ask(messages.SetUp(seed), messages.Done)
    number = _runs_for_one_time(before, after)
    for version in (before, after):
        _warm_up(version, number)
    times: tuple[list[float], list[float]] = ([], [])
    for pair in range(pairs):
        versions = [(before, times[0]), (after, times[1])]
        for version, seconds in versions if pair % 2 == 0 else reversed(versions):
            seconds.append(version.ask(messages.Time(number), messages.Timed).seconds)
    return summarize(*times, seed)


def _warm_up(version: Children, number: int) -> None:
    """Run for a while. How often is decided here: processes of one group have to run equally often."""
    end = time.monotonic() + _WARM_UP_SECONDS
    while time.monotonic() < end:
        version.ask(messages.Time(number), messages.Timed)


def summarize(before: list[float], after: list[float], seed: int = 0) -> Timing:
    """Times with their ratio and its interval."""
    ratio = ratio_of_medians(before, after, seed)
    return Timing(
        before=tuple(before),
        after=tuple(after),
        ratio=ratio.value,
        low=ratio.low,
        high=ratio.high,
        median_before=median(before),
        median_after=median(after),
        confidence=CONFIDENCE,
    )


def _runs_for_one_time(before: Children, after: Children) -> int:
    """How many runs one time is taken over: the same number for both."""
    slower = max(version.ask(messages.Time(1), messages.Timed).seconds for version in (before, after))
    return min(max(math.ceil(_SECONDS_FOR_ONE / max(slower, 1e-9)), 1), _MOST_RUNS)
