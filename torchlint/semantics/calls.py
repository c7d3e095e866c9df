"""What attributes, subscripts, operators and calls give: the meaning of torch's and Python's names for `flow`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchlint import torch_api
from torchlint.semantics.callables import result_of_callable
from torchlint.semantics.names import path_of
from torchlint.semantics.values import (
    CPU,
    DEVICE,
    EMPTY_LIST,
    MODULE,
    NDARRAY,
    NONE,
    NUMBER,
    OPAQUE,
    PARAMETER,
    SHAPE,
    STRING,
    TENSOR,
    UNKNOWN,
    Value,
    dataset_parts,
    join,
    join_all,
    tensor_parts,
)

if TYPE_CHECKING:
    from torchlint.semantics.flow import Env, Flow

Keywords = list[tuple[str, Value]]

_KINDS: dict[str, Value] = {
    "number": NUMBER,
    "list": Value("list", items=(NUMBER,)),
    "ndarray": NDARRAY,
    "none": NONE,
    "unknown": UNKNOWN,
    "shape": SHAPE,
    "device": DEVICE,
    "dtype": Value("dtype"),
    "tensor": TENSOR,
}
_symbols: dict[str, Value] = {}

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
_FLOAT_DTYPES = frozenset({"float", "half", "double", "bfloat16"})
_INT_DTYPES = frozenset({"long", "int", "short", "byte", "char"})


def symbol(name: str) -> Value:
    """The Value of a qualified name outside the project."""
    found = _symbols.get(name)
    if found is None:
        found = _symbols[name] = Value("symbol", name=torch_api.canonical(name))
    return found


def published_name(project_id: str) -> str:
    """The dotted name under which others import a project entity: "src.pkg.mod:Name" → "pkg.mod.Name"."""
    return project_id.removeprefix("src.").replace(":", ".")


def result(reference: str) -> Value:
    """What calling something of another file gives: the link step will know."""
    return Value("ref", name=reference + "()") if reference.count("()") < 2 else UNKNOWN


def _member_of_reference(reference: str, name: str) -> Value:
    """An attribute of something that another file names (each alternative of a star import gets it)."""
    if "(" in reference:
        return UNKNOWN
    return Value("ref", name="|".join(f"{part}.{name}" for part in reference.split("|")))


# Attributes


def attribute(flow: Flow, base: Value, name: str) -> Value:
    """The value of `base.name`."""
    kind = base.kind
    if kind == "unknown":
        return UNKNOWN
    if kind == "symbol":
        return symbol(f"{base.name}.{name}")
    if kind == "package":
        return flow.module.package_attribute(base.name, name)
    if kind == "tensor":
        return _tensor_attribute(base, name)
    if kind == "ref":
        return _member_of_reference(base.name, name)
    if kind in ("module", "instance", "dataset", "loader", "optimizer", "class", "super") and ":" in base.name:
        member = flow.module.member(base, name)
        if member is not None:
            return member
        if kind == "instance":
            return UNKNOWN
    if kind == "module":
        return _module_attribute(base, name)
    if kind in ("number", "string", "none", "class", "super"):
        return Value("method", name=name, items=(base,)) if kind in ("string", "super") else UNKNOWN
    if kind == "loader" and name == "dataset":
        return Value("dataset")
    if kind == "ndarray" and name in ("T", "real", "imag", "flat"):
        return NDARRAY
    if kind == "ndarray" and name in ("shape", "ndim", "size", "dtype"):
        return SHAPE if name == "shape" else NUMBER
    if kind == "accelerator" and name == "device":
        return DEVICE
    if kind == "distribution" and name in ("mean", "probs", "logits", "scale", "loc", "variance", "stddev"):
        return Value("tensor", dtype="float", host=base.host)
    return Value("method", name=name, items=(base,))


def _tensor_attribute(base: Value, name: str) -> Value:
    known = torch_api.TENSOR_ATTRIBUTES.get(name)
    if known is None:
        if base.opaque and name not in torch_api.TENSOR_METHODS and name not in torch_api.TENSOR_ONLY_METHODS:
            # a field of a batch or of a model's output object, or one of its methods: decided by what follows
            return Value("tensor", host=base.host, opaque=True, grad=base.grad, name=name)
        return Value("method", name=name, items=(base,))
    if known == "device":
        return CPU if base.host else DEVICE
    if known == "tensor":
        return Value("tensor", host=base.host, dtype=base.dtype, grad=base.grad and name != "data")
    return _KINDS[known]


def _module_attribute(base: Value, name: str) -> Value:
    if base.name.startswith("torch.nn.") and name in ("weight", "bias", "running_mean", "running_var"):
        return PARAMETER
    if name == "device":
        return DEVICE
    if name == "module":
        return Value("module", name=base.name if ":" in base.name else "", host=base.host)
    return Value("method", name=name, items=(base,))


def subscript(base: Value, index: ast.expr) -> Value:
    """The value of `base[index]`."""
    kind = base.kind
    if kind == "tensor":
        return base if base.opaque else Value("tensor", host=base.host, dtype=base.dtype, grad=base.grad)
    if kind == "tuple":
        position = _integer(index)
        if position is not None and -len(base.items) <= position < len(base.items):
            return base.items[position]
        return Value("list", items=(join_all(base.items),)) if isinstance(index, ast.Slice) else join_all(base.items)
    if kind in ("list", "iterator"):
        return base if isinstance(index, ast.Slice) else base.element
    if kind == "dict":
        if base.keys:
            if isinstance(index, ast.Constant) and index.value in base.keys:
                return base.items[base.keys.index(index.value)]
            return UNKNOWN
        return base.items[0] if base.items else UNKNOWN
    if kind == "ndarray":
        return NDARRAY
    if kind == "module":
        return MODULE  # an entry of a Sequential or ModuleList
    return STRING if kind == "string" else UNKNOWN


def _integer(node: ast.expr) -> int | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        value = node.operand.value
        return -value if isinstance(value, int) else None
    return None


def iteration(value: Value) -> Value:
    """What a loop over `value` binds."""
    if value.kind == "tensor" and value.opaque and value.name:
        return Value("tensor", host=value.host, opaque=True, grad=value.grad)
    if value.kind == "module":
        return MODULE  # iterating a Sequential or ModuleList gives modules
    return value.element


def entered(value: Value) -> Value:
    """What `with value as x` binds."""
    if value.kind in ("iterator", "loader", "accelerator"):
        return value
    return UNKNOWN


def binary(left: Value, right: Value, op: ast.operator) -> Value:
    """The value of an arithmetic operation."""
    a, b = left.kind, right.kind
    if a == "tensor" or b == "tensor":
        if a == "ndarray" or a == "string" or b == "string":
            return UNKNOWN
        tensors = [v for v in (left, right) if v.kind == "tensor"]
        dtype = tensors[0].dtype if len({t.dtype for t in tensors}) == 1 and len(tensors) == 2 else ""
        if len(tensors) == 1:
            other = right if a == "tensor" else left
            dtype = tensors[0].dtype if tensors[0].dtype == "float" or other.kind == "number" else ""
            if tensors[0].dtype != "float" and other.kind == "number":
                dtype = ""
        if isinstance(op, ast.Div) or "float" in {t.dtype for t in tensors}:
            dtype = "float"
        sure = any(t.sure for t in tensors)
        return Value(
            "tensor", host=all(t.host for t in tensors), dtype=dtype, grad=any(t.grad for t in tensors), sure=sure
        )
    if a == "ndarray" or b == "ndarray":
        return NDARRAY
    if a == "number" and b == "number":
        return NUMBER
    if a == b == "dataset" and isinstance(op, ast.Add):
        return join(left, right)
    if a == "string" and (b == "string" or isinstance(op, ast.Mod)):
        return STRING
    if a in ("list", "tuple") and b in ("list", "tuple") and isinstance(op, ast.Add):
        return join(
            Value("list", items=(left.element,) if left.items else ()),
            Value("list", items=(right.element,) if right.items else ()),
        )
    if a == "list" and b in ("number", "unknown") and isinstance(op, ast.Mult):
        return Value("list", items=(left.element,) if left.items else ())
    return UNKNOWN


# Calls


def call(
    flow: Flow,
    node: ast.Call,
    callee: Value,
    positional: list[Value],
    keywords: Keywords,
    env: Env,
    starred: bool,
) -> Value:
    """The value of a call, noting what it does for regions."""
    kind = callee.kind
    if positional and isinstance(node.func, ast.Attribute) and node.func.attr in torch_api.LOGGER_WRAPPER_METHODS:
        # `for x, y in logger.log_every(loader, 10)`: the loader's batches, whatever the logger is
        return Value("iterator", name=_loader_mark(positional[0]), items=(iteration(positional[0]),))
    if kind == "unknown":
        return _unknown_call(flow, node, positional, keywords, starred)
    if kind == "symbol":
        return _symbol_call(flow, node, callee.name, positional, keywords)
    if kind == "tensor" and callee.name and isinstance(node.func, ast.Attribute):
        # `batch.keys()`, `outputs.to(device)`: a method of an opaque value after all
        base = flow.values.get(node.func.value, OPAQUE)
        return _tensor_method(flow, node, base, callee.name, positional, keywords)
    if kind == "method":
        return _method_call(flow, node, callee.items[0], callee.name, positional, keywords, env, starred)
    if kind == "function" or kind == "bound":
        _project_call(flow, node, callee.name, positional, keywords, starred, bound=kind == "bound")
        return flow.module.function_result(callee.name)
    if kind == "lambda" or kind == "either":
        return result_of_callable(flow, node, callee, positional, keywords)
    if kind == "class":
        _project_call(flow, node, callee.name, positional, keywords, starred, bound=True)
        return _instance(flow, callee.name, positional, keywords)
    if kind == "module":
        return _module_call(flow, node, callee, positional, keywords, starred)
    if kind == "instance" and ":" in callee.name:
        return _call_member(flow, node, callee, "__call__", positional, keywords, starred)
    if kind == "ref":
        _project_call(flow, node, callee.name, positional, keywords, starred)
        return OPAQUE if torch_api.returns_tensor(published_name(callee.name)) else result(callee.name)
    if kind == "metric":
        return Value("tensor", dtype="float", grad=False)
    return UNKNOWN


def _project_call(
    flow: Flow,
    node: ast.Call,
    callee: str,
    positional: list[Value],
    keywords: Keywords,
    starred: bool,
    bound: bool = False,
) -> None:
    from torchlint.semantics.flow import ProjectCall

    flow.calls[node] = ProjectCall(node, callee, tuple(positional), tuple(keywords), bound, starred)


def _unknown_call(flow: Flow, node: ast.Call, positional: list[Value], keywords: Keywords, starred: bool) -> Value:
    """A call of something unknown: by its method's name it may still be an event, or a project method of unique
    name.
    """
    func = node.func
    if isinstance(func, ast.Name):
        parameter = flow.module.parameter_reference(func)
        if parameter is not None:
            _project_call(flow, node, parameter, positional, keywords, starred)
        return UNKNOWN
    if not isinstance(func, ast.Attribute):
        return UNKNOWN
    name = func.attr
    if name == "backward" or name == "manual_backward":
        flow.events[node] = "backward"
    elif name == "step" and not keywords and _steps_optimizer(flow, func, positional):
        flow.events[node] = "step"
    elif name == "requires_grad_":
        flow.events[node] = "differentiate"
    elif name not in torch_api.COMMON_METHODS:
        _project_call(flow, node, f"?.{name}", positional, keywords, starred, bound=True)
        return flow.module.method_result(name)
    return UNKNOWN


def _steps_optimizer(flow: Flow, func: ast.Attribute, positional: list[Value]) -> bool:
    """Whether `x.step(…)` on an unknown x is an optimizer's step: x is also zeroed, or a scaler steps an optimizer."""
    if any(v.kind == "optimizer" for v in positional):
        return True
    path = path_of(func.value)
    if path is None:
        return False
    scope = flow.module.scope_of(func)
    usage = scope.usage.get(path, set())
    if path.startswith("self.") and scope.owner is not None:
        usage = usage | flow.module.class_usage(scope.owner, path[5:])
    # what is called `optimizer` and steps without arguments is one; a scheduler is not called so
    named = not positional and torch_api.OPTIMIZER_NAME.search(path.rpartition(".")[2]) is not None
    return named or "zero_grad" in usage or "scale" in usage


