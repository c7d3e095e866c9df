"""Runs a script in copies of its project: version after version, in turn, each time in a fresh copy and process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import msgspec

from . import guard, project_copy
from .exchange import Boundary, End, Observed, Request, Watched

ORIGINAL = "original"

# After the last step a script winds up: it saves, its workers end, its atexit handlers run.
WINDING_UP_SECONDS = 20.0
_POLL_SECONDS = 0.05
# The child stops by itself between two steps at this share of its limit, so that what it measured is not lost.
_BUDGET = 0.8
_TAIL_BYTES = 4_000
_NAN = re.compile(rb"(?<![A-Za-z0-9_.])-?nan(?![A-Za-z0-9_])", re.IGNORECASE)
_SCANNED_BYTES = 32 * 2**20


@dataclass(frozen=True)
class Options:
    """How to run a script. Seconds are of wall time; `folder` is the working folder, relative to the project."""

    script: str
    arguments: tuple[str, ...] = ()
    folder: str = "."
    steps: int = 50
    warmup: int = 5
    pairs: int = 6
    seconds: float = 600.0
    seed: int = 0


class Run(msgspec.Struct, frozen=True):
    """One run: what the child saw, or the problem that kept it from answering. `output` is the tail of what the script
    printed, and `prints_nan` says whether it printed a NaN anywhere."""

    seconds: float
    observed: Observed | None = None
    problem: str = ""
    output: str = ""
    prints_nan: bool = False
    notes: tuple[str, ...] = ()

    @property
    def failure(self) -> str:
        """Why this run gives nothing to compare, "" where it does."""
        seen = self.observed
        if seen is None:
            return self.problem
        if seen.end is End.CRASHED:
            return f"it crashed: {seen.message}"
        if not seen.steps:
            return "it never stepped: no optimizer step, and no DataLoader iteration that ran a module"
        if not seen.durations:
            return f"it made only {seen.steps} steps, none of them after the warm-up (--warmup)"
        return ""


@dataclass(frozen=True)
class Version:
    """The project as it is, or with fixes: `sources` holds the files that differ, by relative path."""

    name: str
    sources: Mapping[str, bytes] = field(default_factory=dict)


@dataclass
class Measured:
    """The runs of a version: `survey` finds the steps (and counts), `timed` are the others, in order."""

    version: Version
    survey: Run
    timed: list[Run] = field(default_factory=list)

    @property
    def failure(self) -> str:
        """Why there is nothing to compare."""
        return next((run.failure for run in (self.survey, *self.timed) if run.failure), "")

    @property
    def failed_run(self) -> Run:
        """The run that failed, else the survey."""
        return next((run for run in (self.survey, *self.timed) if run.failure), self.survey)


Progress = Callable[[str], None]


class Workspace:
    """A temporary folder for copies. Leaving it kills what still runs in it and deletes it, however it is left."""

    def __init__(self) -> None:
        self.folder = Path(os.path.realpath(mkdtemp(prefix="torchlint-script-")))
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Workspace:
        # Ended by a signal, Python would leave the folder behind.
        for number in (signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])):
            with suppress(ValueError):  # not in the main thread
                self._previous[number] = signal.signal(number, _interrupt)
        return self

    def __exit__(self, *exception: Any) -> None:
        # A second Ctrl-C must not interrupt the cleaning.
        with _uninterrupted():
            project_copy.remove(self.folder)
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    @property
    def store(self) -> Path:
        """Where the snapshot of the project is kept."""
        return self.folder / "store"


class Runner:
    """Runs versions of one script."""

    def __init__(
        self,
        workspace: Workspace,
        found: project_copy.Snapshot,
        options: Options,
        progress: Progress = lambda what: None,
    ) -> None:
        self._workspace = workspace
        self._found = found
        self._options = options
        self._progress = progress

    def survey(self, version: Version, watched: tuple[Watched, ...] = ()) -> Measured:
        """Run a version to learn what its steps are, to count their synchronizations, and which lines it executes."""
        self._progress(f"{version.name}: counting")
        run = self._run(version, Boundary.AUTO, 0, count=True, watched=watched)
        if run.observed is None or run.observed.end is End.CRASHED:
            # Counting intercepts every operator, which not every program bears.
            plain = self._run(version, Boundary.AUTO, 0, count=False)
            if plain.observed is not None and plain.observed.end is not End.CRASHED:
                note = f"synchronizations could not be counted: {run.failure}"
                return Measured(version, msgspec.structs.replace(plain, notes=(note,)))
            run = plain
        return Measured(version, run)

    def time_in_turn(self, versions: Sequence[Measured]) -> None:
        """Time the versions, in rounds of one run of each, every second round in reverse order."""
        for number in range(self._options.pairs):
            for measured in versions if number % 2 == 0 else reversed(versions):
                if measured.failure:
                    continue
                self._progress(f"{measured.version.name}: timing, round {number + 1} of {self._options.pairs}")
                seen = measured.survey.observed
                assert seen is not None
                measured.timed.append(self._run(measured.version, seen.boundary, seen.skipped, count=False))

    def _run(
        self, version: Version, boundary: Boundary, skip: int, count: bool, watched: tuple[Watched, ...] = ()
    ) -> Run:
        # Always at the same path, so that whatever is cached by path is found again.
        tree, scratch = self._workspace.folder / "copy" / self._found.root.name, self._workspace.folder / "run"
        for folder in (tree, scratch):
            project_copy.remove(folder)
        project_copy.materialize(self._found, tree, version.sources)
        scratch.mkdir()
        (self._workspace.folder / "tmp").mkdir(exist_ok=True)
        request = self._request(tree, scratch, boundary, skip, count)
        request = msgspec.structs.replace(request, watched=watched)
        try:
            return _run_child(request, tree / self._options.folder, self._options.seconds)
        finally:
            project_copy.remove(tree)

    def _request(self, tree: Path, scratch: Path, boundary: Boundary, skip: int, count: bool) -> Request:
        options = self._options
        return Request(
            script=str(tree / options.script),
            arguments=tuple(_moved(argument, str(self._found.root), str(tree)) for argument in options.arguments),
            tree=str(tree),
            original=str(self._found.root),
            protected=self._found.protected,
            answer=str(scratch / "answer"),
            workspace=str(self._workspace.folder),
            steps=options.steps,
            warmup=options.warmup,
            budget=options.seconds * _BUDGET,
            seed=options.seed,
            boundary=boundary,
            skip=skip,
            count=count,
        )


# A socket's path holds 107 bytes (Linux, unix(7)), and `multiprocessing` adds "/pymp-12345678/listener-12345678".
_LONGEST_TEMPORARY = 107 - 32


def _run_child(request: Request, folder: Path, limit: float) -> Run:
    answer, log = Path(request.answer), Path(request.answer).with_name("output.txt")
    begun = time.monotonic()
    with log.open("wb") as output, _process(request, folder, limit, output) as process:
        problem = _wait(process, answer, begun + limit, limit)
    observed = msgspec.msgpack.decode(answer.read_bytes(), type=Observed) if answer.exists() else None
    notes = (problem,) if observed is not None and problem else ()
    return Run(
        seconds=time.monotonic() - begun,
        observed=observed,
        problem="" if observed is not None else problem,
        output=_tail(log, request.tree),
        prints_nan=_prints_nan(log),
        notes=notes,
    )


@contextmanager
def _process(request: Request, folder: Path, limit: float, output: Any) -> Iterator[subprocess.Popen[bytes]]:
    """The child, in a process group of its own, which is killed at the end with all that is left in it."""
    command = [sys.executable, "-m", "torchlint.runtime_verify.script.instrument"]
    with _uninterrupted():
        process = subprocess.Popen(
            [*command, msgspec.json.encode(request).decode(), str(limit)],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_environment(request),
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with _uninterrupted():
            _kill_group(process)


def _wait(process: subprocess.Popen[bytes], answer: Path, deadline: float, limit: float) -> str:
    """Wait for the end of a process that does not take too long; what was wrong with it, or ""."""
    answered: float | None = None
    while not _has_ended(process):
        now = time.monotonic()
        if answered is None and answer.exists():
            answered = now
        if answered is not None and now - answered > WINDING_UP_SECONDS:
            return f"the script did not end within {WINDING_UP_SECONDS:g} s after its last step, and was killed"
        if answered is None and now > deadline:
            return f"it did not make its steps within {limit:g} s (--time-limit), and was killed"
        time.sleep(_POLL_SECONDS)
    if answer.exists():
        return ""
    _kill_group(process)
    status = process.returncode
    if status < 0:
        with suppress(ValueError):
            return f"it was ended by signal {-status} ({signal.Signals(-status).name})"
    return f"it ended with status {status} without a trace of its steps"


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether the process has died. It is not reaped, so that its number still means its group."""
    if not hasattr(os, "waitid"):
        return process.poll() is not None
    return (
        process.returncode is not None
        or os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    )


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is not None:
        return
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()


