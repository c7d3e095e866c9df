"""The whole of `torchlint verify --script`: copy, fix, run in turn, compare."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from torchlint.discovery import project_root

from ..records import Verdict
from . import bisect, guard
from .compare import compare
from .exchange import Boundary
from .fixes import Fix, Fixed, Fixer, Selection, fix_project
from .outcome import Comparison, Report
from .project_copy import CopyError, Snapshot, snapshot
from .reach import watched_lines
from .run import ORIGINAL, Measured, Options, Run, Runner, Version, Workspace

if TYPE_CHECKING:
    from collections.abc import Callable


FIXED = "with all fixes"


class NothingToFix(Exception):  # noqa: N818
    """No fix applies to the project; the message says so."""


@dataclass(frozen=True)
class Place:
    """Where a script is: absolute paths of it, of its project, and of the folder to run it in."""

    script: Path
    root: Path
    folder: Path


@dataclass(frozen=True)
class Wishes:
    """What to verify, beside how to run it. `bisect` is "", "code" or "fix"; `link_data` trusts the script not to write
    to linked data by native code where the kernel cannot keep it from that."""

    selection: Selection
    bisect: str = ""
    link_data: bool = False


def place_of(script: Path, project: Path | None, here: Path) -> Place:
    """Where a script is and will run: in the copy of the current folder, or of the script's where that is elsewhere."""
    real = Path(os.path.realpath(script))
    root = Path(os.path.realpath(project)) if project is not None else Path(project_root(str(real))[0])
    if not guard.is_below(str(real), str(root)):
        raise CopyError(f"{script}: is not in the project {root} (--project)")
    if str(root) == os.path.abspath(os.sep):
        raise CopyError(f"{script}: its project would be the whole file system; name a folder with --project")
    folder = Path(os.path.realpath(here))
    return Place(real, root, folder if guard.is_below(str(folder), str(root)) else real.parent)


def verify(
    place: Place,
    options: Options,
    wishes: Wishes,
    fixer: Fixer = fix_project,
    progress: Callable[[str], None] = lambda what: None,
) -> Report:
    """Run a script without and with its project's fixes. Raises NothingToFix, CopyError and ConfigError.

    `fixer` makes the fixes; torchlint's own by default.
    """
    options = _placed(options, place)
    with Workspace() as workspace:
        progress(f"copying {place.root.name}")
        everything = not (guard.kernel_can_guard() or wishes.link_data)
        found = snapshot(place.root, workspace.store, everything)
        progress("fixing the copy")
        fixed = fixer(found, wishes.selection)
        if not fixed.sources:
            raise NothingToFix("no fix applies to this project: there is nothing to measure")
        runner = Runner(workspace, found, options, progress)
        return _measure(runner, found, fixed, options, wishes, fixer)


def _placed(options: Options, place: Place) -> Options:
    from dataclasses import replace

    script, folder = (os.path.relpath(path, place.root) for path in (place.script, place.folder))
    return replace(options, script=script, folder=folder)


def _measure(runner: Runner, found: Snapshot, fixed: Fixed, options: Options, wishes: Wishes, fixer: Fixer) -> Report:
    watched = tuple(watched_lines(fix, found.read(fix.file)) for fix in fixed.fixes)
    original = runner.survey(Version(ORIGINAL), watched)
    report = _report(original, options, fixed)
    if original.failure:
        run = original.failed_run
        reason = f"the script gives nothing to compare: {original.failure}"
        failed = Comparison(
            ORIGINAL, Verdict.FAILED, reason, failure=original.failure, output=run.output, notes=_hints(found, run)
        )
        return _ended(report, failed)
    used, idle = _used(fixed, original)
    report = msgspec.structs.replace(report, idle=idle)
    if not used.sources:
        reason = "the script imports none of the files that have fixes"
        return _ended(report, Comparison(FIXED, Verdict.NO_GAIN, reason, ()))
    unreached = _unreached(fixed, original) - set(idle)
    if unreached >= set(used.fixes):
        reason = f"in {options.steps} steps the script came to none of the fixed lines; give it more (--steps)"
        return _ended(report, Comparison(FIXED, Verdict.INCONCLUSIVE, reason, used.fixes))
    report = msgspec.structs.replace(report, notes=(*report.notes, *_of_unreached(unreached, options)))
    parts = [bisect.Part(Version(FIXED, used.sources), used.fixes), *_parts(found, used, wishes, fixer)]
    measured = [runner.survey(part.version) for part in parts]
    running = [one for one in measured if not one.failure]
    if running:
        runner.time_in_turn([original, *running])
    return _compared(report, original, list(zip(parts, measured, strict=True)))


