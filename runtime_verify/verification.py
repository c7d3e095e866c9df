"""One rule: its workload is fixed, both versions are run, compared, counted and timed, and the evidence is judged."""

from __future__ import annotations

import datetime
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch

from . import messages
from .children import Children, Limits, WorkloadError
from .comparison import Outputs, compare, compare_distributions
from .counters import DESCRIPTIONS
from .records import Failure, Measurement, Policy, Row, Timing, Values, Verdict
from .timing import time_pairs
from .verdict import judge
from .workload import AFTER, BEFORE, NotFixedError, Versions, Workload, make_versions

Progress = Callable[[str], None]
"""Told the name of each step, when it begins."""

STEPS = ("fixing", "comparing", "counting", "timing")

# Where two runs of the same code differ in their bits, so may those of two versions.
_IRREPRODUCIBLE = (1e-4, 1e-5)


@dataclass(frozen=True)
class Options:
    """How to measure. `snapshot`, if given, is where memory snapshots go, "before" and "after" added to its name."""

    device: str
    gpus: int
    threads: int
    pairs: int
    limits: Limits
    quick: bool = False
    seed: int = 0
    snapshot: Path | None = None


@dataclass(frozen=True)
class Evidence:
    """What both versions gave; `values` is None where they compute something else by intent."""

    values: Values | None
    measurements: tuple[Measurement, ...]
    timing: Timing
    notes: tuple[str, ...]


def verify(workload: Workload, options: Options, progress: Progress = lambda step: None) -> Row:
    """Measure one rule. Whatever the workload does, the answer is a row, and nothing of it goes on running."""
    row = Row(
        code=workload.code,
        name=workload.name,
        verdict=Verdict.NOT_MEASURED_HERE,
        reason=_missing(workload, options),
        measured=now(),
        workload=workload.summary,
        claim=", ".join(DESCRIPTIONS[claim].label for claim in workload.claims),
        fixed_by="hand" if workload.fixed else "torchlint",
        quick=options.quick,
    )
    if row.reason:
        return row
    with tempfile.TemporaryDirectory(prefix="torchlint-verify-") as name:
        try:
            progress("fixing")
            versions = make_versions(workload, Path(name))
            row = msgspec.structs.replace(row, safety=versions.safety, diff=versions.diff)
            evidence = _gather(workload, versions, options, progress)
        except NotFixedError as error:
            return _failed(row, error.failure)
        except WorkloadError as error:
            return _failed(row, _without_folder(error.failure, name))
    return _judged(row, workload, evidence)


