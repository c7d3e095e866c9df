"""Records what torch did while some work ran, with the source line behind each event.

`torch.profiler` knows the operators, their shapes and their times. Its own stacks name functions, not lines, and an
operator that is written as one (`x[i]`) is no call that they could show. So the work runs below a TorchFunctionMode and
a few of torch's public hooks, each of which opens a `record_function` around what it saw and keeps the line: the
profiler's tree then holds these marks above its operators. Everything that is read afterwards is the public
`profile.events()`.
"""

from __future__ import annotations

import operator
import sys
import sysconfig
from contextlib import ExitStack, contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import ref

import msgspec
import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined]  # documented, but not exported by name
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.overrides import TorchFunctionMode
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.data import DataLoader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

    from torch.autograd.profiler_util import FunctionEvent

_MARK = "torchlint#"
# What passes the mode as well but is no operation: attributes of a tensor, and the opening of marks.
_NO_OPERATION = ("__get__", "__set__", "__delete__", "_record_function_")


class Kind(Enum):
    """What a mark stands for."""

    FUNCTION = "a call of a torch function"
    MODULE = "a forward of a module"
    STEP = "a step of an optimizer"
    BATCH = "a batch from a DataLoader"


class Site(msgspec.Struct, frozen=True, order=True):
    """A line of the user's source; `file` is an absolute path where Python knows one. Lines start at 1."""

    file: str
    line: int


class TensorNote(msgspec.Struct, frozen=True):
    """What is kept of a tensor; `device` is a type such as "cuda", `dtype` a name such as "bfloat16"."""

    device: str
    dtype: str


class Call(msgspec.Struct, frozen=True):
    """One call that was seen, with its number in the order of their beginnings.

    `name` is the function's ("zeros", "__getitem__") or the class's ("Conv2d", "SGD", "DataLoader"). `site` is the
    innermost line of the user's code, `made` the line where the module, optimizer or loader was built. `through` names
    the functions of torch between the line and the call. `argument` is the first tensor given; `subject` tells tensors
    that were given first apart; `sources` are the calls which returned the tensors that were given (-1 if not seen).
    `index` is the integer in `tensor[i]`. `settings` are facts about the object, as text.
    """

    number: int
    kind: Kind
    name: str
    site: Site | None
    made: Site | None = None
    through: tuple[str, ...] = ()
    argument: TensorNote | None = None
    result: TensorNote | None = None
    subject: int = -1
    sources: tuple[int, ...] = ()
    index: int | None = None
    settings: dict[str, str] = {}


class Node(msgspec.Struct, frozen=True):
    """One event of the profiler's tree: an operator, or the mark of a call. `seconds` is its time on the host.

    `shapes` holds a tuple for each argument of an operator, () where the argument is no tensor or was not given.
    """

    name: str
    shapes: tuple[tuple[int, ...], ...]
    seconds: float
    call: Call | None
    children: tuple[Node, ...]

    def walk(self) -> Iterator[Node]:
        """This event and all below it, in the order in which they began."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(reversed(node.children))


class Recording(msgspec.Struct, frozen=True):
    """All that happened, as trees in the order of time. `accelerator` is "cuda" where a GPU was there to be used.

    `capability` is the GPU's compute capability, (0, 0) without one.
    """

    roots: tuple[Node, ...]
    accelerator: str = ""
    capability: tuple[int, int] = (0, 0)

    def walk(self) -> Iterator[Node]:
        """Every event of every thread."""
        for root in self.roots:
            yield from root.walk()

    def calls(self, kind: Kind) -> Iterator[tuple[Call, Node]]:
        """The calls of one kind, in the order of the tree."""
        for node in self.walk():
            if node.call is not None and node.call.kind is kind:
                yield node.call, node


def record(work: Callable[[], object]) -> Recording:
    """Run some work and record what torch did. What the work raises is raised."""
    cuda = torch.cuda.is_available()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    recorder = _Recorder()
    with profile(activities=activities, record_shapes=True) as profiler, recorder.listening():
        work()
        if cuda:
            torch.cuda.synchronize()
    roots = _trees(profiler.events() or (), recorder.calls)
    return Recording(roots, "cuda" if cuda else "", torch.cuda.get_device_capability() if cuda else (0, 0))


def _trees(events: Sequence[FunctionEvent], calls: Sequence[Call]) -> tuple[Node, ...]:
    """The profiler's events on the host as trees."""
    on_host = [event for event in events if event.device_type == DeviceType.CPU and not event.is_async]
    roots = sorted((event for event in on_host if event.cpu_parent is None), key=_begin)
    return tuple(_node(event, calls) for event in roots)


