"""What only a GPU can show: synchronizations, copies and kernel launches as the driver sees them, and peak memory."""

from __future__ import annotations

import warnings
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

# Names of events in torch.profiler's trace, as CUPTI gives them.
_SYNCHRONIZATION = "cudaStreamSynchronize"
_LAUNCHES = {
    *("cudaLaunchKernel", "cudaLaunchKernelExC", "cudaLaunchCooperativeKernel", "cudaGraphLaunch"),
    *("cuLaunchKernel", "cuLaunchKernelEx"),
}
_WARNING = "synchronizing CUDA operation"


def profiled(call: Callable[[], object]) -> Counter[str]:
    """Run a call under torch.profiler and count the driver's events."""
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        call()
        torch.cuda.synchronize()
    return count_events(event.name for event in profile.events() or ())


def count_events(names: Iterable[str]) -> Counter[str]:
    """The counters that follow from the names of a trace's events."""
    counts = Counter(stream_syncs=0, memcpy_dtoh=0, memcpy_htod=0, kernel_launches=0)
    for name in names:
        counts["stream_syncs"] += name == _SYNCHRONIZATION
        counts["memcpy_dtoh"] += name.startswith("Memcpy DtoH")
        counts["memcpy_htod"] += name.startswith("Memcpy HtoD")
        counts["kernel_launches"] += name in _LAUNCHES
    return counts


@contextmanager
def sync_warnings() -> Iterator[Counter[str]]:
    """Count the synchronizations that `torch.cuda.set_sync_debug_mode` warns of while the context is entered."""
    counts = Counter(sync_warnings=0)
    mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield counts
        finally:
            torch.cuda.set_sync_debug_mode(mode)
            counts["sync_warnings"] = sum(_WARNING in str(warning.message) for warning in caught)


def peak_memory(call: Callable[[], object]) -> int:
    """The bytes that the caching allocator had given out at most during a call, beyond those before it."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def save_memory_snapshot(call: Callable[[], object], path: str) -> None:
    """Write what the allocator did during a call, as PyTorch's memory viewers and Mosaic read it."""
    torch.cuda.memory._record_memory_history(max_entries=100_000)
    try:
        call()
        torch.cuda.synchronize()
        torch.cuda.memory._dump_snapshot(path)  # type: ignore[no-untyped-call]
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
