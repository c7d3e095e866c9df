"""Fresh child processes for the code under test, each with its descendants in a process group of its own.

A child that raises, dies, takes too long or takes too much memory becomes a `Failure` with the tail of its output, and
its whole group is killed. Leaving the `with` block kills it too, whatever the reason.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from . import messages
from .records import Failure, FailureKind

if TYPE_CHECKING:
    from collections.abc import Sequence

_TAIL_BYTES = 4_000
_POLL_SECONDS = 0.2

T = TypeVar("T", bound=msgspec.Struct)


@dataclass(frozen=True)
class Limits:
    """`seconds` for each request to a child, `memory` in bytes for a child and its descendants together."""

    seconds: float
    memory: int


class WorkloadError(Exception):
    """A child did not do what it was asked. `failure` says why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Child:
    """A process that answers requests about the workload in `folder`. `version` is "before" or "after"."""

    def __init__(self, folder: Path, version: str, limits: Limits, threads: int) -> None:
        self._version = version
        self._limits = limits
        self._log = (folder / f".output-{os.urandom(4).hex()}").open("w+b")
        self._replies: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "torchlint.runtime_verify.child"],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=_environment(threads),
            start_new_session=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.kill()
        self._log.close()

    def ask(self, request: messages.Request, expected: type[T]) -> T:
        """The answer to a request. Raises WorkloadError where there is none."""
        self.send(request)
        return self.receive(expected)

    def send(self, request: messages.Request) -> None:
        """Put a request, without waiting for the answer."""
        assert self._process.stdin is not None
        self._deadline = time.monotonic() + self._limits.seconds
        with suppress(BrokenPipeError):  # it has died; `receive` says how
            self._process.stdin.write(msgspec.json.encode(request) + b"\n")
            self._process.stdin.flush()

    def receive(self, expected: type[T]) -> T:
        """Wait for the answer to the last request."""
        line = self._wait()
        reply = msgspec.json.decode(line, type=messages.Reply)
        if isinstance(reply, messages.Failed):
            kind = FailureKind.OUT_OF_MEMORY if reply.out_of_memory else FailureKind.CRASHED
            raise self._failed(kind, f"it raised {reply.message}")
        assert isinstance(reply, expected)
        return reply

    def kill(self) -> None:
        """End the process and all its descendants, if they have not ended."""
        if self._process.returncode is not None:
            return
        # Its number belongs to it until it is waited for, even if it has died.
        if hasattr(os, "killpg"):
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):  # macOS: a group of which only a zombie is left
                self._process.kill()
        else:
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()

    def _read(self) -> None:
        pipe = self._process.stdout
        assert pipe is not None
        try:
            for line in pipe:
                self._replies.put(line)
        except ValueError:
            pass  # the pipe was closed: nobody waits for an answer any more
        self._replies.put(None)

    def _wait(self) -> bytes:
        checked = time.monotonic()
        while True:
            try:
                line = self._replies.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                line = b""
            if line:
                return line
            if line is None or _has_ended(self._process.pid):
                raise self._failed(FailureKind.CRASHED, self._last_words())
            now = time.monotonic()
            if now > self._deadline:
                limit = f"{self._limits.seconds:g} s"
                raise self._failed(FailureKind.TIMED_OUT, f"it did not end within {limit}")
            if now - checked >= _POLL_SECONDS:
                checked = now
                self._check_memory()

    def _check_memory(self) -> None:
        used = memory_of_tree(self._process.pid, self._limits.memory)
        if used > self._limits.memory:
            sizes = f"{used / 2**30:.1f} GiB, the limit is {self._limits.memory / 2**30:.1f} GiB"
            raise self._failed(FailureKind.OUT_OF_MEMORY, f"it took {sizes}")

    def _failed(self, kind: FailureKind, message: str) -> WorkloadError:
        self.kill()
        return WorkloadError(Failure(kind, message, self._version, self._output()))

    def _last_words(self) -> str:
        self.kill()
        status = self._process.returncode
        if status is not None and status < 0:
            # -SIGKILL is also what `kill` gave a process that had closed its side, but was still there.
            return f"it was ended by signal {-status} ({signal.Signals(-status).name})"
        return f"it ended by itself, with status {status}"

    def _output(self) -> str:
        """The tail of what it printed."""
        self._log.flush()
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(size - _TAIL_BYTES, 0))
        return self._log.read().decode("utf-8", "replace").strip()


class Children:
    """All processes of one version: one, or as many as the workload wants to be run by."""

    def __init__(self, folder: Path, version: str, limits: Limits, threads: int, processes: int) -> None:
        self._folder = folder
        self._members: list[Child] = []
        try:
            for _ in range(processes):
                self._members.append(Child(folder, version, limits, threads))
        except BaseException:
            self.kill()
            raise

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *exception: Any) -> None:
        for child in self._members:
            child.__exit__(*exception)

    def kill(self) -> None:
        """End them all."""
        for child in self._members:
            child.kill()

    def prepare(self, request: messages.Prepare) -> None:
        """Have every member import the workload and join the group. Raises WorkloadError."""
        rendezvous = str(self._folder / f".rendezvous-{os.urandom(4).hex()}")
        many = len(self._members)
        self._ask_each(
            [
                msgspec.structs.replace(request, rank=rank, processes=many, rendezvous=rendezvous)
                for rank in range(many)
            ],
            messages.Done,
        )

    def ask(self, request: messages.Request, expected: type[T]) -> T:
        """Put the same request to all, and give the first one's answer. Raises WorkloadError."""
        requests = [request] * len(self._members)
        if isinstance(request, messages.Compute):  # each needs files of its own
            requests = [
                msgspec.structs.replace(request, outputs=request.outputs + (f".{rank}" if rank else ""))
                for rank in range(len(self._members))
            ]
        return self._ask_each(requests, expected)[0]

    def _ask_each(self, requests: Sequence[messages.Request], expected: type[T]) -> list[T]:
        for child, request in zip(self._members, requests, strict=True):
            child.send(request)
        return [child.receive(expected) for child in self._members]


def memory_of_tree(pid: int, enough: int) -> int:
    """The bytes of memory of a process and its descendants; 0 on systems without /proc.

    Pages that processes share are counted once. That takes time, so it is done only where the simple sum exceeds
    `enough`.
    """
    processes = _descendants(pid)
    simple = sum(_resident(process) for process in processes)
    return simple if simple <= enough else sum(_proportional(process) for process in processes)


def _descendants(pid: int) -> list[int]:
    found = [pid]
    for process in found:
        for tasks in Path(f"/proc/{process}/task").glob("*/children"):
            try:
                found += [int(child) for child in tasks.read_text().split()]
            except OSError:
                continue  # it has ended meanwhile
    return found


def _resident(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _proportional(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().split("\n")
    except OSError:
        return _resident(pid)
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def _has_ended(pid: int) -> bool:
    """Whether a child process has died; it is left for its owner to wait for."""
    if not hasattr(os, "waitid"):
        return False
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _environment(threads: int) -> dict[str, str]:
    """The same for every child, so that only the code under test differs."""
    return {
        **os.environ,
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": str(threads),
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",  # PyTorch notes, "Reproducibility": makes cuBLAS deterministic
        **({"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}),  # a host name may not resolve
    }
