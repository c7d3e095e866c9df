"""What attributes, subscripts, iteration and operators give."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchlint import torch_api
from torchlint.semantics.values import (
    CPU,
    DEVICE,
    MODULE,
    NDARRAY,
    NONE,
    NUMBER,
    PARAMETER,
    SHAPE,
    STRING,
    TENSOR,
    UNKNOWN,
    Value,
    join,
    join_all,
)

if TYPE_CHECKING:
    from torchlint.semantics.flow import Flow


KINDS: dict[str, Value] = {
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
    if kind == "method":
        base = Value("method", name=base.name)  # what it is a method of says no more of its attributes
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
    return KINDS[known]


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
