"""What methods of tensors, modules, containers, optimizers and the like give."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchlint import torch_api
from torchlint.semantics.call_arguments import Keywords, is_cpu
from torchlint.semantics.members import KINDS, iteration, subscript
from torchlint.semantics.module_calls import module_call, with_host
from torchlint.semantics.names import path_of
from torchlint.semantics.project_calls import note_call, unknown_call
from torchlint.semantics.values import (
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
    container,
    join,
    join_all,
    tensor_parts,
)

if TYPE_CHECKING:
    from torchlint.semantics.flow import Env, Flow


_FLOAT_DTYPES = frozenset({"float", "half", "double", "bfloat16"})
_INT_DTYPES = frozenset({"long", "int", "short", "byte", "char"})


def method_call(
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
        return tensor_method(flow, node, base, name, positional, keywords)
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
    return unknown_call(flow, node, positional, keywords, starred)


def _super_method(
    flow: Flow, node: ast.Call, base: Value, name: str, positional: list[Value], keywords: Keywords, starred: bool
) -> Value:
    function_id = flow.module.find_method(base.name, name, skip_own=True)
    if function_id is not None:
        note_call(flow, node, function_id, positional, keywords, starred, bound=True)
        return flow.module.function_result(function_id)
    if name == "forward" and flow.module.class_family(base.name) == "module":
        flow.events[node] = "layer"
        return OPAQUE
    return UNKNOWN


def tensor_method(
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
        return KINDS[known]
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
            host = is_cpu(value)
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
        return module_call(flow, node, base, positional, keywords, starred)
    if name in torch_api.MODULE_SELF_METHODS:
        if name in ("to", "cuda", "half", "bfloat16", "xpu", "mps"):
            on_host = name == "to" and any(is_cpu(v) for v in positional)
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
            note_call(flow, node, f"?.{name}", positional, keywords, starred, bound=True)
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
        flow.set_attribute(function.owner, label.value, Value("tensor", grad=False, dtype=positional[1].dtype))


def _accelerator_method(flow: Flow, node: ast.Call, name: str, positional: list[Value]) -> Value:
    if name in ("prepare", "setup"):
        prepared = tuple(_prepared(v) for v in positional)
        return prepared[0] if len(prepared) == 1 else container("tuple", prepared)
    if name in (
        "prepare_model",
        "prepare_data_loader",
        "prepare_optimizer",
        "setup_module",
        "setup_optimizers",
        "setup_dataloaders",
    ):
        prepared = tuple(_prepared(v) for v in positional)
        return prepared[0] if len(prepared) == 1 else container("tuple", prepared)
    if name == "backward":
        flow.events[node] = "backward"
        return NONE
    if name in ("gather", "gather_for_metrics", "reduce", "pad_across_processes", "all_reduce", "all_gather"):
        first = positional[0] if positional else UNKNOWN
        return with_host(first, False) if tensor_parts(first) else UNKNOWN
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
    grown = container(base.kind, (join(base.items[0], item),) if base.items else (item,))
    flow.place(path, grown, env)
    if path.startswith("self.") and path.count(".") == 1 and "[" not in path:
        function = flow.module.method_around(node)
        if function is not None and function.owner is not None:
            flow.set_attribute(function.owner, path[5:], grown)
