"""From the runs of two versions to a verdict: how long, how lean, and whether the loss is the same."""

from __future__ import annotations

import math
import random
from statistics import NormalDist, fmean, geometric_mean, median
from typing import TYPE_CHECKING

from torchlint.reports.summary import counted

from ..records import Verdict
from ..statistics import same_distribution
from ..verdict import WORTH_IT
from .outcome import Comparison, Losses, Ratio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from .exchange import Observed
    from .fixes import Fix
    from .run import Measured, Run

RELATIVE_TOLERANCE = 1e-3
"""Losses of 50 steps that differ by no more agree: rounding in another order grows from step to step."""
_SMALLEST_LOSS = 1e-6
# With fewer, chance alone orders all pairs one way more often than in 1 of 20 (sign test, both sides).
LEAST_PAIRS = 6
_BUSY = 1.2
_RESAMPLES = 4_000
_UNLIKELY = 0.01

# Student's t for 97.5 % by degrees of freedom (any table of the distribution).
_T = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228, 15: 2.131}
_T |= {20: 2.086, 30: 2.042, 60: 2.0}


def compare(original: Measured, other: Measured, fixes: tuple[Fix, ...]) -> Comparison:
    """Judge a version against the original, which ran to its end."""
    name = other.version.name
    if other.failure:
        reason = f"the original ran, this version did not: {other.failure}"
        return Comparison(name, Verdict.DIFFERS, reason, fixes, failure=other.failure, output=other.failed_run.output)
    pairs = [(_seen(a), _seen(b)) for a, b in zip(original.timed, other.timed, strict=True)]
    before, after = [a for a, _ in pairs], [b for _, b in pairs]
    losses = compare_losses(before, after)
    comparison = Comparison(
        version=name,
        verdict=Verdict.INCONCLUSIVE,
        reason="",
        fixes=fixes,
        step=ratio([(a.durations, b.durations) for a, b in pairs], median),
        whole=ratio([((_per_step(a),), (_per_step(b),)) for a, b in pairs], fmean),
        syncs=_syncs(original.survey, other.survey),
        memory=_memory(pairs),
        losses=losses,
        pairs=len(pairs),
        notes=tuple(dict.fromkeys(_notes(original, other))),
    )
    verdict, reason, output = _judge(comparison, original, other)
    return _with(comparison, verdict=verdict, reason=reason, output=output)


def _with(comparison: Comparison, **changes: object) -> Comparison:
    import msgspec

    return msgspec.structs.replace(comparison, **changes)


def _seen(run: Run) -> Observed:
    assert run.observed is not None
    return run.observed


def _per_step(seen: Observed) -> float:
    return seen.elapsed / len(seen.durations)


# Time


def ratio(
    pairs: Sequence[tuple[Sequence[float], Sequence[float]]], typical: Callable[[Sequence[float]], float], seed: int = 0
) -> Ratio:
    """How much less the typical value is after than before, over pairs of runs that were made one after the other.

    The ratio is the geometric mean over pairs. Its interval is a bootstrap over pairs and, within each, over steps. A
    percentile interval of so few pairs is too narrow: its tails are cut where Hesterberg (2015, "What Teachers Should
    Know About the Bootstrap", section 4.5.3, the expanded percentile interval) would.
    """
    draw = random.Random(seed)
    point = geometric_mean([typical(a) / typical(b) for a, b in pairs])
    samples = []
    for _ in range(_RESAMPLES):
        logs = 0.0
        for a, b in draw.choices(pairs, k=len(pairs)):
            logs += math.log(typical(_resampled(draw, a)) / typical(_resampled(draw, b)))
        samples.append(math.exp(logs / len(pairs)))
    samples.sort()
    tail = _expanded_tail(len(pairs))
    low, high = samples[math.floor(tail * (_RESAMPLES - 1))], samples[math.ceil((1 - tail) * (_RESAMPLES - 1))]
    if len(pairs) < 2:
        low, high = 0.0, math.inf  # one pair says nothing of how much pairs differ
    befores, afters = [typical(a) for a, _ in pairs], [typical(b) for _, b in pairs]
    return Ratio(median(befores), median(afters), point, min(low, point), max(high, point))


def _resampled(draw: random.Random, values: Sequence[float]) -> Sequence[float]:
    return draw.choices(values, k=len(values)) if len(values) > 1 else values


