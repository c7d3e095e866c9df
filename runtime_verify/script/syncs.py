"""Counts where Python waits for the device, while a script runs.

On a GPU these are reads of device tensors. Without one, every read of a tensor counts as if the tensor lived on a GPU,
but for what stays on the host there too: the sampler and the loading of a DataLoader, and an optimizer's step counters.
"""

from __future__ import annotations

import functools
import os
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Operators whose result needs values of the tensor on the host: a number, or a size that depends on the values.
# (PyTorch documentation, `torch.cuda.set_sync_debug_mode`; `aten/src/ATen/native/cuda`.)
_READS = frozenset(
    {"aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::equal", "aten::is_nonzero"}
    | {"aten::_unique2", "aten::unique_dim", "aten::unique_consecutive", "aten::repeat_interleave.Tensor"}
    | {"aten::bincount"}
)
_INDEXING = frozenset({"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"})
_COPIES = frozenset({"aten::_to_copy", "aten::copy_"})
# On a host tensor they call no operator, so they are counted where Python calls them.
_HOST_METHODS = ("cpu", "tolist", "numpy")


class SyncCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts while it is entered. `paused` and `hold` keep host tensors from being counted."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.on_device = False
        self._device_kinds: Counter[str] = Counter()
        self._host_kinds: Counter[str] = Counter()
        self._moved: torch.Tensor | None = None
        self._pauses = 0
        self._process = os.getpid()

    @property
    def counted(self) -> Counter[str]:
        """Reads by kind: those of device tensors where there are any, else those of host tensors."""
        return self._device_kinds if self.on_device else self._host_kinds

    @property
    def total(self) -> int:
        """How many reads there were so far."""
        return sum(self.counted.values())

    @contextmanager
    def paused(self) -> Iterator[None]:
        """While it is entered, reads of host tensors are not counted."""
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1

    def hold(self, *_: Any) -> None:
        """Begin a pause; `release` ends it."""
        self._pauses += 1

    def release(self, *_: Any) -> None:
        """End a pause that `hold` began."""
        self._pauses = max(0, self._pauses - 1)

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = operator._schema.name
        if os.getpid() == self._process:
            if not self.on_device:
                self.on_device = any(_is_on_device(value) for value in tree_iter((args, kwargs)))
            if name in _READS or f"{name}.{operator._overloadname}" in _READS or _reads_mask(name, args):
                self._note(name, args[0] if args else None)
            elif name in _COPIES and _is_blocking_copy_to_host(name, args, kwargs):
                self._note(f"{name} to the host", args[1] if name == "aten::copy_" else args[0])
        return operator(*args, **kwargs)

    def note_method(self, name: str, tensor: torch.Tensor) -> None:
        """Count a call of a method that reads a host tensor without an operator."""
        if os.getpid() == self._process and tensor.device.type == "cpu":
            self._note(f"Tensor.{name}", tensor)
            self._moved = tensor if name == "cpu" else None

    def _note(self, kind: str, tensor: Any) -> None:
        if isinstance(tensor, torch.Tensor) and _is_on_device(tensor):
            self._device_kinds[kind] += 1
        elif not self._pauses and (tensor is None or tensor is not self._moved):
            # In `x.cpu().numpy()` the second call reads what is on the host already.
            self._host_kinds[kind] += 1


def watch_host_methods(counter: SyncCounter) -> None:
    """Have `Tensor.cpu`, `tolist` and `numpy` counted on host tensors, once for each chain of them."""
    for name in _HOST_METHODS:
        setattr(torch.Tensor, name, _counted(counter, name, getattr(torch.Tensor, name)))


def _counted(counter: SyncCounter, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def wrapper(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        counter.note_method(name, tensor)
        with counter.paused():
            return method(tensor, *args, **kwargs)

    return wrapper


def _is_on_device(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type not in ("cpu", "meta")


def _reads_mask(name: str, args: tuple[Any, ...]) -> bool:
    """Whether an indexing operator is given a mask, which it has to turn into positions first."""
    return (
        name in _INDEXING
        and len(args) > 1
        and any(isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8) for index in args[1])
    )


def _is_blocking_copy_to_host(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    if kwargs.get("non_blocking"):
        return False
    if name == "aten::copy_":
        return _is_on_device(args[1]) and not _is_on_device(args[0]) and not (len(args) > 2 and args[2])
    device = kwargs.get("device")
    return device is not None and torch.device(device).type == "cpu" and _is_on_device(args[0])
