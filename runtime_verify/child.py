"""What runs inside a child process: it imports one version of a workload, and does with it what the parent asks.

Requests come on standard input, replies go to standard output; whatever the workload prints goes to standard error,
which the parent keeps. When the parent is gone, so are this process and all that it started.
"""

from __future__ import annotations

import importlib
import os
import queue
import random
import signal
import sys
import threading
import traceback
from collections import Counter
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from torch.utils.benchmark import Timer

from . import counters, cuda_counters, messages
from .comparison import flatten
from .simulated_gpu import DEVICE, SimulatedGpu

if TYPE_CHECKING:
    from collections.abc import Callable

_TIMED_COUNTS = 3
"""How many runs the median of a counter of seconds is taken of."""


_Counted = tuple[dict[str, float], str]


class Server:
    """One version of a workload, ready to be run, counted and timed."""

    def __init__(self) -> None:
        self._workload: Any = None
        self._device = torch.device("cpu")
        self._scale = 1
        self._threads = 1
        self._state: Any = None

    def serve(self, request: messages.Request) -> messages.Reply:
        """Do what is asked."""
        match request:
            case messages.Prepare():
                return self._prepare(request)
            case messages.Compute():
                return self._compute(request)
            case messages.Count():
                return self._count(request)
            case messages.SetUp():
                return self._set_up(request)
            case messages.Time():
                return self._time(request.number)
            case messages.Snapshot():
                state = self._fresh(request.seed)
                cuda_counters.save_memory_snapshot(lambda: self._workload.run(state), request.path)
                return messages.Done()

    def _prepare(self, request: messages.Prepare) -> messages.Reply:
        self._device = torch.device(request.device)
        self._scale, self._threads = request.scale, request.threads
        torch.set_num_threads(request.threads)
        if self._device.type == "cuda":
            _, total = torch.cuda.mem_get_info()
            torch.cuda.set_per_process_memory_fraction(min(request.memory / total, 1.0))
        if request.processes > 1:
            torch.distributed.init_process_group(
                "gloo", f"file://{request.rendezvous}", rank=request.rank, world_size=request.processes
            )
        self._workload = importlib.import_module(request.module)
        return messages.Done()

    def _fresh(self, seed: int, device: torch.device | None = None) -> Any:
        _seed(seed)
        return self._workload.setup(device or self._device, self._scale)

    def _compute(self, request: messages.Compute) -> messages.Reply:
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
        state = self._fresh(request.seed)
        dropped: tuple[str, ...] = ()
        if request.weights_to:
            torch.save(self._workload.model_of(state).state_dict(), request.weights_to)
        if request.weights_from:
            weights = torch.load(request.weights_from, map_location=self._device, weights_only=True)
            found = self._workload.model_of(state).load_state_dict(weights, strict=False)
            if found.missing_keys:
                raise RuntimeError(f"the fixed model has weights that the original has not: {found.missing_keys}")
            dropped = tuple(found.unexpected_keys)
        _seed(request.seed)
        outputs = flatten(self._workload.run(state))
        torch.save(outputs, request.outputs)
        torch.backends.cudnn.deterministic = False
        return messages.Computed(dropped)

    def _count(self, request: messages.Count) -> messages.Reply:
        counts: dict[str, float] = {}
        ways: dict[str, str] = {}
        passes: list[Callable[[int], _Counted]] = [self._count_operators, self._count_waits]
        passes += [self._count_on_gpu] if self._device.type == "cuda" else [self._count_crossings]
        passes += [self._count_graph_breaks] if request.with_graph_breaks else []
        for count in passes:
            found, way = count(request.seed)
            counts |= found
            ways |= dict.fromkeys(found, way)
        return messages.Counted(counts, ways)

    def _warm(self, seed: int, device: torch.device | None = None) -> Any:
        """A state that has run once, so that what is made on first use is not counted."""
        state = self._fresh(seed, device)
        self._workload.run(state)
        return state

    def _count_operators(self, seed: int) -> _Counted:
        state = self._warm(seed)
        opposite = self._device.type if self._device.type != "cpu" else None
        with counters.OperatorCounter(opposite) as operators, counters.SavedTensorCounter() as saved:
            self._workload.run(state)
        keys = ["operator_calls", "bytes_allocated", "bytes_copied", "peak_memory", "saved_tensors", "saved_bytes"]
        keys += ["host_syncs", "copies_to_host", "copies_to_device", "bytes_to_device"] if opposite else []
        counts = operators.counts + saved.counts
        return {key: counts[key] for key in keys}, "operators"

    def _count_crossings(self, seed: int) -> _Counted:
        with SimulatedGpu():
            state = self._warm(seed, DEVICE)
            with counters.OperatorCounter(DEVICE.type) as operators:
                self._workload.run(state)
        keys = ("host_syncs", "copies_to_host", "copies_to_device", "bytes_to_device")
        return {key: operators.counts[key] for key in keys}, "operators, on a simulated GPU"

    def _count_waits(self, seed: int) -> _Counted:
        state = self._fresh(seed)
        seconds = []
        for _ in range(_TIMED_COUNTS):
            with counters.loader_wait() as wait:
                self._workload.run(state)
            if not wait.batches:
                return {}, ""
            seconds.append(wait.seconds)
        return {"loader_wait": median(seconds)}, f"median of {_TIMED_COUNTS} runs"

    def _count_on_gpu(self, seed: int) -> _Counted:
        state = self._warm(seed)

        def run() -> None:
            self._workload.run(state)

        counts = Counter(peak_memory=cuda_counters.peak_memory(run))
        with cuda_counters.sync_warnings() as warned:
            run()
        counts += warned
        counts += cuda_counters.profiled(run)
        keys = ("peak_memory", "sync_warnings", "stream_syncs", "memcpy_dtoh", "memcpy_htod", "kernel_launches")
        return {key: counts[key] for key in keys}, "the GPU's driver and allocator"

    def _count_graph_breaks(self, seed: int) -> _Counted:
        state = self._warm(seed)
        return {"graph_breaks": counters.graph_breaks(self._workload.run, state)}, "torch._dynamo.explain"

    def _set_up(self, request: messages.SetUp) -> messages.Reply:
        self._state = self._fresh(request.seed)
        self._workload.run(self._state)
        return messages.Done()

    def _time(self, number: int) -> messages.Reply:
        names = {"run": self._workload.run, "state": self._state}
        timer = Timer("run(state)", globals=names, num_threads=self._threads)
        return messages.Timed(timer.timeit(number).median)


