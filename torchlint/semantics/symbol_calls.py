"""What calling a name outside the project gives: torch, Python's builtins, NumPy, tqdm and the like."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING

from torchlint import torch_api
from torchlint.semantics.call_arguments import Keywords, all_host, factory_host, is_cpu, keyword_value
from torchlint.semantics.members import iteration
from torchlint.semantics.values import (
    CPU,
    DEVICE,
    EMPTY_LIST,
    NDARRAY,
    NONE,
    NUMBER,
    OPAQUE,
    PARAMETER,
    STRING,
    TENSOR,
    UNKNOWN,
    Value,
    container,
    dataset_parts,
    join_all,
    tensor_parts,
)

if TYPE_CHECKING:
    from torchlint.semantics.flow import Flow


# numpy functions that give something else than an array or scalar.
_NUMPY_OTHER = frozenset(
    {
        "load",
        "savez",
        "save",
        "seterr",
        "errstate",
        "set_printoptions",
        "dtype",
        "iinfo",
        "finfo",
        "split",
        "array_split",
    }
)


def symbol_call(flow: Flow, node: ast.Call, name: str, positional: list[Value], keywords: Keywords) -> Value:
    fixed = _instance_made(name)
    if fixed is not None:
        return fixed
    head, _, last = name.rpartition(".")
    if head == "builtins":
        return _builtin_call(flow, node, last, positional, keywords)
    values = [*positional, *(v for _, v in keywords)]
    if name.startswith("torch."):
        found = _torch_call(flow, node, name, last, positional, keywords, values)
        if found is not None:
            return found
    if head == "numpy" or name.startswith("numpy."):
        if last in ("split", "array_split"):
            return Value("list", items=(NDARRAY,))
        return UNKNOWN if last in _NUMPY_OTHER else NDARRAY
    if name in torch_api.ITERATION_WRAPPERS:
        return _wrapped(positional[0] if positional else UNKNOWN, last)
    made = torch_api.class_kind(name)
    if made:
        return _made(made, name, positional)
    if torch_api.returns_tensor(name):
        return Value("tensor", opaque=last in torch_api.MULTI_RESULT, host=all_host(values))
    if name == "functools.partial" and positional and positional[0].kind in ("function", "class"):
        return positional[0]
    if name in ("collections.OrderedDict", "collections.defaultdict"):
        return Value("dict")
    if name == "collections.deque":
        return Value("list")
    if name == "itertools.product" or name == "itertools.zip_longest":
        return Value("iterator", items=(container("tuple", tuple(iteration(p) for p in positional)),))
    if head.startswith("tqdm") and positional:
        return _wrapped(positional[0], last)
    return UNKNOWN


@lru_cache(maxsize=65536)
def _instance_made(name: str) -> Value | None:
    """What calling a torch class makes, where its arguments say no more."""
    kind = torch_api.class_kind(name) if name.startswith("torch.") else ""
    wraps = name in torch_api.WRAPPERS or name.startswith("torch.nn.parallel.") or name in torch_api.DATASET_VIEWS
    return _made(kind, name, []) if kind in ("module", "optimizer", "scheduler", "loader") and not wraps else None


def _made(kind: str, name: str, positional: list[Value]) -> Value:
    if kind == "tensor":
        return PARAMETER
    if kind == "loader":
        return Value("loader", name=name, host=True)
    if kind == "module":
        if name in torch_api.WRAPPERS or name.startswith("torch.nn.parallel."):
            inner = positional[0] if positional else UNKNOWN
            return Value("module", name=inner.name if inner.kind == "module" else "", host=False)
        return Value("module", name=name, host=True)
    if kind == "distribution":
        return Value("distribution", name=name, host=all_host(positional))
    return Value(kind, name=name, host=True)


def _dataset_view(name: str, given: list[Value]) -> Value:
    """A dataset that takes its items from those it is given: all of them, the one or the one list that comes first."""
    if not name.endswith("StackDataset"):
        given = [iteration(value) if name.endswith("ConcatDataset") else value for value in given[:1]]
    parts = dict.fromkeys(part for value in given for part in dataset_parts(value))
    return Value("dataset", name=name, host=True, items=tuple(parts))


def _wrapped(value: Value, last: str) -> Value:
    """An iterable inside tqdm, islice, list and the like: it gives the same items."""
    if value.kind in ("loader", "module"):
        return Value("iterator", name="loader" if value.kind == "loader" else "", items=(iteration(value),))
    if last in ("list", "sorted"):
        return Value(
            "list",
            name=value.name if value.kind == "iterator" else "",
            items=(iteration(value),) if value.items or value.kind == "tensor" else (),
        )
    if last == "tuple" and value.kind == "tuple":
        return value
    return value if value.kind in ("iterator", "list", "tuple", "tensor", "dict", "set", "dataset") else UNKNOWN


def _builtin_call(flow: Flow, node: ast.Call, name: str, positional: list[Value], keywords: Keywords) -> Value:
    first = positional[0] if positional else UNKNOWN
    if name in ("float", "int", "bool", "len", "abs", "round", "hash", "id", "pow", "divmod", "ord"):
        if name in ("abs", "pow", "round") and first.kind != "number":
            return first if first.kind in ("tensor", "ndarray") else UNKNOWN
        return NUMBER
    if name in ("str", "repr", "format", "chr", "input", "hex", "bin"):
        return STRING
    if name == "range":
        return Value("range")
    if name == "enumerate":
        return Value("iterator", name=loader_mark(first), items=(container("tuple", (NUMBER, iteration(first))),))
    if name == "zip":
        mark = "loader" if any(loader_mark(p) for p in positional) else ""
        return Value("iterator", name=mark, items=(container("tuple", tuple(iteration(p) for p in positional)),))
    if name in ("iter", "reversed", "list", "tuple", "sorted"):
        if not positional:
            return EMPTY_LIST
        return (
            Value("iterator", name=loader_mark(first), items=(iteration(first),))
            if name == "iter"
            else _wrapped(first, name)
        )
    if name == "next":
        return iteration(first)
    if name in ("sum", "max", "min"):
        if len(positional) == 1 or name == "sum":
            inner = iteration(first)
            return (
                Value("tensor", host=inner.host, dtype=inner.dtype, grad=inner.grad)
                if inner.kind == "tensor"
                else inner
            )
        return join_all(positional)
    if name in ("isinstance", "issubclass", "hasattr", "callable", "any", "all"):
        return NUMBER
    if name == "map":
        return UNKNOWN
    if name == "filter" and len(positional) == 2:
        return Value("iterator", items=(iteration(positional[1]),))
    if name == "dict":
        named = [(k, v) for k, v in keywords]
        if named and all(k != "**" for k, _ in named) and not positional:
            return container("dict", tuple(v for _, v in named), tuple(k for k, _ in named))
        return Value("dict") if not named and not positional else first if first.kind == "dict" else UNKNOWN
    if name == "set":
        return Value("set", items=(iteration(first),) if positional else ())
    if name == "super":
        function = flow.module.method_around(node)
        if function is not None and function.owner is not None:
            return Value("super", name=flow.module.id_of(function.owner))
        return UNKNOWN
    if name == "getattr":
        return UNKNOWN
    return UNKNOWN


def loader_mark(value: Value) -> str:
    return "loader" if value.kind == "loader" or (value.kind in ("iterator", "list") and value.name == "loader") else ""


def _torch_call(
    flow: Flow, node: ast.Call, name: str, last: str, positional: list[Value], keywords: Keywords, values: list[Value]
) -> Value | None:
    """The value of a call of a torch name, None where the general tables decide."""
    first = positional[0] if positional else UNKNOWN
    if name in torch_api.FACTORIES:
        host = factory_host(flow, keywords)
        if name == "torch.as_tensor" and keyword_value(keywords, "device") is None and first.kind == "tensor":
            return first
        return Value("tensor", host=host, dtype=_factory_dtype(last, node), grad=False)
    if name in torch_api.LEGACY_CONSTRUCTORS:
        return Value("tensor", host=not flow.module.default_device_changed, grad=False)
    if name.startswith("torch.cuda.") and last.endswith("Tensor"):
        return Value("tensor", grad=False)
    if name in ("torch.from_numpy", "torch.frombuffer", "torch.from_file", "torch.from_dlpack"):
        return Value("tensor", host=last != "from_dlpack", grad=False)
    if name == "torch.autograd.Variable":
        return first if first.kind != "unknown" else TENSOR
    if name == "torch.device":
        return CPU if is_cpu(first) else DEVICE
    if name in ("torch.compile", "torch.jit.script", "torch.jit.trace", "torch.fx.symbolic_trace"):
        return first if first.kind in ("module", "function", "class", "bound", "ref") else UNKNOWN
    if name in torch_api.WRAPPERS or name.startswith("torch.nn.parallel."):
        if not last[:1].isupper():
            return OPAQUE if last == "data_parallel" else UNKNOWN
        return Value("module", name=first.name if first.kind == "module" else "", host=False)
    if name == "torch.autograd.grad" or name == "torch.autograd.backward":
        flow.events[node] = "backward" if last == "backward" else "differentiate"
        return OPAQUE if last == "grad" else NONE
    if name.startswith(("torch.func.", "torch.autograd.functional.")):
        flow.events[node] = "differentiate"
        return UNKNOWN
    if name == "torch.utils.data.random_split":
        return Value("list", items=(_dataset_view("torch.utils.data.Subset", values[:1]),))
    if name in torch_api.DATASET_VIEWS:
        return _dataset_view(name, values)
    if name in ("torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad_norm", "torch.nn.utils.get_total_norm"):
        return Value("tensor", dtype="float", grad=False)
    if name == "torch.load":
        return UNKNOWN
    if name in ("torch.distributed.all_reduce", "torch.distributed.broadcast"):
        return UNKNOWN
    if name == "torch.nn.utils.rnn.pad_packed_sequence":
        return Value("tuple", items=(TENSOR, TENSOR))
    if name == "torch.cuda.Event":
        return UNKNOWN
    if name == "torch.utils.checkpoint.checkpoint" and first.kind in ("module", "method", "bound"):
        flow.events[node] = "layer"
        return OPAQUE
    made = torch_api.class_kind(name)
    if made:
        return _made(made, name, positional)
    if torch_api.returns_tensor(name):
        dtype = torch_api.result_dtype(last)
        if (
            not dtype
            and name.startswith("torch.nn.functional.")
            and last not in ("one_hot", "embedding", "pad", "interpolate")
        ):
            dtype = "float"
        single = last in ("max", "min", "median") and len(positional) + len(keywords) == 1
        where = last == "where" and len(positional) == 3
        opaque = last in torch_api.MULTI_RESULT and not single and not where
        host = (
            factory_host(flow, keywords)
            if not any(tensor_parts(v) for v in values) and _makes(last)
            else all_host(values)
        )
        grad = dtype not in ("int", "bool") and (
            any(p.grad for v in values for p in tensor_parts(v)) or not any(tensor_parts(v) for v in values)
        )
        return Value("tensor", host=host, dtype=dtype, opaque=opaque, grad=grad)
    return None


def _makes(last: str) -> bool:
    """torch functions outside the catalogue's factories that make a tensor from numbers."""
    return last in (
        "tril_indices",
        "triu_indices",
        "hann_window",
        "hamming_window",
        "blackman_window",
        "scalar_tensor",
        "complex",
        "polar",
        "range",
        "bartlett_window",
        "kaiser_window",
    )


def _factory_dtype(last: str, node: ast.Call) -> str:
    for keyword in node.keywords:
        if keyword.arg == "dtype":
            name = keyword.value.attr if isinstance(keyword.value, ast.Attribute) else ""
            if name.startswith(("float", "double", "half", "bfloat")):
                return "float"
            return "int" if name.startswith(("int", "long", "uint", "short")) else "bool" if name == "bool" else ""
    if last in ("rand", "randn", "normal", "linspace", "logspace", "zeros", "ones", "empty", "eye"):
        return "float"
    return "int" if last in ("randint", "randperm") else ""
