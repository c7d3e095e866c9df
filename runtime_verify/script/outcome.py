"""What the runs of a script showed, as records: the form in which a report is rendered and stored."""

from __future__ import annotations

import msgspec

from ..records import Environment, Verdict
from .fixes import Fix


class Ratio(msgspec.Struct, frozen=True):
    """A quantity before and after; `ratio` is before / after, between `low` and `high` at the level `confidence`."""

    before: float
    after: float
    ratio: float
    low: float
    high: float
    confidence: float = 0.95

    def __str__(self) -> str:
        return f"{self.ratio:.3g}x ({self.low:.3g} to {self.high:.3g})"


class Losses(msgspec.Struct, frozen=True):
    """The loss curves before and after: the values that a backward was called on, one after another.

    `largest` is the largest relative difference at one point, `noise` the largest between runs of the original, and
    `tolerance` the one up to which two curves agree. `streams` names the random generators that end up in another state
    than before: their numbers were drawn in another order, and points cannot be compared one by one. `p_value` is then
    that of the two-sample Kolmogorov-Smirnov test. `note` is a sentence that says what was found.
    """

    before: tuple[float, ...]
    after: tuple[float, ...]
    agree: bool
    note: str
    largest: float = 0.0
    noise: float = 0.0
    tolerance: float = 0.0
    streams: tuple[str, ...] = ()
    p_value: float | None = None


class Comparison(msgspec.Struct, frozen=True):
    """One version against the original.

    `step` is of the median time per step, `whole` of the time from the first timed step to the end of the last one over
    the number of steps, with evaluations and epochs' ends in between; seconds. `syncs` are means per step, `memory` is
    peak bytes; both are None where they were not measured. `output` is the tail of a failed run's output.
    """

    version: str
    verdict: Verdict
    reason: str
    fixes: tuple[Fix, ...] = ()
    step: Ratio | None = None
    whole: Ratio | None = None
    syncs: tuple[float, float] | None = None
    memory: Ratio | None = None
    losses: Losses | None = None
    pairs: int = 0
    failure: str = ""
    output: str = ""
    notes: tuple[str, ...] = ()


class Report(msgspec.Struct, frozen=True):
    """One `torchlint verify --script`: what was run, where, and what it showed.

    `script` is relative to the project. `boundary` says what ends a step, `clock` what took the times, `memory` which
    memory's peak was taken. `comparison` is of all fixes together; `parts` are those of `--bisect`. `idle` are fixes in
    files that the script does not import.
    """

    script: str
    arguments: tuple[str, ...]
    comparison: Comparison
    parts: tuple[Comparison, ...] = ()
    idle: tuple[Fix, ...] = ()
    boundary: str = ""
    clock: str = ""
    memory: str = ""
    device: str = ""
    steps: int = 0
    warmup: int = 0
    seed: int = 0
    measured: str = ""
    environment: Environment | None = None
    notes: tuple[str, ...] = ()
