"""Counters of what a program does: what crosses between host and device, what is allocated, kept and awaited.

They see operators below autograd, by `TorchDispatchMode`, so the backward and the optimizer are counted like the
forward. Operators that run inside other operators' kernels are out of view. `cuda_counters` adds what only a GPU shows.
"""

from __future__ import annotations

import time
import weakref
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from torch.utils.data import DataLoader, dataloader

from .records import Unit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


class Description(NamedTuple):
    """What a counter is called where it is shown, and what it counts."""

    label: str
    unit: Unit


DESCRIPTIONS: Mapping[str, Description] = {
    "host_syncs": Description("host waits for the device", Unit.COUNT),
    "copies_to_host": Description("copies from device to host", Unit.COUNT),
    "copies_to_device": Description("copies from host to device", Unit.COUNT),
    "bytes_to_device": Description("copied from host to device", Unit.BYTES),
    "bytes_copied": Description("copied from tensor to tensor", Unit.BYTES),
    "operator_calls": Description("operator calls", Unit.COUNT),
    "bytes_allocated": Description("allocated by operators", Unit.BYTES),
    "peak_memory": Description("peak memory of tensors", Unit.BYTES),
    "saved_tensors": Description("tensors saved for backward", Unit.COUNT),
    "saved_bytes": Description("saved for backward", Unit.BYTES),
    "loader_wait": Description("waiting for the DataLoader", Unit.SECONDS),
    "graph_breaks": Description("graph breaks of torch.compile", Unit.COUNT),
    "sync_warnings": Description("warnings of set_sync_debug_mode", Unit.COUNT),
    "stream_syncs": Description("cudaStreamSynchronize calls", Unit.COUNT),
    "memcpy_dtoh": Description("Memcpy DtoH events", Unit.COUNT),
    "memcpy_htod": Description("Memcpy HtoD events", Unit.COUNT),
    "kernel_launches": Description("kernel launches", Unit.COUNT),
}
"""Every counter by the key that a bench's `CLAIMS` name it by."""

# Their results' shapes depend on values, for which the host waits (PyTorch documentation, `torch.nonzero`: "causes
# host-device synchronization"); `equal` answers with a Python bool.
_SHAPED_BY_VALUES = {"nonzero", "masked_select", "_unique", "_unique2", "unique_dim", "unique_consecutive", "equal"}
_INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_"}

# Operators that do nothing but move values from one tensor to another.
_MOVES = {
    *("copy_", "_to_copy", "clone", "cat", "stack", "hstack", "vstack", "dstack", "repeat", "_foreach_copy_"),
    *("contiguous", "pad", "constant_pad_nd", "roll"),
}


class OperatorCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts while it is entered. `device` is the type of the device that stands opposite the host, None for none."""

    def __init__(self, device: str | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counter[str] = Counter()
        self._device = device
        self._alive = self._most_alive = self._existing = 0
        self._known: weakref.WeakSet[torch.UntypedStorage] = weakref.WeakSet()

    def __torch_dispatch__(
        self, operator: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        for tensor in _tensors((args, kwargs)):
            self._existing += self._meet(tensor.untyped_storage())
        result = operator(*args, **kwargs)
        name = operator.__name__.partition(".")[0]
        self.counts["operator_calls"] += 1
        self._count_allocations(result)
        if name in _MOVES:
            moved = args[0] if name == "_foreach_copy_" else result
            self.counts["bytes_copied"] += sum(_size(tensor) for tensor in _tensors(moved))
        if self._device is not None:
            self._count_crossings(name, args, kwargs, result)
        return result

    def _count_allocations(self, result: Any) -> None:
        for tensor in _tensors(result):
            size = self._meet(tensor.untyped_storage())
            self.counts["bytes_allocated"] += size
            self._alive += size
        self._most_alive = max(self._most_alive, self._alive)
        # What operators took and none of them made was there from the beginning, whenever it was first met.
        self.counts["peak_memory"] = self._existing + self._most_alive

    def _meet(self, storage: torch.UntypedStorage) -> int:
        """The bytes of a storage that was not seen before, which is followed to its end; 0 for a known one."""
        if storage in self._known:
            return 0
        self._known.add(storage)
        weakref.finalize(storage, self._release, storage.nbytes()).atexit = False
        return storage.nbytes()

    def _release(self, size: int) -> None:
        self._alive -= size

    def _count_crossings(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        if name in ("_to_copy", "copy_"):
            source = args[0] if name == "_to_copy" else args[1]
            target = result if name == "_to_copy" else args[0]
            waits = not (kwargs.get("non_blocking") or (name == "copy_" and len(args) > 2 and args[2]))
            self._count_copy(source, target, waits)
        elif name == "_local_scalar_dense" or name in _SHAPED_BY_VALUES:
            self.counts["host_syncs"] += self._is_on_device(args[0])
        elif name in _INDEXING and self._is_on_device(args[0]):
            masks = (torch.bool, torch.uint8)
            self.counts["host_syncs"] += any(tensor.dtype in masks for tensor in _tensors(args[1]))

    def _count_copy(self, source: torch.Tensor, target: torch.Tensor, waits: bool) -> None:
        if self._is_on_device(source) and not self._is_on_device(target):
            self.counts["copies_to_host"] += 1
            self.counts["host_syncs"] += waits
        elif self._is_on_device(target) and not self._is_on_device(source):
            self.counts["copies_to_device"] += 1
            self.counts["bytes_to_device"] += _size(target)

    def _is_on_device(self, tensor: torch.Tensor) -> bool:
        return tensor.device.type == self._device


class SavedTensorCounter(torch.autograd.graph.saved_tensors_hooks):
    """Counts what autograd keeps for a backward while it is entered.

    A tensor that two operators keep is counted twice, its bytes once for each storage; parameters and other leaves are
    kept by the program anyway, and are not counted.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._storages: weakref.WeakSet[torch.UntypedStorage] = weakref.WeakSet()
        super().__init__(self._pack, lambda tensor: tensor)

    def __enter__(self) -> SavedTensorCounter:  # type: ignore[override]
        super().__enter__()
        return self

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor:
        if isinstance(tensor, torch.nn.Parameter):
            return tensor
        self.counts["saved_tensors"] += 1
        if tensor.untyped_storage() not in self._storages:
            self._storages.add(tensor.untyped_storage())
            self.counts["saved_bytes"] += tensor.untyped_storage().nbytes()
        return tensor


class LoaderWait:
    """The seconds that this thread spends in DataLoaders: starting their iterators, and waiting for batches."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.batches = 0

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def wait(*args: Any) -> Any:
            begun = time.perf_counter()
            try:
                return function(*args)
            finally:
                self.seconds += time.perf_counter() - begun

        return wait


@contextmanager
def loader_wait() -> Iterator[LoaderWait]:
    """Measure what DataLoaders make the program wait while the context is entered."""
    measured = LoaderWait()
    iterator = dataloader._BaseDataLoaderIter
    start, draw = DataLoader.__iter__, iterator.__next__
    timed = measured._timed(draw)

    def draw_counted(*args: Any) -> Any:
        batch = timed(*args)
        measured.batches += 1
        return batch

    DataLoader.__iter__ = measured._timed(start)  # type: ignore[method-assign]
    iterator.__next__ = draw_counted  # type: ignore[method-assign, assignment]
    try:
        yield measured
    finally:
        DataLoader.__iter__, iterator.__next__ = start, draw  # type: ignore[method-assign]


def graph_breaks(function: Callable[..., Any], *args: Any) -> int:
    """In how many places `torch.compile` would leave the graph of a call."""
    torch._dynamo.reset()
    try:
        return len(torch._dynamo.explain(function)(*args).break_reasons)
    finally:
        torch._dynamo.reset()


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    return (value for value in tree_iter(values) if isinstance(value, torch.Tensor))


def _size(tensor: torch.Tensor) -> int:
    """The bytes of a tensor's elements."""
    return tensor.numel() * tensor.element_size()