def instance_of(flow: Flow, cls: Value) -> Value:
    """A value of the class or type `cls`, as an annotation means it."""
    if cls.kind == "class":
        return _instance(flow, cls.name, [], [])
    if cls.kind == "ref":
        return result(cls.name)
    if cls.kind != "symbol":
        return UNKNOWN
    name = cls.name
    if name in ("torch.Tensor", "torch.nn.Parameter") or name in torch_api.LEGACY_CONSTRUCTORS:
        return TENSOR
    if name in ("torch.FloatTensor", "torch.cuda.FloatTensor"):
        return TENSOR
    if name in torch_api.MODULE_BASES or name in ("torch.nn.ModuleList", "torch.nn.Sequential"):
        return Value("module", name="" if name == "torch.nn.Module" else name)
    if name in ("builtins.int", "builtins.float", "builtins.bool", "builtins.complex"):
        return NUMBER
    if name == "builtins.str":
        return STRING
    if name in ("builtins.list", "typing.List"):
        return EMPTY_LIST
    if name in ("numpy.ndarray", "numpy.typing.NDArray"):
        return NDARRAY
    if name == "torch.device":
        return DEVICE
    if name == "torch.optim.Optimizer":
        return Value("optimizer")
    made = torch_api.class_kind(name)
    if made:
        return Value(made, name=name)
    return UNKNOWN


