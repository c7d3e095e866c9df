"""Tensors made on the host and moved right away: the creation behind a move."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchlint import torch_api
from torchlint.semantics.names import path_of

if TYPE_CHECKING:
    from torchlint.semantics.module import Module

# Views and expands: the values stay as the factory made them.
_VIEWS = frozenset(
    "view reshape expand expand_as unsqueeze squeeze permute transpose t view_as repeat flatten contiguous unflatten "
    "swapaxes movedim requires_grad_ tile narrow".split()
)


@dataclass(frozen=True, slots=True)
class Creation:
    """A factory call whose result `move` takes to a device.

    changed: a view, expand or fill stands between. binding: the path that the result was bound to first;
    move_statement: the statement `x = x.to(device)` where the move is all that a statement does.
    """

    name: str
    call: ast.Call
    move: ast.Call
    changed: bool
    binding: str | None = None
    move_statement: ast.Assign | None = None


def creation_moved_by(module: Module, move: ast.Call) -> Creation | None:
    """The creation that a move copies, where the two belong together; None for any other move."""
    assert isinstance(move.func, ast.Attribute)
    receiver = move.func.value
    direct = _creation_in(module, receiver)
    if direct is not None:
        return Creation(direct[0], direct[1], move, direct[2]) if not _left_out_elsewhere(module, move) else None
    path = path_of(receiver)
    return _bound_creation(module, move, path) if path is not None else None


def _left_out_elsewhere(module: Module, move: ast.Call) -> bool:
    """Whether a conditional expression around a move makes the same without it: `zeros(n).cuda() if gpu else zeros(n)`.

    That is a move under a condition, as in `x.cuda() if gpu else x`.
    """
    assert isinstance(move.func, ast.Attribute)
    child: ast.AST = move
    while not isinstance(parent := module.parents[child], ast.stmt):
        if isinstance(parent, ast.IfExp) and child is not parent.test:
            other = parent.orelse if child is parent.body else parent.body
            without = ast.dump(child).replace(ast.dump(move), ast.dump(move.func.value), 1)
            if ast.dump(other) == without:
                return True
        child = parent
    return False


def _creation_in(module: Module, node: ast.expr) -> tuple[str, ast.Call, bool] | None:
    """(factory, call, changed) where an expression is a factory call, perhaps behind views, fills and Variable."""
    changed = False
    while True:
        if isinstance(node, ast.Subscript):
            node, changed = node.value, True
            continue
        if not isinstance(node, ast.Call):
            return None
        name = module.qualified(node.func)
        if name == "torch.autograd.Variable" and node.args:
            node = node.args[0]
            continue
        if name is not None:
            return (name, node, changed) if _makes_on_host(module, name, node) else None
        if isinstance(node.func, ast.Attribute) and (node.func.attr in _VIEWS or _fills(node.func.attr)):
            node, changed = node.func.value, True
            continue
        return None


def _makes_on_host(module: Module, name: str, call: ast.Call) -> bool:
    if name not in torch_api.FACTORIES and name not in torch_api.LEGACY_CONSTRUCTORS:
        return False
    value = module.value(call)
    if value.kind != "tensor" or not value.host or any(k.arg == "out" for k in call.keywords):
        return False
    if name in ("torch.tensor", "torch.as_tensor", "torch.normal", "torch.full") and any(
        module.is_tensor(argument) for argument in call.args if not isinstance(argument, ast.Starred)
    ):
        return name == "torch.full"
    if any(
        k.arg == "pin_memory" and not (isinstance(k.value, ast.Constant) and k.value.value is False)
        for k in call.keywords
    ):
        return False
    return not module.inside_device_context(call)


def counts_whole(call: ast.Call) -> bool:
    """Whether an arange counts in whole numbers: no float literal or division among its arguments, and no float
    dtype.
    """
    for keyword in call.keywords:
        if keyword.arg == "dtype" and not ast.unparse(keyword.value).startswith(
            ("torch.int", "torch.long", "torch.uint")
        ):
            return False
    bounds = [*call.args, *(k.value for k in call.keywords if k.arg in ("start", "end", "step"))]
    return not any(
        (isinstance(node, ast.Constant) and isinstance(node.value, float))
        or (isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.Pow)))
        for bound in bounds
        for node in ast.walk(bound)
    )


def _fills(method: str) -> bool:
    """Whether a method writes values in place: torch's in-place methods end in one underscore."""
    return method.endswith("_") and not method.endswith("__")


def _bound_creation(module: Module, move: ast.Call, path: str) -> Creation | None:
    """`x = torch.zeros(n)` with `x.to(device)` as the first use of x, both in one block and under no condition."""
    statement = module.statement_of(move)
    block = module.block_of(statement)
    if block is None or module.under_condition(move, statement):
        return None
    position = block.index(statement)
    changed = False
    for earlier in reversed(block[:position]):
        target = _target(earlier)
        if target == path:
            assert isinstance(earlier, (ast.Assign, ast.AnnAssign))
            assert earlier.value is not None
            found = _creation_in(module, earlier.value)
            if found is None:
                inner = earlier.value
                if _view_of(inner, path):
                    changed = True
                    continue
                return None
            name, call, changed_there = found
            if not _first_use(module, move, statement, path):
                return None
            alone = isinstance(statement, ast.Assign) and statement.value is move and _target(statement) == path
            return Creation(name, call, move, changed or changed_there, path, statement if alone else None)  # type: ignore[arg-type]
        if _is_fill(earlier, path):
            changed = True
        elif _mentions(earlier, path) or _may_read(earlier, path):
            return None
    return None


def _target(statement: ast.stmt) -> str | None:
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        return path_of(statement.targets[0])
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:
        return path_of(statement.target)
    return None


def _view_of(node: ast.expr, path: str) -> bool:
    """Whether an expression is a view of the value at `path`: `x.view(1, -1)`."""
    seen = False
    while (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and (node.func.attr in _VIEWS or _fills(node.func.attr))
    ):
        node, seen = node.func.value, True
    return seen and path_of(node) == path


def _is_fill(statement: ast.stmt, path: str) -> bool:
    """Whether a statement writes into the value: `x.fill_(1)`, `x[0] = 1`."""
    if (
        isinstance(statement, ast.Assign)
        and len(statement.targets) == 1
        and isinstance(statement.targets[0], ast.Subscript)
    ):
        return path_of(statement.targets[0].value) == path and not _mentions(statement.value, path)
    return isinstance(statement, ast.Expr) and _view_of(statement.value, path)


def _mentions(statement: ast.AST, path: str) -> bool:
    return any(isinstance(node, (ast.Name, ast.Attribute)) and path_of(node) == path for node in ast.walk(statement))


def _may_read(statement: ast.AST, path: str) -> bool:
    """Whether a method called on the owner of an attribute may read it: `model.export()` between x and `model.x`."""
    owner = path.rpartition(".")[0]
    return bool(owner) and any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and path_of(node.func.value) == owner
        for node in ast.walk(statement)
    )


def _first_use(module: Module, move: ast.Call, statement: ast.stmt, path: str) -> bool:
    """Whether the move is the first thing in its statement that reads the value."""
    assert isinstance(move.func, ast.Attribute)
    receiver = move.func.value
    reads = [
        node
        for node in ast.walk(statement)
        if isinstance(node, (ast.Name, ast.Attribute)) and path_of(node) == path and isinstance(node.ctx, ast.Load)
    ]
    return bool(reads) and min(reads, key=lambda n: (n.lineno, n.col_offset)) is receiver
