"""Running sums: `total += loss.item()` in a loop, and who reads the total."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchlint.semantics.names import LOOPS

if TYPE_CHECKING:
    from torchlint.semantics.module import Module
    from torchlint.semantics.names import LoopNode, Scope

_TRIES: tuple[type[ast.AST], ...] = (ast.Try, *([ast.TryStar] if hasattr(ast, "TryStar") else []))


@dataclass(frozen=True, slots=True)
class Accumulation:
    """`name += … read …` in `statement`; after `loop` nothing but the total is left to convert."""

    name: str
    statement: ast.AugAssign
    loop: LoopNode
    integer: bool


def accumulation_of(module: Module, read: ast.Call) -> Accumulation | None:
    """The running sum that a read of a tensor feeds, where the total starts as a number and is used only after the
    loop, or in it now and then.

    None where the dtype of what is read is not known, since a sum of counts must stay whole, where an exception that
    ends the loop may leave a total that somebody reads, and where `float` is no longer Python's, with which the total
    is converted.
    """
    if not (isinstance(read.func, ast.Attribute) and read.func.attr == "item" and not read.args and not read.keywords):
        return None
    statement = module.statement_of(read)
    if not (
        isinstance(statement, ast.AugAssign)
        and isinstance(statement.op, ast.Add)
        and isinstance(statement.target, ast.Name)
    ):
        return None
    if not _linear_in(statement.value, read):
        return None
    name = statement.target.id
    dtype = module.value(read.func.value).dtype
    if dtype not in ("float", "int"):
        return None
    loop = _carrying_loop(module, statement, name)
    if loop is None or _used_inside(module, loop, statement, name) or _read_after_exception(module, loop, name):
        return None
    scope = module.scope_of(statement)
    if any(module.flow.lookup(kind, None, scope).name != f"builtins.{kind}" for kind in ("float", "int")):
        return None
    return Accumulation(name, statement, loop, dtype == "int")


def _linear_in(value: ast.expr, read: ast.Call) -> bool:
    """Whether `value` is the read, or the read times or over something that is a number."""
    if value is read:
        return True
    return isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Mult, ast.Div)) and value.left is read


def _carrying_loop(module: Module, statement: ast.AugAssign, name: str) -> LoopNode | None:
    """The outermost loop around the sum that does not hold its start, where the start is one number in the same
    function.
    """
    scope = module.scope_of(statement)
    loops = list(module.regions.loops_around(statement))
    if not loops or name in scope.foreign:
        return None
    end = loops[-1].end_lineno or loops[-1].lineno
    starts = [node for node in _stores(module, scope, name) if node is not statement and node.lineno <= end]
    if len(starts) != 1:
        return None
    start = starts[0]
    if (
        not isinstance(start, ast.Assign)
        or not isinstance(start.value, ast.Constant)
        or not isinstance(start.value.value, (int, float))
    ):
        return None
    if len(start.targets) != 1 or start.lineno >= statement.lineno:
        return None
    around_start = set(module.regions.loops_around(start))
    carrying = [loop for loop in loops if loop not in around_start]
    if not carrying or not all(isinstance(loop, LOOPS) for loop in carrying):
        return None
    return carrying[-1]  # type: ignore[return-value]


def _stores(module: Module, scope: Scope, name: str) -> list[ast.stmt]:
    """Every statement of a scope that binds `name`."""
    return [
        module.statement_of(node)
        for node in ast.walk(scope.node)
        if isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load)
    ]


def _used_inside(module: Module, loop: LoopNode, statement: ast.AugAssign, name: str) -> bool:
    """Whether the loop reads the total other than now and then."""
    number = module.regions.numbers[loop]
    return any(
        not any(guarded for place, guarded in module.regions.place(node) if place == number)
        for node in ast.walk(loop)
        if isinstance(node, ast.Name) and node.id == name and node is not statement.target
    )


def _read_after_exception(module: Module, loop: LoopNode, name: str) -> bool:
    """Whether code that reads the total may run after an exception in the loop: what follows the loop did not, then."""
    inside = {id(node) for node in ast.walk(loop)}
    reads = [
        node
        for node in ast.walk(module.scope_of(loop).node)
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load) and id(node) not in inside
    ]
    repeated = next((True for outer in module.regions.loops_around(loop) if outer is not loop), False)
    behind = [node for node in reads if repeated or node.lineno > (loop.end_lineno or loop.lineno)]
    for holder, child in module.regions.ancestors(loop):
        tried = isinstance(holder, _TRIES) and any(child is s for s in holder.body)  # type: ignore[attr-defined]
        if isinstance(holder, _TRIES):
            always = [*holder.finalbody, *(holder.handlers if tried else ())]  # type: ignore[attr-defined]
            if any(_holds(part, node) for part in always for node in behind):
                return True
        if _swallows(holder, tried):
            on_success = [*holder.body, *getattr(holder, "orelse", ())]  # type: ignore[attr-defined]
            if any(not any(_holds(part, node) for part in on_success) for node in behind):
                return True
    return False


def _swallows(holder: ast.AST, tried: bool) -> bool:
    """Whether code behind a statement may run after an exception in its body: a handler falls through or goes on with
    the next iteration, or a context suppresses it.
    """
    if isinstance(holder, (ast.With, ast.AsyncWith)):
        return any(re.search("suppress|raises|assert", ast.unparse(item)) for item in holder.items)
    return tried and any(
        not isinstance(handler.body[-1], (ast.Raise, ast.Return))
        for handler in holder.handlers  # type: ignore[attr-defined]
    )


def _holds(part: ast.AST, node: ast.Name) -> bool:
    return part.lineno <= node.lineno <= part.end_lineno  # type: ignore[attr-defined, no-any-return]
