"""Names that are bound to a lambda, or to one of several functions: what calling them gives."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchlint.semantics.values import UNKNOWN, Value, join_all

if TYPE_CHECKING:
    from torchlint.semantics.flow import Env, Flow

_SYNCS = ("item", "cpu", "tolist")
_DEEPEST = 3  # lambdas that call lambdas are evaluated anew in each call


def lambda_value(flow: Flow, node: ast.Lambda, state: Env) -> Value:
    """The value of a lambda expression; `state` is what it sees, with its parameters unknown."""
    name = _name_of(flow, node)
    flow.lambdas[name] = (node, state)
    return Value("lambda", name=name)


def _name_of(flow: Flow, node: ast.Lambda) -> str:
    return f"{flow.module.name}#{node.lineno}:{node.col_offset}"


def result_of_callable(
    flow: Flow, call: ast.Call, callee: Value, positional: list[Value], keywords: list[tuple[str, Value]]
) -> Value:
    """What calling a lambda gives, or what all functions that a name may stand for give."""
    if callee.kind == "either":
        return agreed([result_of_callable(flow, call, part, positional, keywords) for part in callee.items])
    if callee.kind != "lambda":
        return flow.module.function_result(callee.name)
    _ensure(flow, callee.name)
    node, seen = flow.lambdas.get(callee.name, (None, {}))
    if node is None or callee.name in flow.open_lambdas or len(flow.open_lambdas) >= _DEEPEST:
        return UNKNOWN  # another file's, or one that calls itself or many others
    flow.lambda_calls[call] = (node, tuple(positional))
    starred = any(isinstance(argument, ast.Starred) for argument in call.args)
    names = [p.arg for p in (*node.args.posonlyargs, *node.args.args)]
    given = {} if starred else dict(zip(names, positional, strict=False))
    given |= {name: value for name, value in keywords if name in names}
    flow.open_lambdas.add(callee.name)
    try:
        return _evaluated(flow, node, {**seen, **given})
    finally:
        flow.open_lambdas.discard(callee.name)


def _ensure(flow: Flow, name: str) -> None:
    """Evaluate the scope that a lambda of this file stands in: what it sees is known from there."""
    if name.startswith(f"{flow.module.name}#"):
        for node, scope in flow.module.index.scopes.items():
            if isinstance(node, ast.Lambda) and _name_of(flow, node) == name:
                flow.ensure(flow.body_scope(scope))


def agreed(results: list[Value]) -> Value:
    """What several functions give, where all of them give one kind of value."""
    return join_all(results) if len({result.kind for result in results}) == 1 else UNKNOWN


def _evaluated(flow: Flow, node: ast.Lambda, state: Env) -> Value:
    """The body's value in one call. What flow notes of the body itself stays as it is: it holds for all calls."""
    outer = flow.values, flow.events, flow.calls, flow.scope
    flow.values, flow.events, flow.calls = {}, {}, {}
    flow.scope = flow.body_scope(flow.module.scope_of(node))
    try:
        return flow.eval(node.body, state)
    finally:
        flow.values, flow.events, flow.calls, flow.scope = outer


def sync_chain(body: ast.expr | None, parameters: set[str]) -> ast.Call | None:
    """`body` where it is a chain that reads a parameter onto the host: `t.detach().cpu().numpy()`."""
    node = body
    syncs = False
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        syncs = syncs or node.func.attr in _SYNCS
        node = node.func.value
    found = syncs and isinstance(node, ast.Name) and node.id in parameters
    return body if found and isinstance(body, ast.Call) else None


def is_sync_lambda(node: ast.Lambda) -> bool:
    """Whether all that a lambda does is to read its parameter onto the host."""
    parameters = {p.arg for p in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
    return sync_chain(node.body, parameters) is not None
