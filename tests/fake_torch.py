"""A stand-in for torch: just enough of its meaning to run a piece of code before and after a fix and compare.

Tensors are lists of numbers with a shape, a dtype and a device. Values, shapes, dtype promotion, in-place `+=`, grad
mode and whether a tensor has a history are torch's; gradients are not computed. `state` counts the reads and moves that
the fixes are there to save.
"""

from __future__ import annotations

import functools
import inspect
import math
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pytest

Number = bool | int | float

bool_, int64, float32, float64 = "torch.bool", "torch.int64", "torch.float32", "torch.float64"
_RANK = [bool_, int64, float32, float64]


class _State:
    """What is global in torch, and what is counted."""

    grad_enabled = True
    syncs = 0
    moves = 0


state = _State()


class Tensor:
    """Numbers in row-major order. `graph` says that a backward could start here."""

    def __init__(
        self, values: Sequence[Number], shape: tuple[int, ...], dtype: str, device: str = "cpu", graph: bool = False
    ) -> None:
        assert len(values) == math.prod(shape), (values, shape)
        self.values, self.shape, self.dtype, self.device = list(values), shape, dtype, device
        self.graph = graph
        self.grad: Tensor | None = None

    # Reads and moves

    def item(self) -> Number:
        state.syncs += 1
        (value,) = self.values
        return value

    def tolist(self) -> Any:
        state.syncs += 1
        rows: Any = list(self.values)
        for size in reversed(self.shape[1:]):
            rows = [rows[start : start + size] for start in range(0, len(rows), size)]
        return rows if self.shape else rows[0]

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def to(self, target: Any = None, non_blocking: bool = False, device: Any = None) -> Tensor:
        target = device if target is None else target
        if target in _RANK:
            return self._like(self.values, dtype=target)
        if str(target) == self.device:
            return self
        state.moves += 1
        moved = self._like(self.values)
        moved.device = str(target)
        return moved

    def cuda(self, index: int | None = None) -> Tensor:
        return self.to("cuda" if index is None else f"cuda:{index}")

    def cpu(self) -> Tensor:
        state.syncs += 1
        return self.to("cpu")

    # History

    @property
    def requires_grad(self) -> bool:
        return self.graph

    def detach(self) -> Tensor:
        return Tensor(self.values, self.shape, self.dtype, self.device)

    def backward(self) -> None:
        assert self.graph, "element 0 of tensors does not require grad"

    def _like(self, values: Sequence[Number], dtype: str | None = None, *others: Tensor) -> Tensor:
        graph = state.grad_enabled and any(tensor.graph for tensor in (self, *others))
        return Tensor(values, self.shape, dtype or self.dtype, self.device, graph)

    # Arithmetic

    def _combine(self, other: Tensor | Number, operation: Callable[[Any, Any], Any]) -> Tensor:
        if not isinstance(other, Tensor):
            kind = bool_ if isinstance(other, bool) else int64 if isinstance(other, int) else float32
            dtype = kind if self.dtype in (bool_, int64) and kind == float32 else self.dtype
            return self._like([operation(value, other) for value in self.values], dtype)
        if self.shape != other.shape:
            small, large = sorted((self, other), key=lambda tensor: len(tensor.values))
            assert not small.shape, (self.shape, other.shape)
            spread = Tensor(small.values * len(large.values), large.shape, small.dtype, large.device, small.graph)
            return (spread if small is self else self)._combine(spread if small is other else other, operation)
        assert self.device == other.device or not self.shape or not other.shape, (self.device, other.device)
        dtype = _promoted(self, other)
        values = [operation(a, b) for a, b in zip(self.values, other.values, strict=True)]
        return self._like(values, dtype, other)

    def __add__(self, other: Tensor | Number) -> Tensor:
        return self._combine(other, lambda a, b: a + b)

    __radd__ = __add__

    def __iadd__(self, other: Tensor | Number) -> Tensor:
        """In place, as torch: what else names this tensor sees the sum."""
        total = self + other
        assert _RANK.index(total.dtype) <= max(_RANK.index(self.dtype), 2), "result type can't be cast"
        self.values, self.graph = total.values, total.graph
        return self

    def __mul__(self, other: Tensor | Number) -> Tensor:
        return self._combine(other, lambda a, b: a * b)

    __rmul__ = __mul__

    def __sub__(self, other: Tensor | Number) -> Tensor:
        return self._combine(other, lambda a, b: a - b)

    def __truediv__(self, other: Tensor | Number) -> Tensor:
        divided = self._combine(other, lambda a, b: a / b)
        divided.dtype = float32 if divided.dtype in (bool_, int64) else divided.dtype
        return divided

    def __eq__(self, other: object) -> Tensor:  # type: ignore[override]
        assert isinstance(other, Tensor | int | float)
        compared = self._combine(other, lambda a, b: a == b)
        compared.dtype, compared.graph = bool_, False
        return compared

    __hash__ = object.__hash__

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: int) -> Tensor:
        if not 0 <= index < len(self):
            raise IndexError(index)
        width = math.prod(self.shape[1:])
        values = self.values[index * width : (index + 1) * width]
        return Tensor(values, self.shape[1:], self.dtype, self.device, self.graph and state.grad_enabled)

    # Reductions and shapes

    def size(self, dim: int) -> int:
        return self.shape[dim]

    def float(self) -> Tensor:
        return self._like([*map(float, self.values)], float32)

    def sum(self) -> Tensor:
        dtype = int64 if self.dtype == bool_ else self.dtype
        total = sum(self.values, 0 if dtype == int64 else 0.0)
        return Tensor([total], (), dtype, self.device, self.graph and state.grad_enabled)

    def mean(self) -> Tensor:
        return self.sum() / len(self.values)

    def argmax(self, dim: int) -> Tensor:
        assert dim in (1, -1)
        assert len(self.shape) == 2
        rows = [self[number].values for number in range(len(self))]
        return Tensor([row.index(max(row)) for row in rows], self.shape[:1], int64, self.device)

    def view(self, *shape: int) -> Tensor:
        return Tensor(self.values, shape, self.dtype, self.device, self.graph)

    def unsqueeze(self, dim: int) -> Tensor:
        assert dim == 0
        return self.view(1, *self.shape)