def _environment(request: Request) -> dict[str, str]:
    environment = {
        **os.environ,
        "PYTHONHASHSEED": str(request.seed),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",  # so that what was printed before a hang is seen
        "GIT_OPTIONAL_LOCKS": "0",
    }
    temporary = os.path.join(request.workspace, "tmp")
    if sys.platform == "linux" and len(os.fsencode(temporary)) <= _LONGEST_TEMPORARY:
        environment["TMPDIR"] = temporary  # deleted with the rest
    if request.count:
        # What compiled code does no operator shows; and compiling under a dispatch mode is slow.
        environment["TORCHDYNAMO_DISABLE"] = "1"
    return environment


def _moved(argument: str, root: str, tree: str) -> str:
    """An argument that names a path in the project, naming it in the copy."""
    head, equals, tail = argument.rpartition("=")
    return f"{head}{equals}{tree}{tail[len(root) :]}" if guard.is_below(tail, root) else argument


def _tail(log: Path, tree: str) -> str:
    with log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        text = file.read().decode("utf-8", "replace")
    if size > _TAIL_BYTES:
        text = text.partition("\n")[2]
    return text.replace(f"{tree}{os.sep}", "").strip()


def _prints_nan(log: Path) -> bool:
    with log.open("rb") as file:
        return _NAN.search(file.read(_SCANNED_BYTES)) is not None


def _interrupt(number: int, frame: Any) -> None:
    raise SystemExit(128 + number)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C waits until what is done in here is done."""
    pressed = []
    try:
        previous = signal.signal(signal.SIGINT, lambda *_: pressed.append(True))
    except ValueError:  # not in the main thread, where no signal arrives
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
    if pressed:
        raise KeyboardInterrupt
