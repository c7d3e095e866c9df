"""Finds the boundary between steps while a script runs, takes the time of each, and ends the script after enough.

A step ends where an optimizer has stepped. A script that trains nothing has DataLoader iterations for steps, counted
from the first that runs a module.
"""

from __future__ import annotations

import functools
import itertools
import os
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import dataloader

from .exchange import Boundary, End, Request

if TYPE_CHECKING:
    from collections.abc import Callable

LEAST_TIMED = 3
# Another optimizer takes over as the boundary when it has stepped so often in a row.
_TAKEOVER = 20
# A script that catches BaseException goes on; after so many times it is not asked any more.
_PATIENCE = 3


class Stop(BaseException):
    """Ends the script from within. No `except Exception` catches it, and `finally` blocks run."""


@dataclass
class _Mark:
    """A moment; `ends_step` says that what lies between the mark before and this one is a step."""

    moment: Any
    ends_step: bool
    syncs: int


class Steps:
    """The steps of this process. `on_stop` is called once, when the last has ended; `syncs` gives a running total."""

    def __init__(self, request: Request, on_stop: Callable[[], None], syncs: Callable[[], int] | None) -> None:
        self.end: End | None = None
        self.boundary = request.boundary
        self.done = 0
        self.skipped = 0
        self._request = request
        self._on_stop = on_stop
        self._syncs = syncs or (lambda: 0)
        self._clock: _HostClock | _CudaClock = _HostClock()
        self._marks = [self._mark(False)]
        self._timed_from: int | None = None
        self._begun = time.monotonic()
        self._process = os.getpid()
        self._optimizer = 0
        self._others: Counter[int] = Counter()
        self._trains = False
        self._forward_seen = False
        self._epoch_ended = False
        self._asked = 0

    # What the hooks report

    def trains(self) -> None:
        """An optimizer was made, or a backward was called: batches alone are no steps."""
        self._trains = True

    def forward_called(self) -> None:
        """A module was called."""
        self._forward_seen = True

    def optimizer_stepped(self, optimizer: Any) -> None:
        """A step of an optimizer has ended. With several (a GAN's), the first one marks the boundary."""
        if os.getpid() != self._process or self.boundary is Boundary.LOADER:
            return
        if self.boundary is Boundary.AUTO:
            self._is_optimizer()
        if self._is_boundary(id(optimizer)):
            self._step_ended()

    def batch_asked_for(self) -> None:
        """A DataLoader is asked for its next batch: where batches are the steps, the step before has ended."""
        if os.getpid() != self._process or self.boundary is Boundary.OPTIMIZER:
            return
        is_known = self.boundary is Boundary.LOADER
        if self.skipped < self._request.skip if is_known else not self._forward_seen:
            self.skipped += 1
            self._marks = [self._mark(False)]
        elif self._epoch_ended:
            self._marks.append(self._mark(False))
        else:
            self._step_ended()
        self._epoch_ended = False

    def epoch_ended(self) -> None:
        """A DataLoader has no further batch; what follows up to the next one is no step."""
        self._epoch_ended = True

    def finish(self, end: End) -> None:
        """Close the record, once."""
        if self.end is None:
            self.end = end
            if self.boundary is Boundary.AUTO and self.done:
                self.boundary = Boundary.LOADER
            self._clock.settle()
            self._on_stop()

    # What was recorded

    @property
    def clock(self) -> str:
        """What took the times."""
        return self._clock.name

    @property
    def durations(self) -> tuple[float, ...]:
        """The seconds of each timed step."""
        timed = self._timed
        pairs = itertools.pairwise(timed)
        return tuple(self._clock.seconds(a.moment, b.moment) for a, b in pairs if b.ends_step)

    @property
    def elapsed(self) -> float:
        """The seconds from the begin of the first timed step to the end of the last, with all that lies between."""
        return self._clock.seconds(self._timed[0].moment, self._timed[-1].moment) if self._timed else 0.0

    @property
    def syncs(self) -> tuple[int, ...]:
        """The synchronizations up to the end of each timed step, from the end of the one before."""
        ends = [mark for index, mark in enumerate(self._timed) if index == 0 or mark.ends_step]
        return tuple(b.syncs - a.syncs for a, b in itertools.pairwise(ends))

    @property
    def _timed(self) -> list[_Mark]:
        return [] if self._timed_from is None else self._marks[self._timed_from :]

    # Boundaries

    def _is_optimizer(self) -> None:
        """The kind of boundary is known now: what was recorded of batches does not count."""
        self.boundary = Boundary.OPTIMIZER
        self.done = 0
        self._timed_from = None
        self._clock = _HostClock()
        self._marks = [self._mark(False)]

    def _is_boundary(self, optimizer: int) -> bool:
        self._optimizer = self._optimizer or optimizer
        if optimizer != self._optimizer:
            self._others[optimizer] += 1
            if self._others[optimizer] < _TAKEOVER:
                return False
            self._optimizer = optimizer
        self._others.clear()
        return True

    def _step_ended(self) -> None:
        if self.end is not None:
            self._ask_to_stop()
        self.done += 1
        self._marks.append(self._mark(True))
        if self.done == self._request.warmup:
            self._begin_timing()
        if self.boundary is Boundary.AUTO and self._trains:
            return  # steps of an optimizer may still come
        timed = self.done - self._request.warmup
        if self.done >= self._request.steps:
            self._stop(End.REACHED)
        elif timed >= LEAST_TIMED and time.monotonic() - self._begun > self._request.budget:
            self._stop(End.BUDGET)

    def _mark(self, ends_step: bool) -> _Mark:
        return _Mark(self._clock.now(), ends_step, self._syncs())

    def _begin_timing(self) -> None:
        """Empty the queue and the statistics of peaks, then begin to time."""
        self._clock = _CudaClock() if on_cuda() else _HostClock()
        reset_peak_memory()
        self._marks[-1] = self._mark(True)
        self._timed_from = len(self._marks) - 1

    def _stop(self, end: End) -> None:
        self.finish(end)
        self._ask_to_stop()

    def _ask_to_stop(self) -> None:
        self._asked += 1
        if self._asked > _PATIENCE or threading.current_thread() is not threading.main_thread():
            # The script catches everything, or makes its steps in a thread that would end alone.
            sys.stdout.flush()
            os._exit(0)
        raise Stop