def _expanded_tail(pairs: int) -> float:
    if pairs < 2:
        return 0.0
    degrees = max(known for known in _T if known <= pairs - 1)
    return NormalDist().cdf(-math.sqrt(pairs / (pairs - 1)) * _T[degrees])


# Synchronizations and memory


def _syncs(before: Run, after: Run) -> tuple[float, float] | None:
    first, second = _seen(before).syncs, _seen(after).syncs
    return (fmean(first), fmean(second)) if first and second else None


def _memory(pairs: Sequence[tuple[Observed, Observed]]) -> Ratio | None:
    if not all(a.peak_bytes and b.peak_bytes for a, b in pairs):
        return None
    return ratio([((a.peak_bytes,), (b.peak_bytes,)) for a, b in pairs], fmean)


# Losses


def compare_losses(before: Sequence[Observed], after: Sequence[Observed]) -> Losses:
    """Whether the curves are the same, point by point or, where random numbers came in another order, as wholes."""
    first, second = before[0].losses, after[0].losses
    if not first and not second:
        return Losses((), (), True, "no backward was called: there is no loss to compare")
    if not first or not second:
        return Losses(first, second, False, "a backward was called in one version only")
    common = min(len(first), len(second))  # a run that ends when its time is up may have made fewer steps
    nan = _bad_points(first[:common]), _bad_points(second[:common])
    if nan[0] != nan[1]:
        counts = f"{len(nan[0])} points before, {len(nan[1])} after"
        return Losses(first, second, False, f"the loss is not a finite number at different points: {counts}")
    largest, noise = _largest(first, second), max((_largest(first, run.losses) for run in before[1:]), default=0.0)
    tolerance = max(RELATIVE_TOLERANCE, 2 * noise)
    streams = _changed_streams(before, after)
    if _identical(first, second):
        return Losses(first, second, True, "the loss curves are the same, bit for bit", 0.0, noise, tolerance, streams)
    if largest <= tolerance:
        spread = f"; the original alone differs by {noise:.1e} from run to run" if noise > RELATIVE_TOLERANCE else ""
        note = f"the loss curves agree: they differ by {largest:.1e} at most, the tolerance is {tolerance:.1e}{spread}"
        return Losses(first, second, True, note, largest, noise, tolerance, streams)
    if not streams:
        note = f"the loss curves differ by up to {largest:.1e}, the tolerance is {tolerance:.1e}"
        return Losses(first, second, False, note, largest, noise, tolerance)
    probability = same_distribution(first, second)
    agree = probability >= _UNLIKELY
    note = (
        f"random numbers come in another order ({', '.join(streams)}), so the loss curves cannot be compared point by "
        f"point; as wholes they {'agree' if agree else 'differ'} (Kolmogorov-Smirnov p = {probability:.2g})"
    )
    return Losses(first, second, agree, note, largest, noise, tolerance, streams, probability)


def _bad_points(losses: Sequence[float]) -> tuple[int, ...]:
    return tuple(number for number, loss in enumerate(losses) if not math.isfinite(loss))


def _identical(first: Sequence[float], second: Sequence[float]) -> bool:
    return len(first) == len(second) and all(
        a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(first, second, strict=True)
    )


def _largest(first: Sequence[float], second: Sequence[float]) -> float:
    """The largest relative difference of two curves where both go on; what is next to 0 counts as 0."""
    differences = [
        abs(a - b) / max(abs(a), abs(b))
        for a, b in zip(first, second, strict=False)
        if math.isfinite(a) and math.isfinite(b) and abs(a - b) > _SMALLEST_LOSS
    ]
    return max(differences, default=0.0)


def _changed_streams(before: Sequence[Observed], after: Sequence[Observed]) -> tuple[str, ...]:
    """The random generators whose end state the fixes changed, or that end differently from run to run anyway."""

    def ends(runs: Sequence[Observed], name: str) -> set[str | None]:
        return {run.streams.get(name) for run in runs}

    names = before[0].streams.keys() & after[0].streams.keys()
    return tuple(sorted(name for name in names if ends(before, name) != ends(after, name)))


# The verdict


