"""What each statement does to the state of a scope: the names that it binds, and where control goes on.

Each function returns whether control can fall through to the next statement.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from torchlint.semantics import members
from torchlint.semantics.annotations import annotation
from torchlint.semantics.expressions import constant, refine
from torchlint.semantics.values import NONE, UNKNOWN, Value, container, join

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchlint.semantics.flow import Env, Flow
    from torchlint.semantics.names import FunctionNode


@dataclass(slots=True)
class LoopState:
    """The states in which a loop is left, and in which its next iteration begins."""

    breaks: list[Env] = field(default_factory=list)
    continues: list[Env] = field(default_factory=list)


def _expr_statement(flow: Flow, node: ast.Expr, env: Env) -> bool:
    value = node.value
    if not flow.shallow or (isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute)):
        flow.eval(value, env)  # `names.append(x)` says more of a name
    return True


def _assign(flow: Flow, node: ast.Assign, env: Env) -> bool:
    value = flow.eval(node.value, env)
    for target in node.targets:
        if isinstance(target, (ast.Tuple, ast.List)) and isinstance(node.value, (ast.Tuple, ast.List)):
            value = container("tuple", tuple(_evaluated(flow, e) for e in node.value.elts))
        flow.assign(target, value, env)
    return True


def _evaluated(flow: Flow, node: ast.expr) -> Value:
    """What evaluating an expression gave."""
    return constant(node) if node.__class__ is ast.Constant else flow.values.get(node, UNKNOWN)


def _ann_assign(flow: Flow, node: ast.AnnAssign, env: Env) -> bool:
    value = flow.eval(node.value, env) if node.value is not None else UNKNOWN
    promised = annotation(flow, node.annotation)
    if value.kind in ("unknown", "none") or (promised.kind == "list" and not value.items):
        value = promised
    if node.value is not None or isinstance(flow.scope.node, ast.ClassDef):
        flow.assign(node.target, value, env)
    owner = flow.scope.owner if isinstance(flow.scope.node, ast.ClassDef) else None
    if isinstance(node.target, ast.Name) and owner is not None:
        flow.declared[owner, node.target.id] = promised
        if node.value is not None:
            flow.note_attribute(owner, node.target.id, value)
    return True


def _aug_assign(flow: Flow, node: ast.AugAssign, env: Env) -> bool:
    path = flow.module.index.path(node.target)
    before = flow.eval(node.target, env) if path is None else _read_path(flow, node.target, env)
    value = members.binary(before, flow.eval(node.value, env), node.op)
    if before.kind == "tensor" and value.kind == "tensor":
        value = msgspec.structs.replace(value, host=before.host)  # in place: it stays where it is
    flow.values[node.target] = before
    flow.assign(node.target, value, env)
    flow.values[node.target] = before
    return True


def _read_path(flow: Flow, target: ast.expr, env: Env) -> Value:
    if isinstance(target, ast.Name):
        return flow.lookup(target.id, env)
    return flow.eval(target, env)


def _function_def(flow: Flow, node: FunctionNode, env: Env) -> bool:
    if not flow.shallow:
        for decorator in node.decorator_list:
            flow.eval(decorator, env)
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                flow.eval(default, env)
    function = flow.module.function_at[node]
    value = Value("function", name=flow.module.id_of(function))
    if function.is_property and function.owner is not None:
        value = UNKNOWN
    flow.store(node.name, value, env)
    return True


def _class_def(flow: Flow, node: ast.ClassDef, env: Env) -> bool:
    for base in node.bases:
        flow.eval(base, env)
    cls = flow.module.class_at[node]
    for decorator in node.decorator_list:
        flow.eval(decorator, env)
    flow.store(node.name, Value("class", name=flow.module.id_of(cls)), env)
    outer, flow.scope = flow.scope, cls.scope
    try:
        inner = dict(env)
        flow.joined.setdefault(cls.scope, {})
        flow.block(node.body, inner)
        for name, value in flow.joined[cls.scope].items():
            if name not in cls.methods:
                flow.note_attribute(cls, name, value)
    finally:
        flow.scope = outer
    return True


def _return(flow: Flow, node: ast.Return, env: Env) -> bool:
    value = flow.eval(node.value, env) if node.value is not None else NONE
    function = flow.scope.function
    if function is not None and not function.is_generator:
        flow.returns.setdefault(function, []).append(value)
    return False


def _delete(flow: Flow, node: ast.Delete, env: Env) -> bool:
    for target in node.targets:
        if isinstance(target, ast.Name):
            env.pop(target.id, None)
        else:
            flow.eval(target, env)
    return True


def _if(flow: Flow, node: ast.If, env: Env) -> bool:
    flow.eval(node.test, env)
    other = dict(env)
    refine(flow, node.test, env, positive=True)
    refine(flow, node.test, other, positive=False)
    body_falls = flow.block(node.body, env)
    else_falls = flow.block(node.orelse, other)
    if body_falls and else_falls:
        _merge(env, other)
    elif else_falls:
        env.clear()
        env.update(other)
    return body_falls or else_falls


def _for(flow: Flow, node: ast.For | ast.AsyncFor, env: Env) -> bool:
    iterable = flow.eval(node.iter, env)
    element = members.iteration(iterable)

    def enter(state: Env) -> None:
        flow.assign(node.target, element, state)

    _loop(flow, node, env, enter)
    return True


def _while(flow: Flow, node: ast.While, env: Env) -> bool:
    def enter(state: Env) -> None:
        flow.eval(node.test, state)
        refine(flow, node.test, state, positive=True)

    _loop(flow, node, env, enter)
    endless = isinstance(node.test, ast.Constant) and bool(node.test.value)
    return not endless or _has_break(node)


def _has_break(loop: ast.While) -> bool:
    return any(isinstance(n, ast.Break) for n in ast.walk(loop))


def _loop(flow: Flow, node: ast.For | ast.AsyncFor | ast.While, env: Env, enter: Callable[[Env], None]) -> None:
    """Run the body until its entry state holds (two rounds do: kinds only widen), then what comes after."""
    carried = flow.carried.get(node)
    if carried is not None:
        _merge(env, carried)
    for _ in range(2):
        state = dict(env)
        enter(state)
        flow.loops.append(LoopState())
        falls = flow.block(node.body, state)
        loop = flow.loops.pop()
        back = [*loop.continues, *([state] if falls else [])]
        before = dict(env)
        for end in back:
            _merge(env, end)
        exits = loop.breaks
        if env == before:
            break
    flow.carried[node] = dict(env)
    if node.orelse:
        flow.block(node.orelse, env)
    for end in exits:
        _merge(env, end)


def _break(flow: Flow, node: ast.Break, env: Env) -> bool:
    if flow.loops:
        flow.loops[-1].breaks.append(dict(env))
    return False


def _continue(flow: Flow, node: ast.Continue, env: Env) -> bool:
    if flow.loops:
        flow.loops[-1].continues.append(dict(env))
    return False


def _with(flow: Flow, node: ast.With | ast.AsyncWith, env: Env) -> bool:
    for item in node.items:
        value = flow.eval(item.context_expr, env)
        if item.optional_vars is not None:
            flow.assign(item.optional_vars, members.entered(value), env)
    return flow.block(node.body, env)


def _try(flow: Flow, node: ast.Try, env: Env) -> bool:
    before = dict(env)
    falls = flow.block(node.body, env)
    if falls:
        falls = flow.block(node.orelse, env)
    for handler in node.handlers:
        state = dict(before)
        _merge(state, env)
        if handler.type is not None:
            flow.eval(handler.type, state)
        if handler.name:
            flow.store(handler.name, UNKNOWN, state)
        optional = _only_binds_none_or_imports(handler.body)
        if flow.block(handler.body, state):
            if not falls:
                env.clear()
                env.update(state)
            elif not optional:
                _merge(env, state)
            falls = True
    if node.finalbody:
        falls = flow.block(node.finalbody, env) and falls
    return falls


def _match(flow: Flow, node: ast.Match, env: Env) -> bool:
    flow.eval(node.subject, env)
    ends: list[Env] = []
    for case in node.cases:
        state = dict(env)
        for name in _captured(case.pattern):
            flow.store(name, UNKNOWN, state)
        if case.guard is not None:
            flow.eval(case.guard, state)
        if flow.block(case.body, state):
            ends.append(state)
    for end in ends:
        _merge(env, end)
    return True


def _import(flow: Flow, node: ast.Import, env: Env) -> bool:
    for alias in node.names:
        flow.store(alias.asname or alias.name.partition(".")[0], flow.imported(node, alias), env)
    return True


def _import_from(flow: Flow, node: ast.ImportFrom, env: Env) -> bool:
    for alias in node.names:
        if alias.name != "*":
            flow.store(alias.asname or alias.name, flow.imported(node, alias), env)
    return True


def _assert(flow: Flow, node: ast.Assert, env: Env) -> bool:
    flow.eval(node.test, env)
    refine(flow, node.test, env, positive=True)
    if node.msg is not None:
        flow.eval(node.msg, env)
    return True


def _raise(flow: Flow, node: ast.Raise, env: Env) -> bool:
    for part in (node.exc, node.cause):
        if part is not None:
            flow.eval(part, env)
    return False


def _merge(env: Env, other: Env) -> None:
    """Join `other` into `env`; a name bound on one side alone keeps that binding."""
    for name, value in other.items():
        known = env.get(name)
        if known is None:
            env[name] = value
        elif known is not value:
            env[name] = join(known, value)


def _only_binds_none_or_imports(body: list[ast.stmt]) -> bool:
    """`except ImportError: tqdm = None` or `pass`: what the try block bound is what later code means."""
    return all(
        isinstance(s, ast.Pass)
        or (isinstance(s, ast.Assign) and isinstance(s.value, ast.Constant) and s.value.value in (None, False))
        for s in body
    )


def _captured(pattern: ast.pattern) -> list[str]:
    names = []
    for node in ast.walk(pattern):
        name = getattr(node, "name", None) or getattr(node, "rest", None)
        if isinstance(name, str):
            names.append(name)
    return names


# Each function takes its own node class: the key says which.
STATEMENTS: dict[type[ast.stmt], Callable[[Flow, Any, Env], bool]] = {
    ast.Expr: _expr_statement,
    ast.Assign: _assign,
    ast.AnnAssign: _ann_assign,
    ast.AugAssign: _aug_assign,
    ast.FunctionDef: _function_def,
    ast.AsyncFunctionDef: _function_def,
    ast.ClassDef: _class_def,
    ast.Return: _return,
    ast.Delete: _delete,
    ast.If: _if,
    ast.For: _for,
    ast.AsyncFor: _for,
    ast.While: _while,
    ast.Break: _break,
    ast.Continue: _continue,
    ast.With: _with,
    ast.AsyncWith: _with,
    ast.Try: _try,
    ast.Match: _match,
    ast.Import: _import,
    ast.ImportFrom: _import_from,
    ast.Assert: _assert,
    ast.Raise: _raise,
}
if hasattr(ast, "TryStar"):
    STATEMENTS[ast.TryStar] = _try
