"""What annotations, and the types of an `isinstance` test, promise."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchlint.semantics import calls
from torchlint.semantics.values import NONE, UNKNOWN, Value, join_all

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torchlint.semantics.flow import Flow


def annotation(flow: Flow, node: ast.expr | None) -> Value:
    """The value that an annotation promises."""
    if node is None:
        return UNKNOWN
    if isinstance(node, (ast.Name, ast.Attribute)):
        return calls.instance_of(flow, flow.static(node))
    if isinstance(node, ast.Subscript):
        return _generic(flow, node)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _union(flow, [node.left, node.right])
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return NONE if isinstance(node, ast.Constant) and node.value is None else UNKNOWN
    try:
        return annotation(flow, ast.parse(node.value.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return UNKNOWN


def _union(flow: Flow, members: Iterable[ast.expr]) -> Value:
    return join_all([annotation(flow, member) for member in members])


def _generic(flow: Flow, node: ast.Subscript) -> Value:
    origin = flow.static(node.value).name.rpartition(".")[2]
    arguments = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if flow.static(node.value).name.startswith("jaxtyping."):
        return annotation(flow, arguments[0])
    if origin in ("Optional", "Annotated", "Final", "ClassVar"):
        return annotation(flow, arguments[0])
    if origin == "Union":
        return _union(flow, arguments)
    if origin in (
        "list",
        "List",
        "Sequence",
        "Iterable",
        "Iterator",
        "Generator",
        "Collection",
        "set",
        "Set",
        "deque",
    ):
        return Value("list", items=(annotation(flow, arguments[0]),))
    if origin in ("tuple", "Tuple"):
        if len(arguments) == 2 and isinstance(arguments[1], ast.Constant) and arguments[1].value is ...:
            return Value("list", items=(annotation(flow, arguments[0]),))
        return Value("tuple", items=tuple(annotation(flow, a) for a in arguments))
    if origin in ("dict", "Dict", "Mapping", "OrderedDict", "defaultdict", "MutableMapping") and len(arguments) == 2:
        return Value("dict", items=(annotation(flow, arguments[1]),))
    return annotation(flow, node.value) if origin in ("DataLoader", "Dataset", "ndarray", "NDArray") else UNKNOWN


def annotation_of_types(flow: Flow, node: ast.expr) -> Value:
    """What `isinstance(x, node)` promises of x."""
    if isinstance(node, ast.Tuple):
        return _union(flow, node.elts)
    return annotation(flow, node)
