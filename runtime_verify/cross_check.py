"""What the linter finds in each workload, and what the profiler saw of it, side by side by file and line.

The linter reads `bench.py`, a child process runs it below `recording.record`. A finding and a match are one sighting if
they speak of the same rule, and the match happened on the finding's lines or its module, optimizer or loader was built
there. Everything else is a disagreement, unless one side could not have seen it: no GPU was there, or there is no such
rule.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from torchlint.checker import Plan
from torchlint.config import Settings
from torchlint.discovery import Project
from torchlint.runner import Run
from torchlint.selection import default_registry

from .patterns import NEEDS_GPU, PATTERNS, Match, Pattern, find, unobservable
from .recording import Site, record
from .records import Sighting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from torchlint.diagnostics import Diagnostic

    from .children import Limits
    from .workload import Workload

_TARGET_TORCH = (2, 11)
_TAIL_CHARACTERS = 500


class Seen(msgspec.Struct, frozen=True):
    """What the child process tells: the matches, and the names of the patterns that it could not have seen."""

    matches: tuple[Match, ...]
    unobservable: tuple[str, ...]


class CrossCheck(msgspec.Struct, frozen=True):
    """The sightings in all workloads, and sentences about what could not be compared."""

    sightings: tuple[Sighting, ...]
    notes: tuple[str, ...]


def cross_check(
    workloads: Iterable[Workload], device: str, limits: Limits, threads: int, progress: Callable[[str], None]
) -> CrossCheck:
    """Lint and run each workload. `progress` is told the name of each. A workload that fails becomes a note."""
    sightings: list[Sighting] = []
    notes: list[str] = []
    missing: set[str] = set()
    for workload in workloads:
        progress(f"{workload.code} {workload.name}")
        file = f"{workload.path.parent.name}/{workload.path.name}"
        if workload.needs or workload.processes > 1:
            notes.append(f"{file} was not profiled: it needs more than one process on one device")
            continue
        with tempfile.TemporaryDirectory(prefix="torchlint-cross-check-") as folder:
            bench = Path(folder).resolve() / "bench.py"
            shutil.copyfile(workload.path, bench)
            seen = _profile(bench, device, workload.scale.get(device, 1), limits, threads)
            if isinstance(seen, str):
                notes.append(f"{file} could not be profiled: {seen.replace(str(bench.parent), '')}")
                continue
            missing.update(seen.unobservable)
            sightings += compare(file, _lint(bench), seen, str(bench))
    notes += [f"{name}: {NEEDS_GPU}" for name in sorted(missing)]
    return CrossCheck(tuple(sightings), tuple(notes))


def compare(file: str, findings: Sequence[Diagnostic], seen: Seen, path: str) -> list[Sighting]:
    """The sightings in one file, in the order of its lines. `file` is its name to show, `path` that in the matches."""
    matches = [match for match in seen.matches if match.place.file == path]
    sightings = [
        sighting
        for pattern in PATTERNS
        for sighting in _compare_pattern(
            pattern,
            file,
            [finding for finding in findings if finding.code == pattern.code],
            [match for match in matches if match.pattern == pattern.name],
            pattern.name in seen.unobservable,
        )
    ]
    return sorted(sightings, key=lambda sighting: (sighting.line, sighting.code))


def _compare_pattern(
    pattern: Pattern, file: str, findings: Sequence[Diagnostic], matches: Sequence[Match], unseen: bool
) -> Iterator[Sighting]:
    left = list(matches)
    for finding in findings:
        here = [match for match in left if _is_at(match, finding)]
        left = [match for match in left if match not in here]
        yield Sighting(
            pattern=pattern.name,
            code=pattern.code,
            file=file,
            line=finding.location.row,
            static=finding.message,
            profiled=here[0].seen if here else "",
            count=sum(match.count for match in here),
            note=NEEDS_GPU if unseen and not here else "",
        )
    note = "" if pattern.code in default_registry() else f"there is no rule {pattern.code}"
    for match in left:
        line = (match.made or match.place).line
        yield Sighting(pattern.name, pattern.code, file, line, "", match.seen, match.count, note)


def _is_at(match: Match, finding: Diagnostic) -> bool:
    """Whether the match happened on the finding's lines, or what it happened to was built there."""
    lines = range(finding.location.row, finding.end_location.row + 1)
    return any(site is not None and site.file == match.place.file and site.line in lines for site in _sites(match))


def _sites(match: Match) -> tuple[Site | None, ...]:
    return match.place, match.made


def _lint(bench: Path) -> tuple[Diagnostic, ...]:
    """The findings of the rules that have a pattern."""
    registry = default_registry()
    plan = Plan(
        path=str(bench),
        relative=bench.name,
        codes=frozenset(pattern.code for pattern in PATTERNS if pattern.code in registry),
        settings=Settings(),
        target_torch=_TARGET_TORCH,
    )
    project = Project(str(bench.parent), (str(bench),), (str(bench),))
    return Run(project, [plan], registry, jobs=1).reports()[0].findings


def _profile(bench: Path, device: str, scale: int, limits: Limits, threads: int) -> Seen | str:
    """What the profiler saw of a bench in a process of its own, or why it saw nothing."""
    answer, log = bench.with_name("seen.json"), bench.with_name("output.txt")
    command = [sys.executable, "-m", __spec__.name, str(bench), device, str(scale), str(threads), str(answer)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=bench.parent, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        try:
            status = process.wait(limits.seconds)
        except subprocess.TimeoutExpired:
            return f"it did not end within {limits.seconds:g} s"
        finally:
            _end(process)
    if status or not answer.is_file():
        return f"it ended with status {status}: {_tail(log)}"
    return msgspec.json.decode(answer.read_bytes(), type=Seen)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process, and what it left running."""
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.wait()


def _tail(log: Path) -> str:
    """The last thing that a process said, its exception as a rule."""
    text = log.read_text(encoding="utf-8", errors="replace").strip()
    return text.split("\n")[-1][-_TAIL_CHARACTERS:] if text else "it said nothing"


def _run_in_child(bench: str, device: str, scale: str, threads: str, answer: str) -> None:
    """What the child process does: run the bench once, recorded, and write down what was seen."""
    import torch

    torch.set_num_threads(int(threads))
    torch.manual_seed(0)
    recording = record(lambda: _run_bench(Path(bench), torch.device(device), int(scale)))
    missing = tuple(pattern.name for pattern in unobservable(recording))
    Path(answer).write_bytes(msgspec.json.encode(Seen(find(recording), missing)))


def _run_bench(bench: Path, device: object, scale: int) -> None:
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("bench", bench)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["bench"] = module  # so that a DataLoader's workers find its classes
    spec.loader.exec_module(module)
    module.run(module.setup(device, scale))


if __name__ == "__main__":
    _run_in_child(*sys.argv[1:])
