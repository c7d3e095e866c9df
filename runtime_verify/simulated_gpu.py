"""A GPU that is not there: tensors on it hold their values in host memory, so that a program runs as it would.

What crosses between host and device, and who waits for whom, can be counted with it on a machine without a GPU. Its
device is called `meta`, for which torch has a device guard everywhere; code under test moves tensors to it as to any
other (`.to(device)`, `device=device`). Kernels run on the CPU: times and memory on it mean nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map

if TYPE_CHECKING:
    from collections.abc import Callable

DEVICE = torch.device("meta")

# They store what Python gives them in host memory, out of sight of the dispatcher, and move it afterwards.
_FROM_PYTHON = (torch.tensor, torch.as_tensor, torch.asarray)


class DeviceTensor(torch.Tensor):
    """A tensor on the simulated GPU. `host_values` holds what it holds."""

    host_values: torch.Tensor

    @staticmethod
    def __new__(cls, host_values: torch.Tensor) -> DeviceTensor:
        wrapper: DeviceTensor = torch.Tensor._make_wrapper_subclass(
            cls,
            host_values.size(),
            strides=host_values.stride(),
            storage_offset=host_values.storage_offset(),
            dtype=host_values.dtype,
            layout=host_values.layout,
            device=DEVICE,
        )
        wrapper.host_values = host_values
        return wrapper

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, operator: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return _on_host(operator, args, kwargs or {})

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"DeviceTensor({self.host_values!r})"

    def tolist(self) -> Any:
        """The values as Python numbers, by way of the host, as for every tensor of a GPU."""
        return self.cpu().tolist()


class SimulatedGpu:
    """While it is entered, tensors can be made on `DEVICE` and moved there and back."""

    def __enter__(self) -> SimulatedGpu:
        self._modes = (_Operators(), _Constructors())  # type: ignore[no-untyped-call]
        for mode in self._modes:
            mode.__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *exception: Any) -> None:
        for mode in reversed(self._modes):
            mode.__exit__(*exception)  # type: ignore[no-untyped-call]


class _Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Catches the operators that make a tensor on the device without taking one."""

    def __torch_dispatch__(
        self, operator: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return _on_host(operator, args, kwargs or {})


class _Constructors(TorchFunctionMode):
    """Has Python values made into a host tensor first and then moved, which is what torch does for a real GPU."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        device = kwargs.get("device")
        if function not in _FROM_PYTHON or device is None or torch.device(device) != DEVICE:
            return function(*args, **kwargs)
        requires_grad = kwargs.pop("requires_grad", False)
        moved = function(*args, **{**kwargs, "device": "cpu"}).to(DEVICE)
        return moved.requires_grad_() if requires_grad else moved


def _on_host(operator: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operator on the host values, and put its result where the operator would have put it."""
    taken = [value for value in tree_iter((args, kwargs)) if isinstance(value, torch.Tensor)]
    on_device = any(isinstance(tensor, DeviceTensor) for tensor in taken)
    if kwargs.get("device") is not None:
        on_device = torch.device(kwargs["device"]) == DEVICE
        kwargs = {**kwargs, "device": torch.device("cpu")}
    elif taken and operator.__name__.startswith("copy_"):
        on_device = isinstance(args[0], DeviceTensor)
    result = operator(*tree_map(_host, args), **tree_map(_host, kwargs))
    given = {id(tensor.host_values): tensor for tensor in taken if isinstance(tensor, DeviceTensor)}

    def place(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not on_device:
            return value
        # What an in-place operator returns is the tensor that it was given.
        return given[id(value)] if id(value) in given else DeviceTensor(value)

    return tree_map(place, result)


def _host(value: Any) -> Any:
    if isinstance(value, DeviceTensor):
        return value.host_values
    if isinstance(value, torch.Tensor) and value.device == DEVICE:
        raise RuntimeError("a tensor was made on the simulated GPU in a way that loses its values")
    return value
