"""Who does the work: this process alone, or several that each keep the files they were given.

Both hold the same interface: `run(verb, tasks)` calls a method of the `Checker` for each task and yields the results as
they come, so that nothing else depends on how many processes there are. A task goes to the process that had the same
file before, which may still hold it parsed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

    from torchlint.checker import Checker


class Task(NamedTuple):
    """One call: the absolute path of the file that it is about, and the arguments."""

    path: str
    arguments: tuple[Any, ...]


class Result(NamedTuple):
    """What a call returned; None, and a message, where the process died on it."""

    path: str
    value: Any
    error: str = ""


class Alone:
    """This process does the work."""

    def __init__(self, checker: Checker) -> None:
        self._checker = checker

    def run(self, verb: str, tasks: Sequence[Task]) -> Iterator[Result]:
        method = getattr(self._checker, verb)
        for task in tasks:
            yield Result(task.path, method(*task.arguments))

    def close(self) -> None:
        """Nothing to end."""


@dataclass
class _Lane:
    """One worker process, the connection to it, and the tasks whose results it owes, in order."""

    process: BaseProcess
    connection: Connection
    owed: list[Task] = field(default_factory=list)


class Crew:
    """Several processes do the work. `sizes` (bytes by path) deals the files out evenly."""

    def __init__(self, checker: Checker, jobs: int, sizes: dict[str, int]) -> None:
        import multiprocessing

        # A forked worker starts at once with everything imported. Elsewhere than on Linux forking is not safe.
        self._context: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
        self._checker = checker
        self._lanes: list[_Lane] = []
        for _ in range(jobs):
            self._lanes.append(self._start())
        self._lane_of = _deal(sizes, jobs)

    def run(self, verb: str, tasks: Sequence[Task]) -> Iterator[Result]:
        """The results in the order in which they arrive. A process that dies costs the task that it was at."""
        from multiprocessing.connection import wait

        for number, lane in enumerate(self._lanes):
            lane.owed = [task for task in tasks if self._lane_of.get(task.path, 0) == number]
            self._send(lane, verb)
        while waiting := {lane.connection: number for number, lane in enumerate(self._lanes) if lane.owed}:
            for ready in wait(list(waiting)):
                yield self._receive(waiting[ready], verb)  # type: ignore[index]

    def close(self) -> None:
        """End all processes, whatever they are doing."""
        for lane in self._lanes:
            lane.connection.close()
            lane.process.terminate()
        for lane in self._lanes:
            lane.process.join()

    def _start(self) -> _Lane:
        ours, theirs = self._context.Pipe()
        forks = self._context.get_start_method() == "fork"
        inherited = [*(lane.connection for lane in self._lanes), ours] if forks else []
        process = self._context.Process(target=_work, args=(theirs, inherited, self._checker), daemon=True)
        with warnings.catch_warnings():
            # A progress bar's thread may run while a dead worker is replaced; it holds no lock that a worker needs.
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        theirs.close()
        return _Lane(process, ours)

    def _send(self, lane: _Lane, verb: str) -> None:
        if lane.owed:
            # Where the process is gone already, receiving finds out.
            with contextlib.suppress(OSError):
                lane.connection.send((verb, [task.arguments for task in lane.owed]))

    def _receive(self, number: int, verb: str) -> Result:
        lane = self._lanes[number]
        try:
            value = lane.connection.recv()
        except (EOFError, OSError):
            return self._replace(number, verb)
        return Result(lane.owed.pop(0).path, value)

    def _replace(self, number: int, verb: str) -> Result:
        lane = self._lanes[number]
        lane.connection.close()
        lane.process.join()
        lost, *owed = lane.owed
        fresh = self._start()
        fresh.owed = owed
        self._lanes[number] = fresh
        self._send(fresh, verb)
        return Result(
            lost.path, None, f"internal error: a worker process died on {lost.path} ({_ending(lane.process)})"
        )


def _ending(process: BaseProcess) -> str:
    code = process.exitcode or 0
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"


def _work(connection: Connection, inherited: list[Connection], checker: Checker) -> None:
    """A worker: answer one message after the other until the connection ends."""
    import gc

    # Ctrl-C reaches the whole group; the parent ends us, after a write is done or undone.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()
    for other in inherited:
        # Else the workers would keep each other's connections open after the parent's death.
        with contextlib.suppress(OSError):
            other.close()
    try:
        while True:
            verb, calls = connection.recv()
            method: Callable[..., Any] = getattr(checker, verb)
            for arguments in calls:
                connection.send(method(*arguments))
    except (EOFError, OSError):
        os._exit(0)


def _deal(sizes: dict[str, int], jobs: int) -> dict[str, int]:
    """A lane for each path: the largest files first, each to the lane that has the least."""
    load = [0] * jobs
    lanes = {}
    for path in sorted(sizes, key=lambda path: (-sizes[path], path)):
        lane = load.index(min(load))
        lanes[path] = lane
        load[lane] += sizes[path]
    return lanes