def _promoted(*tensors: Tensor) -> str:
    """The dtype of a result: the highest, where tensors without dimensions count only if they are of a higher kind."""
    sized = [tensor for tensor in tensors if tensor.shape]
    ranked = sorted((t.dtype for t in sized or tensors), key=_RANK.index)
    kinds = [min(_RANK.index(tensor.dtype), 2) for tensor in tensors]
    return ranked[-1] if max(kinds) <= min(_RANK.index(ranked[-1]), 2) else float32


# Factories


def _filled(number: Number, size: tuple[Any, ...], dtype: str, device: Any) -> Tensor:
    shape = tuple(size[0]) if size and isinstance(size[0], tuple | list) else size
    value = number if dtype == float32 else int(number)
    return Tensor([value] * math.prod(shape), shape, dtype, str(device))


def zeros(*size: Any, dtype: str = float32, device: Any = "cpu") -> Tensor:
    return _filled(0.0, size, dtype, device)


def ones(*size: Any, dtype: str = float32, device: Any = "cpu") -> Tensor:
    return _filled(1.0, size, dtype, device)


def empty(*size: Any, dtype: str = float32, device: Any = "cpu") -> Tensor:
    return _filled(0.0, size, dtype, device)


def full(size: Any, fill_value: Number, device: Any = "cpu") -> Tensor:
    return _filled(fill_value, (size,), int64 if isinstance(fill_value, int) else float32, device)


def arange(start: int, end: int | None = None, device: Any = "cpu") -> Tensor:
    counted = [*range(start)] if end is None else [*range(start, end)]
    return Tensor(counted, (len(counted),), int64, str(device))


def eye(n: int, device: Any = "cpu") -> Tensor:
    return Tensor([float(row == column) for row in range(n) for column in range(n)], (n, n), float32, str(device))


def tensor(data: Any, dtype: str | None = None, device: Any = "cpu") -> Tensor:
    shape: list[int] = []
    values = [data]
    while values and isinstance(values[0], list | tuple):
        shape.append(len(values[0]))
        values = [value for row in values for value in row]
    kinds = {type(value) for value in values}
    inferred = float32 if float in kinds or not values else int64 if int in kinds else bool_
    return Tensor(values, tuple(shape), dtype or inferred, str(device))


