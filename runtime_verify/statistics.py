"""How sure one may be of a ratio of times, and whether two samples come from one distribution."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

RESAMPLES = 10_000
CONFIDENCE = 0.95


class Interval(NamedTuple):
    """A value with the bounds of its confidence interval."""

    value: float
    low: float
    high: float


def ratio_of_medians(before: Sequence[float], after: Sequence[float], seed: int = 0) -> Interval:
    """median(before) / median(after) with its percentile bootstrap interval at `CONFIDENCE`.

    `before[i]` and `after[i]` are one pair and are drawn together, so that what slowed both does not widen the
    interval. Raises ValueError for samples that are empty or of different lengths.
    """
    if not before or len(before) != len(after):
        raise ValueError(f"pairs are wanted, not {len(before)} and {len(after)} times")
    draw = random.Random(seed)
    pairs = range(len(before))
    ratios = []
    for _ in range(RESAMPLES):
        chosen = draw.choices(pairs, k=len(before))
        ratios.append(median([before[i] for i in chosen]) / median([after[i] for i in chosen]))
    ratios.sort()
    tail = (1 - CONFIDENCE) / 2
    low, high = ratios[math.floor(tail * (RESAMPLES - 1))], ratios[math.ceil((1 - tail) * (RESAMPLES - 1))]
    return Interval(median(before) / median(after), low, high)


def same_distribution(first: Sequence[float], second: Sequence[float]) -> float:
    """The probability of a difference as large as this one if both samples came from one distribution.

    The two-sample Kolmogorov-Smirnov test, with the asymptotic distribution (Smirnov 1948) at the effective size that
    Stephens (1970) gives for small samples.
    """
    ordered = sorted(first), sorted(second)
    points = (*ordered[0], *ordered[1])
    distance = max(
        abs(bisect_right(ordered[0], x) / len(first) - bisect_right(ordered[1], x) / len(second)) for x in points
    )
    size = math.sqrt(len(first) * len(second) / (len(first) + len(second)))
    scaled = (size + 0.12 + 0.11 / size) * distance
    if scaled < 0.2:
        return 1.0  # the series converges slowly there, and its sum is 1 to within rounding
    series: float = sum((-1) ** (k - 1) * math.exp(-2 * (k * scaled) ** 2) for k in range(1, 101))
    return min(max(2 * series, 0.0), 1.0)
