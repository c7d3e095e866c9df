"""What a verification measured, as frozen records: the form in which rows are stored, read and rendered.

Times are seconds, sizes are bytes, dates are UTC in ISO 8601. Nothing here imports torch.
"""

from __future__ import annotations

import enum

import msgspec

FORMAT = 1
"""The version of the stored form; a file of a later one is not read."""


class Verdict(enum.Enum):
    """What the evidence of a row allows to say, and no more."""

    FASTER = "faster"
    LEANER = "leaner"
    NO_GAIN = "no gain"
    SLOWER = "slower"
    INCONCLUSIVE = "inconclusive"
    DIFFERS = "differs"
    NOT_MEASURED_HERE = "not measured here"
    FAILED = "failed"

    @property
    def is_bad(self) -> bool:
        """Whether a row with this verdict makes `torchlint verify` end with status 1."""
        return self in (Verdict.DIFFERS, Verdict.FAILED, Verdict.SLOWER)


class FailureKind(enum.Enum):
    """Why a row has no evidence to judge, or evidence against its rule."""

    CRASHED = "crashed"
    TIMED_OUT = "timed out"
    OUT_OF_MEMORY = "out of memory"
    NOT_FIXED = "not fixed"
    MECHANISM = "mechanism not shown"


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """What went wrong. `version` is "before", "after" or "" (both, or neither); `output` is the tail of its output."""

    kind: FailureKind
    message: str
    version: str = ""
    output: str = ""


class Environment(msgspec.Struct, frozen=True):
    """Where the rows of a table were measured. Neither paths nor a host name are kept.

    `device` is the type ("cpu", "cuda"), `device_name` the model of the GPU or CPU. `cuda`, `cudnn` and `driver` are ""
    without a GPU. `commit` is torchlint's own, with "+" behind it where files were changed, "" outside of a checkout.
    `threads` is what torch was given, `cores` what the process may use.
    """

    device: str
    device_name: str
    torch: str
    python: str
    torchlint: str
    cpu: str
    cores: int
    threads: int
    platform: str
    gpus: int = 0
    cuda: str = ""
    cudnn: str = ""
    driver: str = ""
    commit: str = ""


class Unit(enum.Enum):
    """What a counter counts."""

    COUNT = "count"
    BYTES = "bytes"
    SECONDS = "seconds"


class Measurement(msgspec.Struct, frozen=True):
    """One counter over one run of the workload, before and after the fix.

    `counter` is its key, such as "host_syncs", `label` what to show. `how` says by what means it was counted, such as
    "operators, on a simulated GPU". `claimed` marks what the rule says it removes.
    """

    counter: str
    label: str
    unit: Unit
    before: float
    after: float
    how: str
    claimed: bool = False

    @property
    def fell(self) -> bool:
        """Whether the fix removed some of it."""
        return self.after < self.before


class Timing(msgspec.Struct, frozen=True):
    """Seconds for one run of the workload. `before[i]` and `after[i]` were measured one right after the other.

    `ratio` is median(before) / median(after): above 1 the fix is faster. `low` and `high` bound its bootstrap interval
    at the level `confidence`.
    """

    before: tuple[float, ...]
    after: tuple[float, ...]
    ratio: float
    low: float
    high: float
    median_before: float
    median_after: float
    confidence: float = 0.95

    @property
    def pairs(self) -> int:
        """How many interleaved pairs were timed."""
        return len(self.before)


class Policy(enum.Enum):
    """How strictly the values before and after are compared."""

    BITWISE = "bit for bit"
    TOLERANCE = "within a tolerance"
    DISTRIBUTION = "same distribution"


class Deviation(msgspec.Struct, frozen=True):
    """One named value that is not the same before and after, in words; `largest` is the largest absolute difference."""

    name: str
    message: str
    largest: float = 0.0


class Values(msgspec.Struct, frozen=True):
    """Whether outputs, losses, gradients and updated parameters are the same before and after.

    `compared` counts tensors and numbers, `largest` is the largest absolute difference among all. `rtol` and `atol` are
    0 where values are compared bit for bit. `note` says what was done to compare at all, such as loading the same
    weights into both.
    """

    policy: Policy
    compared: int
    largest: float
    rtol: float = 0.0
    atol: float = 0.0
    deviations: tuple[Deviation, ...] = ()
    note: str = ""

    @property
    def same(self) -> bool:
        """Whether there is no deviation."""
        return not self.deviations


class Row(msgspec.Struct, frozen=True):
    """What was measured for one rule on one device.

    `reason` says in one sentence why the verdict is what it is. `workload` is the first line of the bench's docstring.
    `fixed_by` is "torchlint" or, where the rule has no fix, "hand". `safety` is "safe", "unsafe" or "" (no fix).
    `claim` says what the rule promises to remove. `notes` are sentences to show with the row. `diff` is the
    unified diff of the workload. `quick` marks a run with fewer pairs than usual.
    """

    code: str
    name: str
    verdict: Verdict
    reason: str
    measured: str
    workload: str = ""
    claim: str = ""
    safety: str = ""
    fixed_by: str = "torchlint"
    quick: bool = False
    values: Values | None = None
    timing: Timing | None = None
    measurements: tuple[Measurement, ...] = ()
    failure: Failure | None = None
    notes: tuple[str, ...] = ()
    diff: str = ""

    @property
    def claimed(self) -> tuple[Measurement, ...]:
        """The counters that the rule says it moves."""
        return tuple(measurement for measurement in self.measurements if measurement.claimed)


class Point(msgspec.Struct, frozen=True):
    """One size of a sweep: the median seconds of one call, with the interval that bounds it."""

    size: float
    seconds: float
    low: float
    high: float


class Series(msgspec.Struct, frozen=True):
    """One line of a sweep's plot, such as one dtype."""

    label: str
    points: tuple[Point, ...]


class Sweep(msgspec.Struct, frozen=True):
    """How a time depends on a size. `name` is what `--sweep` takes; `code` is the rule that it belongs to."""

    name: str
    code: str
    title: str
    size_label: str
    series: tuple[Series, ...]
    measured: str
    conclusion: str = ""
    notes: tuple[str, ...] = ()


class Sighting(msgspec.Struct, frozen=True):
    """One place of a workload where the linter, the profiler, or both saw a habit.

    `static` is what the finding says, `profiled` what the events of the run say; "" where that side saw nothing.
    `count` is how often the events occurred. `note` says why one side could not have seen it, such as "needs a GPU";
    then that they do not agree is no disagreement.
    """

    pattern: str
    code: str
    file: str
    line: int
    static: str = ""
    profiled: str = ""
    count: int = 0
    note: str = ""

    @property
    def agrees(self) -> bool:
        """Whether both sides saw it."""
        return bool(self.static and self.profiled)


class Table(msgspec.Struct, frozen=True):
    """One run of `torchlint verify`: where, when, and what it found out. `notes` are sentences about the whole run."""

    environment: Environment
    measured: str
    rows: tuple[Row, ...] = ()
    sweeps: tuple[Sweep, ...] = ()
    sightings: tuple[Sighting, ...] = ()
    notes: tuple[str, ...] = ()


class Results(msgspec.Struct, frozen=True):
    """The file `results/<device>.json`: runs on one device, oldest first."""

    runs: tuple[Table, ...]
    format: int = FORMAT