def _instance(flow: Flow, class_id: str, positional: list[Value], keywords: Keywords) -> Value:
    known = torch_api.class_kind(published_name(class_id))
    if known in ("accelerator", "metric"):
        return Value(known, name=published_name(class_id))
    family = flow.module.class_family(class_id)
    if family == "module":
        return Value("module", name=class_id, host=True)
    if family in ("dataset", "loader", "optimizer", "scheduler"):
        return Value(family, name=class_id, host=True)
    return Value("instance", name=class_id)


def _keyword(keywords: Keywords, name: str) -> Value | None:
    for key, value in keywords:
        if key == name:
            return value
    return None


def _is_cpu(value: Value) -> bool:
    return value.name == "cpu" and value.kind in ("device", "string")


def _factory_host(flow: Flow, keywords: Keywords) -> bool:
    device = _keyword(keywords, "device")
    if any(key == "**" for key, _ in keywords):
        return False
    if device is None or device.kind == "none":
        return not flow.module.default_device_changed
    return _is_cpu(device)


def _all_host(values: list[Value]) -> bool:
    """Operands of one operation share a device: Host where one is, and none is known to be elsewhere."""
    parts = [part for value in values for part in tensor_parts(value)]
    return bool(parts) and all(part.host for part in parts)


def _symbol_call(flow: Flow, node: ast.Call, name: str, positional: list[Value], keywords: Keywords) -> Value:
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
        return Value("tensor", opaque=last in torch_api.MULTI_RESULT, host=_all_host(values))
    if name == "functools.partial" and positional and positional[0].kind in ("function", "class"):
        return positional[0]
    if name in ("collections.OrderedDict", "collections.defaultdict"):
        return Value("dict")
    if name == "collections.deque":
        return Value("list")
    if name == "itertools.product" or name == "itertools.zip_longest":
        return Value("iterator", items=(Value("tuple", items=tuple(iteration(p) for p in positional)),))
    if head.startswith("tqdm") and positional:
        return _wrapped(positional[0], last)
    return UNKNOWN


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
        return Value("distribution", name=name, host=_all_host(positional))
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
        return Value("iterator", name=_loader_mark(first), items=(Value("tuple", items=(NUMBER, iteration(first))),))
    if name == "zip":
        mark = "loader" if any(_loader_mark(p) for p in positional) else ""
        return Value("iterator", name=mark, items=(Value("tuple", items=tuple(iteration(p) for p in positional)),))
    if name in ("iter", "reversed", "list", "tuple", "sorted"):
        if not positional:
            return EMPTY_LIST
        return (
            Value("iterator", name=_loader_mark(first), items=(iteration(first),))
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
            return Value("dict", keys=tuple(k for k, _ in named), items=tuple(v for _, v in named))
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


def _loader_mark(value: Value) -> str:
    return "loader" if value.kind == "loader" or (value.kind in ("iterator", "list") and value.name == "loader") else ""


def _torch_call(
    flow: Flow, node: ast.Call, name: str, last: str, positional: list[Value], keywords: Keywords, values: list[Value]
) -> Value | None:
    """The value of a call of a torch name, None where the general tables decide."""
    first = positional[0] if positional else UNKNOWN
    if name in torch_api.FACTORIES:
        host = _factory_host(flow, keywords)
        if name == "torch.as_tensor" and _keyword(keywords, "device") is None and first.kind == "tensor":
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
        return CPU if _is_cpu(first) else DEVICE
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
            _factory_host(flow, keywords)
            if not any(tensor_parts(v) for v in values) and _makes(last)
            else _all_host(values)
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


def _module_call(
    flow: Flow, node: ast.Call, callee: Value, positional: list[Value], keywords: Keywords, starred: bool
) -> Value:
    """A module applied to its input."""
    name = callee.name
    inside = flow.module.in_module_class(node)
    if not torch_api.is_light(name):
        attribute_of_self = path_of(node.func) or ""
        flow.events[node] = "layer" if inside and attribute_of_self.startswith("self.") else "forward"
    values = [*positional, *(v for _, v in keywords)]
    host = _all_host(values) and callee.host
    if ":" in name:
        function_id = flow.module.find_method(name, "forward")
        if function_id is not None:
            _project_call(flow, node, function_id, positional, keywords, starred, bound=True)
            result = flow.module.function_result(function_id)
            if result.kind not in ("unknown", "ref", "none"):
                return _with_host(result, True) if host and not flow.module.function_moves(function_id) else result
        return Value("tensor", opaque=True, host=host)
    if name in torch_api.PAIR_MODULES:
        part = Value("tensor", dtype="float", host=host)
        return Value("tuple", items=(part, Value("tensor", opaque=True, host=host)))
    if name.startswith("torch.nn.") and not name.endswith(("Sequential", "Transformer", "Module")):
        return Value("tensor", dtype="float" if torch_api.is_loss(name) else "", host=host)
    return Value("tensor", opaque=True, host=host)


def _with_host(value: Value, host: bool) -> Value:
    if value.kind == "tensor":
        return Value("tensor", host=host, dtype=value.dtype, grad=value.grad, opaque=value.opaque)
    if value.kind in ("list", "tuple", "dict"):
        return Value(
            value.kind, name=value.name, keys=value.keys, items=tuple(_with_host(v, host) for v in value.items)
        )
    return value


def _call_member(
    flow: Flow, node: ast.Call, base: Value, name: str, positional: list[Value], keywords: Keywords, starred: bool
) -> Value:
    function_id = flow.module.find_method(base.name, name)
    if function_id is None:
        return UNKNOWN
    _project_call(flow, node, function_id, positional, keywords, starred, bound=True)
    return flow.module.function_result(function_id)


# Methods


def _method_call(
    flow: Flow,
    node: ast.Call,
    base: Value,
    name: str,
    positional: list[Value],
    keywords: Keywords,
    env: Env,
    starred: bool,
) -> Value:
    kind = base.kind
    if kind == "tensor":
        return _tensor_method(flow, node, base, name, positional, keywords)
    if kind == "module":
        return _module_method(flow, node, base, name, positional, keywords, starred)
    if kind in ("list", "set", "dict", "tuple", "iterator"):
        return _container_method(flow, node, base, name, positional, env)
    if kind == "ndarray":
        return Value("list", items=(NUMBER,)) if name == "tolist" else NUMBER if name == "item" else NDARRAY
    if kind == "string":
        return Value("list", items=(STRING,)) if name in ("split", "splitlines", "rsplit") else STRING
    if kind == "optimizer":
        if name == "step":
            flow.events[node] = "step"
        return UNKNOWN
    if kind == "scaler":
        if name == "step":
            flow.events[node] = "step"
        return (
            positional[0]
            if name == "scale" and positional and positional[0].kind != "unknown"
            else TENSOR
            if name == "scale"
            else UNKNOWN
        )
    if kind == "distribution":
        if name in ("sample", "rsample", "log_prob", "entropy", "cdf", "icdf", "sample_n"):
            return Value("tensor", host=base.host, grad=not name.startswith("sample"))
        return UNKNOWN
    if kind == "accelerator":
        return _accelerator_method(flow, node, name, positional)
    if kind == "metric":
        return Value("tensor", dtype="float", grad=False) if name in ("compute", "forward") else UNKNOWN
    if kind == "super":
        return _super_method(flow, node, base, name, positional, keywords, starred)
    if kind in ("number", "device", "dtype"):
        return UNKNOWN
    return _unknown_call(flow, node, positional, keywords, starred)


def _super_method(
    flow: Flow, node: ast.Call, base: Value, name: str, positional: list[Value], keywords: Keywords, starred: bool
) -> Value:
    function_id = flow.module.find_method(base.name, name, skip_own=True)
    if function_id is not None:
        _project_call(flow, node, function_id, positional, keywords, starred, bound=True)
        return flow.module.function_result(function_id)
    if name == "forward" and flow.module.class_family(base.name) == "module":
        flow.events[node] = "layer"
        return OPAQUE
    return UNKNOWN


def _tensor_method(
    flow: Flow, node: ast.Call, base: Value, name: str, positional: list[Value], keywords: Keywords
) -> Value:
    if name == "backward":
        flow.events[node] = "backward"
        return NONE
    if name == "requires_grad_":
        flow.events[node] = "differentiate"
        return base
    if base.opaque and name in ("keys", "items", "values", "get", "pop", "copy"):
        inner = Value("tensor", host=base.host, opaque=True, grad=base.grad)
        if name == "items":
            return Value("iterator", items=(Value("tuple", items=(STRING, inner)),))
        return Value("list", items=(inner if name == "values" else STRING,)) if name in ("values", "keys") else inner
    known = torch_api.TENSOR_METHODS.get(name)
    if known is not None:
        if name == "size" and not positional and not keywords:
            return SHAPE
        return _KINDS[known]
    host, dtype, grad = base.host, base.dtype, base.grad
    if name == "cpu":
        host = True
    elif name in ("cuda", "xpu"):
        host = False
    elif name == "to":
        host, dtype = _after_to(base, positional, keywords)
    elif name in ("detach", "detach_"):
        grad = False
    elif name in _FLOAT_DTYPES:
        dtype = "float"
    elif name in _INT_DTYPES:
        dtype, grad = "int", False
    elif name == "bool":
        dtype, grad = "bool", False
    elif name == "type" and not positional and not keywords:
        return STRING
    elif name in ("type", "type_as"):
        dtype = ""
        other = positional[0] if positional else UNKNOWN
        host = base.host and (
            other.host if other.kind == "tensor" else other.kind in ("dtype", "symbol") and ".cuda." not in other.name
        )
    elif name in ("sum", "cumsum", "prod") and dtype == "bool":
        dtype = "int"
    elif name in (
        "mean",
        "std",
        "var",
        "norm",
        "div",
        "true_divide",
        "softmax",
        "log_softmax",
        "sigmoid",
        "exp",
        "log",
        "sqrt",
    ):
        dtype = "float"
    elif torch_api.result_dtype(name):
        dtype, grad = torch_api.result_dtype(name), False
    elif name in ("add", "sub", "mul", "add_", "sub_", "mul_", "pow", "where") and positional:
        other = positional[0]
        dtype = dtype if dtype == "float" or other.dtype == dtype else other.dtype if other.dtype == "float" else ""
        host = base.host and (other.kind != "tensor" or other.host or name.endswith("_"))
    elif name.startswith("new_"):
        grad = False
    single = name in ("max", "min", "median") and not positional and not keywords
    opaque = (
        base.opaque
        if name in ("to", "cuda", "cpu", "float", "half", "detach")
        else name in torch_api.MULTI_RESULT and not single
    )
    return Value("tensor", host=host, dtype=dtype, grad=grad, opaque=opaque)


def _after_to(base: Value, positional: list[Value], keywords: Keywords) -> tuple[bool, str]:
    """Host and dtype class after `.to(…)`."""
    host, dtype = base.host, base.dtype
    for value in [*positional, *(v for k, v in keywords if k in ("device", "dtype", "other", "**"))]:
        if value.kind == "device" or value.kind == "string":
            host = _is_cpu(value)
        elif value.kind == "tensor":
            host, dtype = value.host, value.dtype
        elif value.kind == "symbol" and value.name.startswith("torch."):
            last = value.name[6:]
            dtype = (
                "float"
                if last.startswith(("float", "half", "double", "bfloat"))
                else "int"
                if last.startswith(("int", "long", "uint"))
                else ""
            )
        elif value.kind == "number":
            if len(positional) and value is positional[0]:
                host = False
        elif value.kind != "dtype":
            # an unknown target may be a device
            host = False
    return host, dtype


def _module_method(
    flow: Flow, node: ast.Call, base: Value, name: str, positional: list[Value], keywords: Keywords, starred: bool
) -> Value:
    if name == "forward":
        return _module_call(flow, node, base, positional, keywords, starred)
    if name in torch_api.MODULE_SELF_METHODS:
        if name in ("to", "cuda", "half", "bfloat16", "xpu", "mps"):
            on_host = name == "to" and any(_is_cpu(v) for v in positional)
            keeps = name in ("half", "bfloat16")
            return Value("module", name=base.name, host=on_host or (keeps and base.host))
        return base
    if name in ("parameters", "buffers"):
        return Value("iterator", items=(PARAMETER,))
    if name in ("named_parameters", "named_buffers"):
        return Value("iterator", items=(Value("tuple", items=(STRING, PARAMETER)),))
    if name in ("modules", "children"):
        return Value("iterator", items=(MODULE,))
    if name in ("named_modules", "named_children"):
        return Value("iterator", items=(Value("tuple", items=(STRING, MODULE)),))
    if name == "state_dict":
        return Value("dict", items=(PARAMETER,))
    if name == "backward":
        flow.events[node] = "backward"
        return NONE
    if name == "step":
        flow.events[node] = "step"
        return NONE
    if ":" not in base.name:
        if name == "generate":
            flow.events[node] = "forward"
            return OPAQUE
        if name not in (
            "zero_grad",
            "load_state_dict",
            "register_buffer",
            "register_parameter",
            "add_module",
            "append",
            "no_sync",
        ):
            _project_call(flow, node, f"?.{name}", positional, keywords, starred, bound=True)
            return flow.module.method_result(name)
    elif name == "register_buffer" and len(node.args) >= 2:
        _register(flow, node, positional)
    return UNKNOWN


def _register(flow: Flow, node: ast.Call, positional: list[Value]) -> None:
    """`self.register_buffer("name", tensor)` makes an attribute."""
    function = flow.module.method_around(node)
    label = node.args[0]
    if (
        function is not None
        and function.owner is not None
        and isinstance(label, ast.Constant)
        and isinstance(label.value, str)
    ):
        flow.attributes[(function.owner, label.value)] = Value("tensor", grad=False, dtype=positional[1].dtype)


def _accelerator_method(flow: Flow, node: ast.Call, name: str, positional: list[Value]) -> Value:
    if name in ("prepare", "setup"):
        prepared = tuple(_prepared(v) for v in positional)
        return prepared[0] if len(prepared) == 1 else Value("tuple", items=prepared)
    if name in (
        "prepare_model",
        "prepare_data_loader",
        "prepare_optimizer",
        "setup_module",
        "setup_optimizers",
        "setup_dataloaders",
    ):
        prepared = tuple(_prepared(v) for v in positional)
        return prepared[0] if len(prepared) == 1 else Value("tuple", items=prepared)
    if name == "backward":
        flow.events[node] = "backward"
        return NONE
    if name in ("gather", "gather_for_metrics", "reduce", "pad_across_processes", "all_reduce", "all_gather"):
        first = positional[0] if positional else UNKNOWN
        return _with_host(first, False) if tensor_parts(first) else UNKNOWN
    if name == "unwrap_model":
        return positional[0] if positional else UNKNOWN
    return UNKNOWN


def _prepared(value: Value) -> Value:
    """What accelerate or Fabric hands back: loaders then put their batches on the device."""
    if value.kind == "loader":
        return Value("loader", name=value.name, items=(OPAQUE,))
    if value.kind == "module":
        return Value("module", name=value.name)
    return value


def _container_method(flow: Flow, node: ast.Call, base: Value, name: str, positional: list[Value], env: Env) -> Value:
    kind = base.kind
    if name in ("append", "add", "insert", "appendleft") and positional:
        _grow(node, base, positional[-1], env, flow)
        return NONE
    if name == "extend" and positional:
        _grow(node, base, iteration(positional[0]), env, flow)
        return NONE
    if kind == "dict":
        inner = join_all(base.items) if base.items else UNKNOWN
        if name == "items":
            return Value("iterator", items=(Value("tuple", items=(STRING if base.keys else UNKNOWN, inner)),))
        if name == "values":
            return Value("iterator", items=(inner,))
        if name in ("get", "pop", "setdefault") and node.args:
            return subscript(base, node.args[0])
        return base if name == "copy" else UNKNOWN
    if name in ("pop", "popleft"):
        return base.element
    if name == "copy":
        return base
    return NUMBER if name in ("index", "count") else UNKNOWN


def _grow(node: ast.Call, base: Value, item: Value, env: Env, flow: Flow) -> None:
    """`xs.append(item)`: from here on the list at that place holds such items too."""
    # `append = xs.append; append(x)` calls it by another name
    path = path_of(node.func.value) if isinstance(node.func, ast.Attribute) else None
    if path is None or base.kind not in ("list", "set", "iterator"):
        return
    grown = Value(base.kind, items=(join(base.items[0], item),) if base.items else (item,))
    flow.place(path, grown, env)
    if path.startswith("self.") and path.count(".") == 1 and "[" not in path:
        function = flow.module.method_around(node)
        if function is not None and function.owner is not None:
            flow.attributes[(function.owner, path[5:])] = grown
