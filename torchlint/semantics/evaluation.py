"""Evaluation regions: code that only evaluates a module, and whether it runs without gradients."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchlint import torch_api
from torchlint.semantics.names import Function, path_of
from torchlint.semantics.values import may_carry_graph

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torchlint.semantics.module import Module

_NAME = re.compile(r"_*(?:evaluat|eval|validat|valid|val_|test|predict|infer|sampl|generat)|^_*val$")
_TEST_FILE = re.compile(r"(?:^|/)(?:tests?/|test_[^/]*\.py$|[^/]*_test\.py$|conftest\.py$)")


@dataclass(frozen=True, slots=True)
class EvalRegion:
    """An evaluation that records gradients.

    node: where it is reported; function: the whole function where it is the region; statements: else, those that hold
    the forward calls; guard: the expression that turns gradients off, spelled with the names in view (None where torch
    is not bound there); returns_graph: that a tensor with a graph may leave it.
    """

    node: ast.expr | ast.stmt
    function: Function | None
    statements: Sequence[ast.stmt]
    guard: str | None
    returns_graph: bool


def eval_regions(module: Module) -> Iterator[EvalRegion]:
    """Every evaluation of a file that runs a forward with gradients on, in source order."""
    opened = {module.function_of(call) for call in module.calls_named("eval")}
    for function in module.functions:
        if is_eval_name(function):
            region = _function_region(module, function)
            if region is not None:
                yield region
        elif function in opened:
            yield from _after_eval(module, function, function.node.body)
    if None in opened:
        yield from _after_eval(module, None, module.tree.body)


def is_eval_name(function: Function) -> bool:
    return _NAME.match(function.name) is not None


def _function_region(module: Module, function: Function) -> EvalRegion | None:
    name = module.id_of(function)
    forwards = module.exposed_forwards(function)
    if not forwards or _exempt(module, function, name):
        return None
    if not _takes_from_outside(module, function, forwards):
        return None
    returned = module.flow.result_of(function)
    return EvalRegion(function.node, function, (), _decorator_for(module, function), may_carry_graph(returned))


def _decorator_for(module: Module, function: Function) -> str | None:
    """The decorator that runs a function without gradients, None where the forward runs after it has returned.

    A coroutine runs when it is awaited, a generator expression or lambda when its result is used.
    """
    lazy = (ast.GeneratorExp, ast.Lambda)
    if isinstance(function.node, ast.AsyncFunctionDef) or any(
        isinstance(node, ast.Return) and isinstance(node.value, lazy) for node in ast.walk(function.node)
    ):
        return None
    return no_grad_spelling(module, function.node)


def _exempt(module: Module, function: Function, name: str) -> bool:
    """Whether gradients are off after all, wanted, or decided by callers out of view."""
    linked = module.linked
    if name in linked.grad_off or name in linked.escapes or name in linked.reaches_backward:
        return True
    if module.differentiates(function.node) or name in linked.differentiates:
        return True
    if function.name.lstrip("_").startswith("test") and _TEST_FILE.search(module.path):
        return True
    # a framework may call it, with gradients off
    unseen = function.owner is not None and name not in linked.called
    if unseen and (function.name in torch_api.GRAD_FREE_HOOKS or _foreign_base(module, function)):
        return True
    return module.regions.decorated_off(function) or any(
        outer is not None and module.regions.decorated_off(outer) for outer in _enclosing(function)
    )


def _enclosing(function: Function) -> Iterator[Function]:
    outer = function.parent
    while outer is not None:
        yield outer
        outer = outer.parent


def _foreign_base(module: Module, function: Function) -> bool:
    """Whether a class outside the project and torch may call the method, perhaps without gradients."""
    assert function.owner is not None
    bases = module.bases_of(module.id_of(function.owner))
    known = ("torch.", "builtins.", "abc.", "typing.", "collections.")
    return any(":" not in b and not b.startswith(known) for b in bases) or _has_unknown_base(module, bases)


def _has_unknown_base(module: Module, bases: Sequence[str]) -> bool:
    """Whether a base could not be resolved at all."""
    for cls in module.classes:
        if module.id_of(cls) in bases and len(module.direct_bases(module.id_of(cls))) < len(cls.node.bases):
            return True
    return False


def _takes_from_outside(module: Module, function: Function, forwards: Sequence[ast.Call]) -> bool:
    """Whether it loops or gets its model or data from its caller, class or closure: a smoke test does neither."""
    if any(next(module.regions.loops_around(call), None) is not None for call in forwards):
        return True
    arguments = function.node.args
    own = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    if len(own) > (1 if function.self_name else 0):
        return True
    for call in forwards:
        base = (path_of(call.func) or "").partition(".")[0].partition("[")[0]
        if base == function.self_name and base:
            return True
        if base and base not in function.scope.bindings and module.value(call.func).kind == "module":
            return True
    return False


def _after_eval(module: Module, function: Function | None, body: list[ast.stmt]) -> Iterator[EvalRegion]:
    """Regions that `model.eval()` opens in a block, and in the blocks inside it."""
    if function is not None:
        name = module.id_of(function)
        if name in module.linked.grad_off or module.regions.decorated_off(function):
            return
        if name in module.linked.escapes and name not in module.linked.called:
            return
    forwards = module.exposed_forwards(function)
    if not forwards:
        return
    for block in _blocks(body):
        opened = [n for n, statement in enumerate(block) if _eval_call(module, statement) is not None]
        position = 0
        for start in opened:
            if start < position:
                continue
            end = next((n for n in range(start + 1, len(block)) if _train_call(module, block[n])), len(block))
            position = end
            region = _region_of(module, function, block[start:end], forwards)
            if region is not None:
                yield region
                return


def _region_of(
    module: Module, function: Function | None, statements: list[ast.stmt], forwards: Sequence[ast.Call]
) -> EvalRegion | None:
    inside = [call for call in forwards if statements[0].lineno <= call.lineno <= (statements[-1].end_lineno or 0)]
    inside = [call for call in inside if call.lineno > (statements[0].end_lineno or statements[0].lineno)]
    inside = [call for call in inside if not _trains_elsewhere(module, call, statements)]
    if not inside or any(module.differentiates(statement) for statement in statements):
        return None
    if function is not None and (module.id_of(function) in module.linked.reaches_backward):
        return None
    if _frozen(module, function):
        return None
    whole = function is not None and len(inside) == len(forwards) and not _is_long(module, function)
    returns = function is not None and may_carry_graph(module.flow.result_of(function))
    if whole:
        assert function is not None
        return EvalRegion(function.node, function, (), _decorator_for(module, function), returns)
    holders = [s for s in statements if any(s.lineno <= c.lineno <= (s.end_lineno or s.lineno) for c in inside)]
    span = statements[statements.index(holders[0]) : statements.index(holders[-1]) + 1]
    return EvalRegion(inside[0], None, span, no_grad_spelling(module, span[0]), returns)


def _trains_elsewhere(module: Module, call: ast.Call, statements: Sequence[ast.stmt]) -> bool:
    """Whether a forward is of another module than those that the statements put into evaluation, and one that is
    trained: two models side by side.
    """
    receiver = path_of(call.func)
    if receiver is None or "train" not in module.scope_of(call).usage.get(receiver, ()):
        return False
    evaluated = (opened for statement in statements if (opened := _eval_call(module, statement)) is not None)
    return all(path_of(opened.func.value) != receiver for opened in evaluated)  # type: ignore[attr-defined]


def _is_long(module: Module, function: Function) -> bool:
    """Whether an evaluation is only a part of what a function does: it also makes the model, trains, or parses
    options.
    """
    if function.name in ("main", "run", "train", "fit", "worker", "main_worker"):
        return True
    opens = next((s for s in ast.walk(function.node) if isinstance(s, ast.Expr) and _eval_call(module, s)), None)
    if opens is None:
        return True
    receiver = path_of(opens.value.func.value) or ""  # type: ignore[attr-defined]
    base = receiver.partition(".")[0].partition("[")[0]
    given = {p.arg for p in function.parameters}
    return not (base in given or (base not in function.scope.bindings))


def _frozen(module: Module, function: Function | None) -> bool:
    """Whether the function freezes parameters: `requires_grad_(False)` or `p.requires_grad = False`."""
    scope = function.scope if function is not None else module.index.root
    return any(
        (".requires_grad" in attributes or "requires_grad_" in attributes) for attributes in scope.usage.values()
    )


def _blocks(body: list[ast.stmt]) -> Iterator[list[ast.stmt]]:
    """A block and all blocks nested in it, functions and classes apart."""
    yield body
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        for name in ("body", "orelse", "finalbody"):
            inner = getattr(statement, name, None)
            if isinstance(inner, list) and inner:
                yield from _blocks(inner)
        for handler in getattr(statement, "handlers", ()):
            yield from _blocks(handler.body)


def _eval_call(module: Module, statement: ast.stmt) -> ast.Call | None:
    """The `x.eval()` that a statement is, or that ends what it binds (`model = build().eval()`)."""
    value = statement.value if isinstance(statement, (ast.Expr, ast.Assign)) else None
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if value.func.attr == "eval" and not value.args and not value.keywords:
            return value if module.value(value.func.value).kind == "module" else None
        if value.func.attr not in torch_api.MODULE_SELF_METHODS:
            return None
        value = value.func.value
    return None


def _train_call(module: Module, statement: ast.stmt) -> bool:
    """Whether a statement is `x.train()` on a module."""
    value = statement.value if isinstance(statement, ast.Expr) else None
    return (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr == "train"
        and not (value.args and isinstance(value.args[0], ast.Constant) and value.args[0].value is False)
        and module.value(value.func.value).kind == "module"
    )


def no_grad_spelling(module: Module, place: ast.stmt) -> str | None:
    """`torch.no_grad()` in the names that are bound at module level above `place`."""
    root = module.index.root
    for node in module.index.imports:
        if (
            node.lineno >= place.lineno
            or module.scope_of(node) is not root
            or module.block_of(node) is not module.tree.body
        ):
            continue
        for alias in node.names:
            bound = alias.asname or alias.name
            if isinstance(node, ast.Import):
                if alias.name == "torch" or (alias.name.startswith("torch.") and alias.asname is None):
                    spelled = alias.asname or "torch"
                    if _bound_to_torch(module, spelled):
                        return f"{spelled}.no_grad()"
            elif node.module == "torch" and alias.name == "no_grad" and len(root.bindings.get(bound, ())) == 1:
                return f"{bound}()"
    return None


def _bound_to_torch(module: Module, name: str) -> bool:
    value = module.flow.lookup(name, None, module.index.root)
    return value.kind == "symbol" and value.name == "torch"