def _seed(seed: int) -> None:
    random.seed(seed)
    torch.manual_seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed)


def main() -> None:
    """Answer requests until there are no more."""
    requests, replies = _channel()
    server = Server()
    while True:
        line = requests.get()
        request = msgspec.json.decode(line, type=messages.Request)
        try:
            reply = server.serve(request)
        except Exception as error:
            traceback.print_exc()
            reply = messages.Failed(_one_line(error), isinstance(error, MemoryError | torch.OutOfMemoryError))
        sys.stdout.flush()
        sys.stderr.flush()
        os.write(replies, msgspec.json.encode(reply) + b"\n")


def _channel() -> tuple[queue.SimpleQueue[bytes], int]:
    """The requests, and where replies are written to: standard input and output, which the workload does not get.

    Input is read by its number: DataLoader workers close `sys.stdin`, and would wait for the lock of a reader.
    """
    asked, replies = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(asked, requests), daemon=True).start()
    return requests, replies


def _read(asked: int, requests: queue.SimpleQueue[bytes]) -> None:
    rest = b""
    while data := os.read(asked, 65_536):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            requests.put(line)
    _end_group()


def _end_group() -> None:
    """End this process and its descendants: the parent has closed its side, or is gone."""
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(0)


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:300]


if __name__ == "__main__":
    sys.path.insert(0, str(Path.cwd()))
    main()
