"""Values that grow by concatenation in a loop: `x = torch.cat((x, y))`, and who else reads x there."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchlint import torch_api
from torchlint.semantics.names import LOOPS, path_of

if TYPE_CHECKING:
    from torchlint.semantics.module import Module
    from torchlint.semantics.names import LoopNode

_SHAPE_ATTRIBUTES = frozenset({"shape", "dtype", "device", "ndim"})
_SHAPE_METHODS = frozenset({"size", "numel", "dim", "nelement", "__len__"})


@dataclass(frozen=True, slots=True)
class Growth:
    """`statement` binds `path` to `call`, a join of its old value and new parts, on each iteration of `loop`.

    start: what an assignment in view gives as the value before the loop (None where it is not in view, where a joined
    part is not made in the loop and may change later, or where `statement` binds other names too).
    first: the `if` that gives the first value instead of joining (`if x is None: x = y`), if there is one.
    """

    path: str
    call: ast.Call
    statement: ast.Assign
    loop: LoopNode
    start: ast.expr | None
    first: ast.If | ast.IfExp | None


def growth_by(module: Module, call: ast.Call) -> Growth | None:
    """The growth that a join makes, None where the joined value does not carry or is needed on the way."""
    if module.qualified(call.func) not in torch_api.JOINS or not call.args:
        return None
    operands = call.args[0]
    statement = module.statement_of(call)
    if (
        not isinstance(operands, (ast.Tuple, ast.List))
        or not isinstance(statement, ast.Assign)
        or len(statement.targets) != 1
    ):
        return None
    target, value = _pair_of(statement, call)
    path = path_of(target) or _subscript_path(target)
    if path is None:
        return None
    grown = [_same_place(operand, path) for operand in operands.elts]
    if not any(grown) or all(grown):
        return None  # nothing is added, or the value is doubled: each copy then pays for itself
    choice = _choice_around(value, call)
    if choice is False:
        return None
    first = choice if isinstance(choice, ast.IfExp) else _first_test(module, statement, path)
    loop = _carrying_loop(module, statement, target, path, first)
    if loop is None or _periodic(module, statement, loop, first) or _needed(module, loop, statement, call, path, first):
        return None
    # a buffer made before the loop may be filled anew on each iteration: a list would hold it many times
    fresh = all(_bound_in(loop, operand) for operand, old in zip(operands.elts, grown, strict=True) if not old)
    fresh = fresh and target is statement.targets[0]
    return Growth(path, call, statement, loop, _start_of(module, loop, path) if fresh else None, first)


def _pair_of(statement: ast.Assign, call: ast.Call) -> tuple[ast.expr, ast.expr]:
    """The target and value that belong to a call: those of the statement, or of its place in `a, b = x, y`."""
    for target, value in _pairs(statement.targets[0], statement.value):
        if call is value or (isinstance(value, ast.IfExp) and call in (value.body, value.orelse)):
            return target, value
    return statement.targets[0], statement.value


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """Each target with its own value, where a tuple is bound to a tuple; else the two as they are."""
    tuples = (ast.Tuple, ast.List)
    if not (isinstance(target, tuples) and isinstance(value, tuples) and len(target.elts) == len(value.elts)):
        return [(target, value)]
    if any(isinstance(element, ast.Starred) for element in [*target.elts, *value.elts]):
        return [(target, value)]
    return list(zip(target.elts, value.elts, strict=True))


def _bound_in(loop: LoopNode, operand: ast.expr) -> bool:
    """Whether a joined part is made in the loop: computed where it stands, or taken from a name that the loop
    binds."""
    if not isinstance(operand, (ast.Name, ast.Attribute)):
        return True
    root = (path_of(operand) or "").partition(".")[0].partition("[")[0]
    return any(
        isinstance(node, ast.Name) and node.id == root and not isinstance(node.ctx, ast.Load) for node in ast.walk(loop)
    )


def _choice_around(value: ast.expr, call: ast.Call) -> ast.IfExp | bool | None:
    """The conditional expression that holds the join, None where the join is the whole value, False for anything
    else.
    """
    if value is call:
        return None
    if isinstance(value, ast.IfExp) and call in (value.body, value.orelse):
        return value
    return False


def _subscript_path(node: ast.expr) -> str | None:
    """A subscript as text: its key may be a name, as long as the loop does not change it."""
    return ast.unparse(node) if isinstance(node, ast.Subscript) else None


def _same_place(node: ast.expr, path: str) -> bool:
    return path_of(node) == path or (isinstance(node, ast.Subscript) and ast.unparse(node) == path)


def _first_test(module: Module, statement: ast.Assign, path: str) -> ast.If | None:
    """The `if` around the join whose other branch binds the first value."""
    parent = module.parents.get(statement)
    if not isinstance(parent, ast.If):
        return None
    other = parent.orelse if any(s is statement for s in parent.body) else parent.body
    return parent if any(_binds(s, path) for s in other) else None


def _binds(statement: ast.stmt, path: str) -> bool:
    return isinstance(statement, ast.Assign) and any(_binds_in(t, path) for t in statement.targets)


def _carrying_loop(
    module: Module, statement: ast.Assign, target: ast.expr, path: str, first: ast.If | ast.IfExp | None
) -> LoopNode | None:
    """The innermost loop from one iteration of which to the next the value carries."""
    for loop in module.regions.loops_around(statement):
        if not isinstance(loop, LOOPS):
            return None
        if _key_changes(loop, target):
            continue
        return loop if not _reset_inside(loop, statement, path, first) else None
    return None


def _key_changes(loop: LoopNode, target: ast.expr) -> bool:
    """Whether a subscript's key, or the object it is taken from, is bound by the loop."""
    names = {n.id for n in ast.walk(target) if isinstance(n, ast.Name)} if not isinstance(target, ast.Name) else set()
    if not names:
        return False
    bound = {n.id for n in ast.walk(loop) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    return bool(names & bound)


def _reset_inside(loop: LoopNode, statement: ast.Assign, path: str, first: ast.If | ast.IfExp | None) -> bool:
    """Whether the loop binds the value anew, other than as its first value."""
    allowed = {id(statement)}
    if isinstance(first, ast.If):
        allowed |= {id(s) for s in [*first.body, *first.orelse]}
    for node in ast.walk(loop):
        if isinstance(node, ast.Assign) and id(node) not in allowed and any(_binds_in(t, path) for t in node.targets):
            return True
        if isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.NamedExpr)) and _same_place(node.target, path):
            return True
        if isinstance(node, (ast.For, ast.AsyncFor)) and _binds_in(node.target, path):
            return True
        if isinstance(node, ast.Delete) and any(_same_place(t, path) for t in node.targets):
            return True
    return False