class _HostClock:
    name = "host clock"

    def now(self) -> float:
        return time.perf_counter()

    def seconds(self, begin: float, end: float) -> float:
        return end - begin

    def settle(self) -> None:
        """Nothing is queued on the host."""


class _CudaClock:
    """Events in the device's queue: the host need not wait for a time to be taken."""

    name = "CUDA events"

    def __init__(self) -> None:
        torch.cuda.synchronize()

    def now(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def seconds(self, begin: torch.cuda.Event, end: torch.cuda.Event) -> float:
        return float(begin.elapsed_time(end)) / 1e3

    def settle(self) -> None:
        torch.cuda.synchronize()


# Device and memory


def on_cuda() -> bool:
    """Whether this process has used a GPU."""
    return torch.cuda.is_available() and bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def reset_peak_memory() -> None:
    """Begin to look for the peak anew. Resident memory: `proc(5)`, `/proc/pid/clear_refs`, value 5."""
    if on_cuda():
        for index in range(torch.cuda.device_count()):
            torch.cuda.reset_peak_memory_stats(index)
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory() -> tuple[int, str]:
    """The peak in bytes since the reset, and of what: allocated on the devices, else resident in this process."""
    if on_cuda():
        devices = range(torch.cuda.device_count())
        return sum(torch.cuda.max_memory_allocated(index) for index in devices), "device memory"
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024, "resident memory"
    return 0, ""


# Hooks into torch


def install(steps: Steps, survey: bool) -> None:
    """Have torch report to `steps`. A survey also looks for calls of modules, which costs time for each call."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    def stepped(optimizer: Any, args: Any, kwargs: Any) -> None:
        steps.optimizer_stepped(optimizer)

    not_compiled(stepped)
    register_optimizer_step_post_hook(stepped)
    _watch_optimizers(steps)
    _watch_loaders(steps)
    if survey:
        torch.nn.modules.module.register_module_forward_pre_hook(not_compiled(lambda *_: steps.forward_called()))


def _watch_optimizers(steps: Steps) -> None:
    made = torch.optim.Optimizer.__init__

    @functools.wraps(made)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        steps.trains()
        made(self, *args, **kwargs)

    torch.optim.Optimizer.__init__ = init  # type: ignore[method-assign]


def _watch_loaders(steps: Steps) -> None:
    draw = dataloader._BaseDataLoaderIter.__next__

    def next_batch(self: Any) -> Any:
        steps.batch_asked_for()
        try:
            return draw(self)
        except StopIteration:
            steps.epoch_ended()
            raise

    dataloader._BaseDataLoaderIter.__next__ = not_compiled(next_batch)  # type: ignore[method-assign]


def not_compiled(function: Any) -> Any:
    """Keep torch.compile from tracing a hook. (`torch._dynamo.disable` sets the same mark, after a slow import.)"""
    function._torchdynamo_disable = True
    return function