# Joins


def cat(tensors: Iterable[Tensor], dim: int = 0) -> Tensor:
    given = [*tensors]
    assert given, "expected a non-empty list of Tensors"
    parts = [part for part in given if part.shape != (0,)] or given[
        :1
    ]  # torch skips empty vectors, whatever the rest is
    ranks = {len(part.shape) for part in parts}
    assert ranks <= {1, 2}, "zero-dimensional tensor cannot be concatenated"
    assert len(ranks) == 1, "Tensors must have same number of dimensions"
    (rank,) = ranks
    graph = state.grad_enabled and any(part.graph for part in given)
    if dim % rank == 0:
        assert len({part.shape[1:] for part in parts}) == 1, [part.shape for part in parts]
        values = [value for part in parts for value in part.values]
        shape = (sum(len(part) for part in parts), *parts[0].shape[1:])
    else:
        assert len({len(part) for part in parts}) == 1, [part.shape for part in parts]
        values = [value for row in range(len(parts[0])) for part in parts for value in part[row].values]
        shape = (len(parts[0]), sum(part.shape[1] for part in parts))
    return Tensor(values, shape, _promoted(*given), parts[0].device, graph)


concat = concatenate = cat


def vstack(tensors: Iterable[Tensor]) -> Tensor:
    return cat([part if len(part.shape) > 1 else part.view(1, len(part.values)) for part in tensors])


def hstack(tensors: Iterable[Tensor]) -> Tensor:
    parts = [part if part.shape else part.view(1) for part in tensors]
    return cat(parts, 0 if len(parts[0].shape) == 1 else 1)


# Grad mode


def is_grad_enabled() -> bool:
    return state.grad_enabled


class no_grad:  # noqa: N801 - torch's name
    """A context, and a decorator that holds only while the function, or a step of the generator, runs."""

    def __enter__(self) -> None:
        self.before, state.grad_enabled = state.grad_enabled, False

    def __exit__(self, *_: object) -> None:
        state.grad_enabled = self.before

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def steps(*args: Any, **kwargs: Any) -> Iterator[Any]:
                generator = function(*args, **kwargs)
                while True:
                    with type(self)():
                        try:
                            step = next(generator)
                        except StopIteration as end:
                            return end.value
                    yield step

            return steps

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            with type(self)():
                return function(*args, **kwargs)

        return run


# Modules and optimizers


def Parameter(data: Tensor) -> Tensor:
    return Tensor(data.values, data.shape, data.dtype, data.device, graph=True)


class Module:
    """Calls its forward, knows its parameters, and is in training mode or not."""

    training = True

    def __call__(self, *args: Any) -> Any:
        return self.forward(*args)

    def parameters(self) -> Iterator[Tensor]:
        return (value for value in vars(self).values() if isinstance(value, Tensor) and value.graph)

    def train(self, mode: bool = True) -> Module:
        self.training = mode
        return self

    def eval(self) -> Module:
        return self.train(False)

    def zero_grad(self, set_to_none: bool = True) -> None:
        _clear(self.parameters(), set_to_none)


class SGD:
    def __init__(self, parameters: Iterable[Tensor], lr: float = 0.1) -> None:
        self.parameters = [*parameters]

    def step(self) -> None:
        pass

    def zero_grad(self, set_to_none: bool = True) -> None:
        _clear(self.parameters, set_to_none)


def _clear(parameters: Iterable[Tensor], set_to_none: bool) -> None:
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad = None if set_to_none else zeros(parameter.shape, device=parameter.device)


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `import torch` mean this module, and start counting from zero."""
    state.grad_enabled, state.syncs, state.moves = True, 0, 0
    torch, nn, optim = ModuleType("torch"), ModuleType("torch.nn"), ModuleType("torch.optim")
    vars(torch).update({name: value for name, value in globals().items() if not name.startswith("_")})
    vars(torch).update(bool=bool_, long=int64, nn=nn, optim=optim, device=str)
    vars(nn).update(Module=Module, Parameter=Parameter)
    vars(optim).update(SGD=SGD, Optimizer=SGD)
    for module in (torch, nn, optim):
        monkeypatch.setitem(sys.modules, module.__name__, module)