def _node(event: FunctionEvent, calls: Sequence[Call]) -> Node:
    call = calls[int(event.name.removeprefix(_MARK))] if event.name.startswith(_MARK) else None
    return Node(
        call.name if call is not None else event.name,
        _shapes(event),
        (event.time_range.end - event.time_range.start) / 1e6,
        call,
        tuple(_node(child, calls) for child in sorted(event.cpu_children, key=_begin)),
    )


def _shapes(event: FunctionEvent) -> tuple[tuple[int, ...], ...]:
    """A shape for each argument; where the profiler gives a list of shapes, for a list of tensors, none is kept."""
    given: Any = event.input_shapes or ()
    return tuple(tuple(shape) if all(isinstance(size, int) for size in shape) else () for shape in given)


def _begin(event: FunctionEvent) -> float:
    start: float = event.time_range.start
    return start


class _Known:
    """Remembers something about objects for as long as they live, by identity: tensors compare element by element."""

    def __init__(self) -> None:
        self._facts: dict[int, tuple[ref[Any], Any]] = {}

    def set(self, thing: object, fact: object) -> None:
        key = id(thing)
        self._facts[key] = (ref(thing, lambda _, key=key: self._forget(key, _)), fact)  # type: ignore[misc]

    def get(self, thing: object) -> Any:
        held = self._facts.get(id(thing))
        return held[1] if held is not None and held[0]() is thing else None

    def _forget(self, key: int, reference: ref[Any]) -> None:
        # the identity may have gone to another object already
        if key in self._facts and self._facts[key][0] is reference:
            del self._facts[key]