def _judge(found: Comparison, original: Measured, other: Measured) -> tuple[Verdict, str, str]:
    """The verdict, why, and the output that shows it."""
    assert found.losses is not None
    assert found.step is not None
    assert found.whole is not None
    printed = [any(run.prints_nan for run in (m.survey, *m.timed)) for m in (original, other)]
    if printed[0] != printed[1]:
        guilty = original if printed[0] else other
        run = next(run for run in (guilty.survey, *guilty.timed) if run.prints_nan)
        return Verdict.DIFFERS, f"the script prints NaN in one version only: {guilty.version.name}", run.output
    if not found.losses.agree:
        return Verdict.DIFFERS, found.losses.note, other.timed[0].output
    if _seen(original.survey).boundary is not _seen(other.survey).boundary:
        return Verdict.INCONCLUSIVE, "the two versions' steps are not of the same kind", ""
    if astray := _not_run(found.fixes, other):
        return Verdict.INCONCLUSIVE, f"fixed files were imported from the original, not from the copy: {astray}", ""
    if found.pairs < LEAST_PAIRS:
        return (
            Verdict.INCONCLUSIVE,
            f"{counted(found.pairs, 'pair')} of runs: too few to tell, at least {LEAST_PAIRS} are needed (--pairs)",
            "",
        )
    return (*_judge_gain(found, found.step, found.whole), "")


def _judge_gain(found: Comparison, step: Ratio, whole: Ratio) -> tuple[Verdict, str]:
    times = (("the median step", step), ("the whole run", whole))
    faster = [f"{what}: {r}" for what, r in times if r.low > 1 and r.ratio >= 1 + WORTH_IT]
    slower = [f"{what}: {r}" for what, r in times if r.high < 1 and r.ratio <= 1 / (1 + WORTH_IT)]
    if faster and slower:
        return Verdict.INCONCLUSIVE, f"faster by one measure, slower by another: {', '.join(faster + slower)}"
    if slower:
        return Verdict.SLOWER, f"it takes longer: {', '.join(slower)}"
    if faster:
        return Verdict.FASTER, f"it takes less time: {', '.join(faster)}"
    leaner = _leaner(found)
    interval = f"median step {step}, whole run {whole}"
    if any(r.low < 1 / (1 + WORTH_IT) for _, r in times):
        also = f" ({leaner})" if leaner else ""
        return Verdict.INCONCLUSIVE, f"the times vary too much to rule out a loss{also}: {interval}"
    if leaner:
        return Verdict.LEANER, f"{leaner}; the time did not change: {interval}"
    if all(r.high <= 1 + WORTH_IT for _, r in times):
        return Verdict.NO_GAIN, f"the time is the same within {WORTH_IT:.0%}: {interval}"
    return Verdict.INCONCLUSIVE, f"the times vary too much to tell: {interval}"


def _leaner(found: Comparison) -> str:
    """What fell beside the time, in words, or ""."""
    fell = []
    if found.syncs is not None and found.syncs[1] < found.syncs[0]:
        fell.append(f"synchronizations fell from {found.syncs[0]:.3g} to {found.syncs[1]:.3g} per step")
    memory = found.memory
    if memory is not None and memory.low > 1 and memory.ratio >= 1 + WORTH_IT:
        fell.append(f"peak memory fell, {memory}")
    return " and ".join(fell)


def _not_run(fixes: Iterable[Fix], other: Measured) -> str:
    foreign = set(_seen(other.survey).foreign)
    return ", ".join(sorted({fix.file for fix in fixes} & foreign))


def _notes(original: Measured, other: Measured) -> list[str]:
    notes = [note for m in (original, other) for run in (m.survey, *m.timed) for note in run.notes]
    refused = [path for m in (original, other) for path in _seen(m.survey).refused]
    notes += [f"the script was not let write to the original of its project: {path}" for path in refused]
    short = min(_seen(run).steps for m in (original, other) for run in m.timed)
    most = max(_seen(run).steps for m in (original, other) for run in m.timed)
    medians = [median(_seen(run).durations) for run in original.timed]
    if max(medians) > _BUSY * min(medians):
        spread = f"{min(medians) * 1e3:.3g} to {max(medians) * 1e3:.3g} ms"
        notes.append(f"this machine is busy, or its clock changes: the original's median step took {spread} by run")
    if short < most:
        notes.append(f"the runs made between {short} and {most} steps; times are per step")
    return notes
