"""What a row says, in words and numbers with units, the same in every format. The texts are not escaped."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from torchlint.reports.summary import counted

from ..records import Unit, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..records import Environment, Failure, Measurement, Row, Series, Sighting, Sweep, Timing, Values

MEANINGS = {
    Verdict.FASTER: "The whole interval of the ratio lies above 1, and the gain is 3 % or more.",
    Verdict.LEANER: "What the rule claims to remove, or the peak memory, fell; the time neither rose by 3 % nor fell.",
    Verdict.NO_GAIN: "The time is the same to within 3 %, and nothing else fell.",
    Verdict.SLOWER: "The whole interval of the ratio lies below 1, and the loss is 3 % or more.",
    Verdict.INCONCLUSIVE: "The times vary too much to tell, or to rule out a loss.",
    Verdict.DIFFERS: "Outputs, losses, gradients or parameters are not the same after the fix.",
    Verdict.NOT_MEASURED_HERE: "It takes a device that is not here, such as a GPU or a second one.",
    Verdict.FAILED: "The workload did not finish, or the fix did not remove what the rule claims that it removes.",
}
"""What each verdict means, for a legend."""


def summary(rows: Sequence[Row]) -> str:
    """ "12 rows: 5 faster, 4 leaner, 3 no gain"."""
    counts = [(verdict, sum(row.verdict is verdict for row in rows)) for verdict in Verdict]
    parts = ", ".join(f"{count} {verdict.value}" for verdict, count in counts if count)
    return counted(len(rows), "row") + (f": {parts}" if parts else "")


def environment(place: Environment) -> Iterator[tuple[str, str]]:
    """What is known of where the rows were measured, as pairs of a name and a value."""
    yield "device", f"{place.device} ({place.device_name})" if place.device_name else place.device
    if place.gpus:
        yield "GPUs", str(place.gpus)
    yield "torch", place.torch
    optional = (("CUDA", place.cuda), ("cuDNN", place.cudnn), ("driver", place.driver))
    yield from ((name, value) for name, value in optional if value)
    yield "CPU", place.cpu
    yield "cores and threads", f"{counted(place.cores, 'core')}, {counted(place.threads, 'thread')}"
    yield "Python", place.python
    yield "platform", place.platform
    yield "torchlint", place.torchlint + (f" (commit {place.commit})" if place.commit else "")


def title(row: Row) -> str:
    """ "TL101 sync-in-loop"."""
    return f"{row.code} {row.name}".strip()


def ratio(timing: Timing | None) -> str:
    """ "1.34x (1.30 to 1.38)": how many times faster, with the interval."""
    return f"{timing.ratio:.3g}x ({timing.low:.3g} to {timing.high:.3g})" if timing is not None else ""


def times(timing: Timing | None) -> str:
    """ "12.1 ms to 9.03 ms, 30 pairs"."""
    if timing is None:
        return ""
    before, after = seconds(timing.median_before), seconds(timing.median_after)
    return f"{before} to {after}, {counted(timing.pairs, 'pair')}"


def mechanism(measurement: Measurement) -> str:
    """ "host syncs 40 to 1"."""
    return f"{measurement.label} {' to '.join(before_after(measurement))}"


def before_after(measurement: Measurement) -> tuple[str, str]:
    """Both amounts, with all their digits where fewer would not tell them apart."""
    before, after = (amount(value, measurement.unit) for value in (measurement.before, measurement.after))
    if before == after and measurement.before != measurement.after and measurement.unit is Unit.BYTES:
        return f"{measurement.before:,.0f} B", f"{measurement.after:,.0f} B"
    return before, after


def claimed(row: Row) -> str:
    """What the rule claims to remove, counted before and after."""
    return "; ".join(map(mechanism, row.claimed))


def values(compared: Values | None) -> str:
    """ "same, bit for bit (12 compared)"."""
    if compared is None:
        return ""
    policy = compared.policy.value
    if compared.rtol or compared.atol:
        policy += f" (rtol {compared.rtol:g}, atol {compared.atol:g})"
    if compared.same:
        return f"same, {policy}, {compared.compared} compared"
    differing = len(compared.deviations)
    return f"{differing} of {compared.compared} differ, by up to {compared.largest:.3g}; compared {policy}"


def failure(failed: Failure) -> str:
    """ "timed out, before the fix: no result within 60 s"."""
    version = f", {failed.version} the fix" if failed.version else ""
    return f"{failed.kind.value}{version}: {failed.message}"


def fix(row: Row) -> str:
    """ "safe fix by torchlint"."""
    who = "by hand, since the rule has no fix" if row.fixed_by == "hand" else f"by {row.fixed_by}"
    return f"{row.safety} fix {who}".strip()


def amount(value: float, unit: Unit) -> str:
    """A number with its unit: "40", "1.5 MiB", "12.1 ms"."""
    if unit is Unit.SECONDS:
        return seconds(value)
    if unit is Unit.BYTES:
        return size(value)
    return f"{value:,.0f}" if math.isfinite(value) and value == int(value) else f"{value:,.1f}"


def seconds(value: float) -> str:
    """ "12.1 ms"."""
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "\u00b5s")):
        if abs(value) >= factor:
            return f"{_digits(value / factor)} {unit}"
    return f"{_digits(value / 1e-9)} ns" if value else "0 s"


def size(value: float) -> str:
    """ "1.5 MiB"."""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if abs(value) >= 1 << power:
            return f"{_digits(value / (1 << power))} {unit}"
    return f"{value:.0f} B"


def _digits(value: float) -> str:
    """Three digits, and never an exponent."""
    return f"{value:.0f}" if abs(value) >= 100 or not math.isfinite(value) else f"{value:.3g}"


def sweep_columns(sweep: Sweep) -> list[str]:
    """The head of a sweep's table: the size, then each variant."""
    return [sweep.size_label, *(series.label for series in sweep.series)]


def sweep_rows(sweep: Sweep) -> Iterator[list[str]]:
    """The sizes of a sweep with the median time of each variant."""
    sizes = sorted({point.size for series in sweep.series for point in series.points})
    for at in sizes:
        yield [f"{at:g}", *(_time_at(series, at) for series in sweep.series)]


def _time_at(series: Series, at: float) -> str:
    return next((seconds(point.seconds) for point in series.points if point.size == at), "")


def agreement(sighting: Sighting) -> str:
    """Who saw it: "both", "linter only", "profiler only", or why one side could not."""
    if sighting.agrees:
        return "both"
    who = "linter only" if sighting.static else "profiler only"
    return f"{who} ({sighting.note})" if sighting.note else who


def disagreements(sightings: Sequence[Sighting]) -> list[Sighting]:
    """Where one side saw what the other could have seen and did not."""
    return [sighting for sighting in sightings if not sighting.agrees and not sighting.note]


def cross_check_summary(sightings: Sequence[Sighting]) -> str:
    """ "5 places seen by both, 2 disagreements, 3 that one side could not see"."""
    both, apart = sum(sighting.agrees for sighting in sightings), len(disagreements(sightings))
    rest = len(sightings) - both - apart
    parts = [f"{counted(both, 'place')} seen by both", counted(apart, "disagreement")]
    if rest:
        parts.append(f"{rest} that one side could not see")
    return ", ".join(parts)