class _Recorder(TorchFunctionMode):
    """Opens a mark in the profiler for each call, and keeps what the call was."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self._made = _Known()
        self._returned = _Known()
        self._subjects = _Known()
        self._subject_count = 0
        self._open: list[tuple[int, record_function]] = []
        self._in_step = 0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Hooks in place, as long as the work runs."""
        with ExitStack() as stack:
            for kind in (torch.nn.Module, Optimizer, DataLoader):
                stack.enter_context(_patched(kind, "__init__", self._noting_birth))
            stack.enter_context(_patched(DataLoader, "__iter__", self._noting_batches))
            for handle in (
                register_module_forward_pre_hook(self._before_forward),
                register_module_forward_hook(self._after_forward, always_call=True),
                register_optimizer_step_pre_hook(self._before_step),
                register_optimizer_step_post_hook(self._after_step),
            ):
                stack.callback(handle.remove)
            with self:
                yield
            while self._open:
                self._close()

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Mark the call of a torch function, and pass it on."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name.startswith(_NO_OPERATION) or self._in_step or torch.compiler.is_compiling():
            return func(*args, **kwargs)
        tensors = list(_tensors((args, kwargs)))
        site, through = _site()
        number = self._add(
            Kind.FUNCTION,
            name,
            site,
            through=through,
            argument=_note(tensors[0]) if tensors else None,
            subject=self._subject(tensors[0]) if tensors else -1,
            sources=tuple(_number(self._returned.get(tensor)) for tensor in tensors),
            index=_index(name, args),
            settings=_math_mode(tensors),
        )
        with record_function(f"{_MARK}{number}"):
            result = func(*args, **kwargs)
        if isinstance(result, torch.Tensor):
            self._returned.set(result, number)
            self.calls[number] = msgspec.structs.replace(self.calls[number], result=_note(result))
        return result

    def _add(self, kind: Kind, name: str, site: Site | None, **facts: Any) -> int:
        number = len(self.calls)
        self.calls.append(Call(number, kind, name, site, **facts))
        return number

    def _subject(self, tensor: torch.Tensor) -> int:
        known = self._subjects.get(tensor)
        if known is None:
            known = self._subject_count
            self._subject_count += 1
            self._subjects.set(tensor, known)
        return int(known)

    def _push(self, number: int) -> None:
        mark = record_function(f"{_MARK}{number}")
        mark.__enter__()  # type: ignore[no-untyped-call]
        self._open.append((number, mark))

    def _close(self) -> None:
        self._open.pop()[1].__exit__(None, None, None)

    def _before_forward(self, module: torch.nn.Module, inputs: object) -> None:
        if not torch.compiler.is_compiling():
            made = self._made.get(module)
            self._push(self._add(Kind.MODULE, type(module).__name__, _site()[0], made=made))

    def _after_forward(self, module: torch.nn.Module, inputs: object, output: object) -> None:
        if self._open and not torch.compiler.is_compiling():
            self._close()

    def _before_step(self, optimizer: Optimizer, arguments: object, keywords: object) -> None:
        self._in_step += 1
        settings = _optimizer_settings(optimizer)
        made = self._made.get(optimizer)
        self._push(self._add(Kind.STEP, type(optimizer).__name__, _site()[0], made=made, settings=settings))

    def _after_step(self, optimizer: Optimizer, arguments: object, keywords: object) -> None:
        self._in_step -= 1
        self._close()

    def _noting_birth(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def noting(built: Any, *args: Any, **kwargs: Any) -> None:
            self._made.set(built, _site()[0])
            original(built, *args, **kwargs)

        return noting

    def _noting_batches(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def noting(loader: DataLoader[Any]) -> Any:
            return _Batches(original(loader), self, loader, _site()[0])

        return noting

    def batch(self, loader: DataLoader[Any], iterator: Any, site: Site | None) -> Any:
        """The next batch, marked; the settings of the last mark say that there was none."""
        settings = {"num_workers": str(loader.num_workers), "delivered": "yes"}
        number = self._add(Kind.BATCH, "DataLoader", site, made=self._made.get(loader), settings=settings)
        with record_function(f"{_MARK}{number}"):
            try:
                return next(iterator)
            except StopIteration:
                ended = {**settings, "delivered": "no"}
                self.calls[number] = msgspec.structs.replace(self.calls[number], settings=ended)
                raise


class _Batches:
    """A DataLoader's iterator, each of whose batches is marked."""

    def __init__(self, iterator: Any, recorder: _Recorder, loader: DataLoader[Any], site: Site | None) -> None:
        self._iterator = iterator
        self._recorder = recorder
        self._loader = loader
        self._site = site

    def __iter__(self) -> _Batches:
        return self

    def __next__(self) -> Any:
        return self._recorder.batch(self._loader, self._iterator, self._site)

    def __len__(self) -> int:
        return len(self._iterator)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)


@contextmanager
def _patched(kind: type, name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """A method replaced for a while."""
    original = getattr(kind, name)
    setattr(kind, name, wrap(original))
    try:
        yield
    finally:
        setattr(kind, name, original)


def _folder(path: str) -> str:
    return str(Path(path).resolve()) + "/"


_OURS = _folder(str(Path(__file__).parent))
_NOT_THE_USERS = (
    _folder(str(Path(torch.__file__).parent)),
    _OURS,
    *(_folder(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")),
)
_INSTALLED = tuple(_folder(sysconfig.get_path(name)) for name in ("purelib", "platlib"))


def _site() -> tuple[Site | None, tuple[str, ...]]:
    """The innermost line that is the user's, and the functions of torch that lie between it and here."""
    frame: FrameType | None = sys._getframe(1)
    through: list[str] = []
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(("<frozen ", *_NOT_THE_USERS, *_INSTALLED)):
            return Site(code.co_filename, frame.f_lineno), tuple(through)
        if not code.co_filename.startswith(_OURS):
            through.append(code.co_name)
        frame = frame.f_back
    return None, tuple(through)


def _tensors(value: object) -> Iterator[torch.Tensor]:
    """The tensors among arguments, also those in lists."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _note(tensor: torch.Tensor) -> TensorNote:
    return TensorNote(tensor.device.type, str(tensor.dtype).removeprefix("torch."))


def _number(known: int | None) -> int:
    return -1 if known is None else known


def _index(name: str, args: Sequence[Any]) -> int | None:
    """The integer by which the first dimension is indexed."""
    if name not in ("__getitem__", "__setitem__") or len(args) < 2:
        return None
    index = args[1][0] if isinstance(args[1], tuple) and args[1] else args[1]
    if isinstance(index, (bool, torch.Tensor)) or not hasattr(index, "__index__"):
        return None
    return operator.index(index)


def _math_mode(tensors: Sequence[torch.Tensor]) -> dict[str, str]:
    """How float32 matrices on a GPU are multiplied: "tf32" or "ieee"."""
    if not any(tensor.is_cuda for tensor in tensors):
        return {}
    precision = torch.backends.cuda.matmul.fp32_precision
    if precision == "none":  # inherited
        precision = torch.backends.fp32_precision  # type: ignore[attr-defined]
    return {"fp32_precision": "tf32" if precision == "tf32" else "ieee"}


def _optimizer_settings(optimizer: Optimizer) -> dict[str, str]:
    """`foreach` and `fused` as they were given ("None" where not), and how many parameters there are."""
    groups = optimizer.param_groups
    settings: dict[str, str] = {
        name: str(groups[0][name]) for name in ("foreach", "fused") if groups and name in groups[0]
    }
    settings["parameters"] = str(sum(len(group["params"]) for group in groups))
    return settings
