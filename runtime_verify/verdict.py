"""From the evidence of a row to its verdict, which is never better than the evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .records import Failure, FailureKind, Measurement, Timing, Unit, Values, Verdict
from .reports.wording import mechanism

if TYPE_CHECKING:
    from collections.abc import Sequence

WORTH_IT = 0.03
"""The least gain that is called one, and the least loss."""

_NOISE_OF_SECONDS = 0.10
"""Seconds that were waited differ from run to run; counts and bytes do not."""


class Judgement(NamedTuple):
    """A verdict, the sentence that says why, and what failed."""

    verdict: Verdict
    reason: str
    failure: Failure | None = None


def judge(
    values: Values | None,
    measurements: Sequence[Measurement],
    timing: Timing,
    claims_something: bool,
) -> Judgement:
    """The verdict on a fix whose two versions both ran to their end. `values` is None where none are to be compared."""
    if values is not None and not values.same:
        names = ", ".join(deviation.name for deviation in values.deviations[:3])
        return Judgement(Verdict.DIFFERS, f"before and after do not compute the same: {names}")
    if claims_something and (failure := _unshown(measurements)) is not None:
        return Judgement(Verdict.FAILED, failure.message, failure)
    return _judge_gain(measurements, timing, claims_something)


def moved(measurement: Measurement) -> bool:
    """Whether a counter fell by more than its noise."""
    if measurement.unit is Unit.SECONDS:
        return measurement.after < measurement.before * (1 - _NOISE_OF_SECONDS)
    return measurement.fell


def _unshown(measurements: Sequence[Measurement]) -> Failure | None:
    """What the rule claims and the counters do not show; None where they show all of it."""
    claimed = [measurement for measurement in measurements if measurement.claimed]
    if not claimed:
        return Failure(FailureKind.MECHANISM, "nothing of what the rule claims to remove was counted")
    unmoved = [measurement for measurement in claimed if not moved(measurement)]
    if not unmoved:
        return None
    shown = "; ".join(map(mechanism, unmoved))
    return Failure(FailureKind.MECHANISM, f"the fix does not remove what the rule claims ({shown})")


def _judge_gain(measurements: Sequence[Measurement], timing: Timing, claims_something: bool) -> Judgement:
    interval = f"{timing.ratio:.2f}x ({timing.low:.2f}-{timing.high:.2f})"
    if timing.low > 1 and timing.ratio >= 1 + WORTH_IT:
        return Judgement(Verdict.FASTER, f"the time for one run fell, {interval}")
    if timing.high < 1 and timing.ratio <= 1 / (1 + WORTH_IT):
        return Judgement(Verdict.SLOWER, f"the time for one run rose, {interval}")
    if timing.low < 1 / (1 + WORTH_IT):
        return Judgement(Verdict.INCONCLUSIVE, f"the times vary too much to rule out a loss, {interval}")
    if claims_something or _memory_fell(measurements):
        what = "what the rule claims" if claims_something else "peak memory"
        return Judgement(Verdict.LEANER, f"{what} fell, the time did not, {interval}")
    if timing.high <= 1 + WORTH_IT:
        return Judgement(Verdict.NO_GAIN, f"the time is the same within {WORTH_IT:.0%}, {interval}")
    return Judgement(Verdict.INCONCLUSIVE, f"the times vary too much to tell, {interval}")


def _memory_fell(measurements: Sequence[Measurement]) -> bool:
    return any(m.counter == "peak_memory" and m.after <= m.before * (1 - WORTH_IT) for m in measurements)