def _binds_in(target: ast.expr, path: str) -> bool:
    if isinstance(target, (ast.Tuple, ast.List)):
        return any(_binds_in(t, path) for t in target.elts)
    return _same_place(target, path)


def _periodic(module: Module, statement: ast.Assign, loop: LoopNode, first: ast.If | ast.IfExp | None) -> bool:
    """Whether the join runs only now and then: a guard other than the test for the first value stands before it."""
    anchor: ast.AST = first if isinstance(first, ast.If) else statement
    number = module.regions.numbers[loop]
    if any(guarded for place, guarded in module.regions.place(anchor) if place == number):
        return True
    return first is not None and any(
        isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod) for n in ast.walk(first.test)
    )


def _needed(
    module: Module, loop: LoopNode, statement: ast.Assign, call: ast.Call, path: str, first: ast.If | ast.IfExp | None
) -> bool:
    """Whether the loop reads the grown value for anything but the join, its start test, or its shape, dtype or
    device.
    """
    operands = {id(operand) for operand in call.args[0].elts if _same_place(operand, path)}  # type: ignore[attr-defined]
    test = {id(n) for n in ast.walk(first.test)} if first is not None else set()
    for node in ast.walk(loop):
        if not isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) or not isinstance(node.ctx, ast.Load):
            continue
        if not _same_place(node, path) or id(node) in operands or id(node) in test:
            continue
        if not _asks_shape(module, node):
            return True
    return "." in path and _method_reads(module, loop, path)


def _asks_shape(module: Module, node: ast.expr) -> bool:
    """Whether a read asks only for shape, dtype or device, or whether there is a value yet."""
    parent = module.parents.get(node)
    if isinstance(parent, ast.Attribute):
        return parent.attr in _SHAPE_ATTRIBUTES or parent.attr in _SHAPE_METHODS
    if isinstance(parent, ast.Call):
        return isinstance(parent.func, ast.Name) and parent.func.id == "len"
    return isinstance(parent, ast.Compare) and all(isinstance(op, (ast.Is, ast.IsNot)) for op in parent.ops)


def _method_reads(module: Module, loop: LoopNode, path: str) -> bool:
    """Whether a method called in the loop on the same object reads the grown attribute."""
    receiver, _, attribute = path.rpartition(".")
    owner = module.class_of(loop)
    for node in ast.walk(loop):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and path_of(node.func.value) == receiver:
            method = owner.methods.get(node.func.attr) if owner is not None else None
            if method is None or any(
                isinstance(n, ast.Attribute) and n.attr == attribute for n in ast.walk(method.node)
            ):
                return True
    return False


def _start_of(module: Module, loop: LoopNode, path: str) -> ast.expr | None:
    """What the last statement before the loop, in the loop's own block, that binds the value binds it to."""
    block = module.block_of(loop)
    if block is None:
        return None
    for statement in reversed(block[: block.index(loop)]):
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            for target, value in reversed(_pairs(statement.targets[0], statement.value)):
                if _same_place(target, path):
                    return value
        if any(
            isinstance(n, (ast.Name, ast.Attribute, ast.Subscript))
            and _same_place(n, path)
            and not isinstance(n.ctx, ast.Load)
            for n in ast.walk(statement)
        ):
            return None
    return None