def now() -> str:
    """The date and time, in UTC."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def _missing(workload: Workload, options: Options) -> str:
    """What the workload needs and is not here, as a sentence; "" where nothing is."""
    if workload.needs == "multi-gpu" and options.gpus < 2:
        return f"needs several GPUs, and there {'is one' if options.gpus else 'is none'} here"
    if workload.needs == "gpu" and options.device == "cpu":
        return "needs a GPU"
    return ""


def _failed(row: Row, failure: Failure) -> Row:
    where = f"the version {failure.version} the fix failed: " if failure.version else ""
    return msgspec.structs.replace(row, verdict=Verdict.FAILED, reason=where + failure.message, failure=failure)


def _without_folder(failure: Failure, folder: str) -> Failure:
    """A traceback names the temporary folder, of which nothing will be left."""
    shown = failure.output.replace(str(Path(folder).resolve()), "").replace(folder, "")
    return msgspec.structs.replace(failure, output=shown)


def _judged(row: Row, workload: Workload, evidence: Evidence) -> Row:
    verdict, reason, failure = judge(evidence.values, evidence.measurements, evidence.timing, bool(workload.claims))
    return msgspec.structs.replace(
        row,
        verdict=verdict,
        reason=reason,
        failure=failure,
        values=evidence.values,
        timing=evidence.timing,
        measurements=evidence.measurements,
        notes=evidence.notes,
    )


def _gather(workload: Workload, versions: Versions, options: Options, progress: Progress) -> Evidence:
    notes = ["fixed by hand: the rule has no fix"] if workload.fixed else []
    with _Pair(workload, versions, options) as pair:
        progress("comparing")
        values = None
        if workload.comparable:
            values = _Comparison(workload, versions, options, pair).values()
        else:
            notes.append("values are not compared: the fixed version is another model by intent")
        progress("counting")
        measurements = _count(workload, options, pair)
        if options.snapshot is not None:
            notes.append(_save_snapshots(workload, options, pair, options.snapshot))
    # The profiler leaves hooks behind that cost time: what is timed is run by fresh processes.
    with _Pair(workload, versions, options) as pair:
        progress("timing")
        timing = time_pairs(pair.before, pair.after, options.pairs, options.seed)
    return Evidence(values, measurements, timing, tuple(notes))


class _Pair:
    """Both versions in fresh processes that have imported them. `folder` is for files that pass between them."""

    def __init__(self, workload: Workload, versions: Versions, options: Options) -> None:
        self.folder = versions.before.parent
        request = messages.Prepare(
            module="bench",
            device=options.device,
            scale=workload.scale.get(options.device, 1),
            threads=options.threads,
            memory=options.limits.memory,
        )
        self._request = request
        self.before = Children(versions.before, BEFORE, options.limits, options.threads, workload.processes)
        try:
            self.after = Children(versions.after, AFTER, options.limits, options.threads, workload.processes)
        except BaseException:
            self.before.kill()
            raise

    def __enter__(self) -> _Pair:
        try:
            for version in (self.before, self.after):
                version.prepare(self._request)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            self.before.__exit__()
        finally:
            self.after.__exit__()


class _Comparison:
    """Compares what both versions compute, as strictly as the fix allows."""

    def __init__(self, workload: Workload, versions: Versions, options: Options, pair: _Pair) -> None:
        self._workload = workload
        self._seed = options.seed
        self._pair = pair
        self._rtol, self._atol = workload.tolerance
        self._policy = Policy.BITWISE if versions.safety == "safe" or not any(workload.tolerance) else Policy.TOLERANCE
        self._notes: list[str] = []

    def values(self) -> Values:
        """The comparison, with notes on how it was made."""
        original = self._compute(self._pair.before, self._seed)
        self._allow_irreproducible(original, self._compute(self._pair.before, self._seed))
        fixed = self._compute(self._pair.after, self._seed)
        values = compare(self._known_to_both(original), fixed, self._policy, self._rtol, self._atol)
        if self._workload.seeds:
            values = self._across_streams(values)
        return msgspec.structs.replace(values, note="; ".join(self._notes))

    def _allow_irreproducible(self, first: Outputs, second: Outputs) -> None:
        """Allow a tolerance where the original does not even give its own bits again."""
        again = compare(first, second, Policy.BITWISE)
        if not again.same:
            self._rtol, self._atol = max(self._rtol, _IRREPRODUCIBLE[0]), max(self._atol, _IRREPRODUCIBLE[1])
            self._policy = Policy.TOLERANCE
            self._notes.append(f"two runs of the original differ by up to {again.largest:.2g}")

    def _across_streams(self, values: Values) -> Values:
        if values.same:
            self._notes.append("this device draws the same random numbers for both versions; a GPU does not")
            return values
        seeds = range(self._seed, self._seed + self._workload.seeds)
        runs = [[self._compute(version, seed) for seed in seeds] for version in (self._pair.before, self._pair.after)]
        self._notes.append(f"the fix changes the random stream: distributions over {len(seeds)} seeds are compared")
        return compare_distributions(*runs)

    def _compute(self, version: Children, seed: int) -> Outputs:
        path, weights = self._pair.folder / "outputs.pt", self._pair.folder / "weights.pt"
        request = messages.Compute(seed, str(path))
        if self._workload.shares_weights:
            key = "weights_to" if version is self._pair.before else "weights_from"
            request = msgspec.structs.replace(request, **{key: str(weights)})
        self._dropped = version.ask(request, messages.Computed).dropped
        outputs: Outputs = torch.load(path, map_location="cpu", weights_only=True)
        return outputs

    def _known_to_both(self, original: Outputs) -> Outputs:
        """The original's outputs without those of weights that the fixed version does not have."""
        if not self._workload.shares_weights:
            return original
        dropped = set(self._dropped)
        self._notes.append(
            f"both versions are given the same weights; the {len(dropped)} that the fix removes are not compared"
        )
        return {name: value for name, value in original.items() if name.rpartition("/")[2] not in dropped}


def _count(workload: Workload, options: Options, pair: _Pair) -> tuple[Measurement, ...]:
    """All counters that are not 0 in both versions, and those that the rule claims to lower."""
    request = messages.Count(options.seed, "graph_breaks" in workload.claims)
    before, after = (version.ask(request, messages.Counted) for version in (pair.before, pair.after))
    measurements = []
    for key, (label, unit) in DESCRIPTIONS.items():
        if key not in before.counts or key not in after.counts:
            continue
        first, second = before.counts[key], after.counts[key]
        claimed = key in workload.claims
        if first or second or claimed:
            measurements.append(Measurement(key, label, unit, first, second, before.ways[key], claimed))
    return tuple(measurements)


def _save_snapshots(workload: Workload, options: Options, pair: _Pair, target: Path) -> str:
    names = []
    for version, children in ((BEFORE, pair.before), (AFTER, pair.after)):
        path = target.with_name(f"{target.stem}-{workload.code}-{version}{target.suffix or '.pickle'}")
        children.ask(messages.Snapshot(options.seed, str(path.absolute())), messages.Done)
        names.append(path.name)
    return f"memory snapshots: {' and '.join(names)}"
