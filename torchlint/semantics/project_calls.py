"""Calls of the project's own code: noted for the link step, also where the receiver is unknown."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchlint import torch_api
from torchlint.semantics.names import path_of
from torchlint.semantics.values import UNKNOWN, Value

if TYPE_CHECKING:
    from torchlint.semantics.call_arguments import Keywords
    from torchlint.semantics.flow import Flow


@dataclass(slots=True)
class ProjectCall:
    """A call of code that may be the project's own: who is called and with what.

    `callee` is a function's id ("pkg.mod:f"), a reference that the link step resolves, or "?.name" for a method on a
    receiver of unknown type; `positional` and `keywords` are the argument values (the key of a `**mapping` is "**").
    """

    node: ast.Call
    callee: str
    positional: tuple[Value, ...]
    keywords: tuple[tuple[str, Value], ...]
    bound: bool = False
    starred: bool = False


def note_call(
    flow: Flow,
    node: ast.Call,
    callee: str,
    positional: list[Value],
    keywords: Keywords,
    starred: bool,
    bound: bool = False,
) -> None:
    flow.calls[node] = ProjectCall(node, callee, tuple(positional), tuple(keywords), bound, starred)


def unknown_call(flow: Flow, node: ast.Call, positional: list[Value], keywords: Keywords, starred: bool) -> Value:
    """A call of something unknown: by its method's name it may still be an event, or a project method of unique
    name.
    """
    func = node.func
    if isinstance(func, ast.Name):
        parameter = flow.module.parameter_reference(func)
        if parameter is not None:
            note_call(flow, node, parameter, positional, keywords, starred)
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
        note_call(flow, node, f"?.{name}", positional, keywords, starred, bound=True)
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


def call_member(
    flow: Flow, node: ast.Call, base: Value, name: str, positional: list[Value], keywords: Keywords, starred: bool
) -> Value:
    function_id = flow.module.find_method(base.name, name)
    if function_id is None:
        return UNKNOWN
    note_call(flow, node, function_id, positional, keywords, starred, bound=True)
    return flow.module.function_result(function_id)