def _report(original: Measured, options: Options, fixed: Fixed) -> Report:
    seen = original.survey.observed
    return Report(
        script=options.script,
        arguments=options.arguments,
        comparison=Comparison(FIXED, Verdict.INCONCLUSIVE, ""),
        boundary="" if seen is None or seen.boundary is Boundary.AUTO else seen.boundary.value,
        device=seen.device if seen is not None else "",
        memory=seen.memory if seen is not None else "",
        steps=options.steps,
        warmup=options.warmup,
        seed=options.seed,
        measured=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        environment=seen.environment if seen is not None else None,
        notes=fixed.problems,
    )


def _hints(found: Snapshot, run: Run) -> tuple[str, ...]:
    """What may have kept a script from running that runs by itself."""
    if guard.kernel_can_guard() and "Permission denied" in run.output:
        return (
            f"a verification lets a script change nothing in {found.root} but in its copy, nor make new entries in the "
            "folders above; an argument can name another place to write to",
        )
    return ()


def _used(fixed: Fixed, original: Measured) -> tuple[Fixed, tuple[Fix, ...]]:
    """The fixes in files that the script imported, and the fixes elsewhere, which no run could show."""
    seen = original.survey.observed
    assert seen is not None
    loaded = {*seen.loaded, *seen.foreign}
    sources = {file: source for file, source in fixed.sources.items() if file in loaded}
    fixes = tuple(fix for fix in fixed.fixes if fix.file in sources)
    idle = tuple(fix for fix in fixed.fixes if fix.file not in sources)
    return Fixed(sources, fixes, fixed.problems), idle


def _unreached(fixed: Fixed, original: Measured) -> set[Fix]:
    """The fixes whose lines the original did not execute."""
    seen = original.survey.observed
    if seen is None or seen.reached is None:  # it could not be watched
        return set()
    return {fix for number, fix in enumerate(fixed.fixes) if number not in seen.reached}


def _of_unreached(unreached: set[Fix], options: Options) -> tuple[str, ...]:
    places = ", ".join(f"{fix.code} {fix.place}" for fix in sorted(unreached, key=lambda fix: (fix.file, fix.line)))
    return (f"not executed in {options.steps} steps, and so not judged (--steps): {places}",) if places else ()


def _parts(found: Snapshot, used: Fixed, wishes: Wishes, fixer: Fixer) -> list[bisect.Part]:
    selection = msgspec.structs.replace(wishes.selection, files=frozenset(used.sources))
    if wishes.bisect == "code":
        return bisect.parts_by_code(found, used, selection, fixer)
    return bisect.parts_by_fix(found, used.fixes) if wishes.bisect == "fix" else []


def _compared(report: Report, original: Measured, parts: list[tuple[bisect.Part, Measured]]) -> Report:
    if original.failure:  # it ran once, and then it did not
        reason = f"the script did not run again as it had: {original.failure}"
        output = original.failed_run.output
        return _ended(report, Comparison(ORIGINAL, Verdict.FAILED, reason, failure=original.failure, output=output))
    compared = [compare(original, measured, part.fixes) for part, measured in parts]
    timed = [run.observed for run in original.timed if run.observed is not None]
    return msgspec.structs.replace(
        report,
        comparison=compared[0],
        parts=tuple(compared[1:]),
        clock=timed[0].clock if timed else "",
        memory=timed[0].memory if timed else report.memory,
    )


def _ended(report: Report, comparison: Comparison) -> Report:
    return msgspec.structs.replace(report, comparison=comparison)
