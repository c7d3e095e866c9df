"""A running sum of numbers that are read one by one becomes a sum on the device, read once after the loop."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchlint.fixing.splice import (
    FUNCTIONS,
    Unfixable,
    is_load,
    path_to,
    reads_free,
    replacement,
    require_same_text,
    unix_newlines,
)
from torchlint.fixing.statements import insert_after
from torchlint.semantics.names import last_name

if TYPE_CHECKING:
    from torchlint.source import Edit, SourceFile

    Loop = ast.For | ast.AsyncFor | ast.While


def accumulate_then_convert(
    source: SourceFile, item_call: ast.Call, statement: ast.AugAssign, loop: Loop, integer: bool
) -> list[Edit]:
    """`total += loss.item()` → `total += loss.detach().float()`, and `total = float(total)` after `loop`.

    Whole numbers carry no graph and stay what they are, with `int(total)` at the end. Other reads of the total in the
    loop are converted where they stand. The caller knows that total starts as a number, and that the tensor holds one
    value.
    """
    target = statement.target
    if not isinstance(target, ast.Name) or not isinstance(statement.op, ast.Add):
        raise Unfixable("only sums in a plain name are made on the device")
    if not _is_linear(statement.value, item_call):
        raise Unfixable("what is read goes through more than arithmetic")
    divided = any(isinstance(node, ast.Div) for node in ast.walk(statement.value))
    fractions = any(isinstance(n, ast.Constant) and isinstance(n.value, float) for n in ast.walk(statement.value))
    convert = "int" if integer and not (divided or fractions) else "float"
    edits = _kept_on_device(source, item_call, integer)
    _require_one_sum(source, statement, loop, convert)
    for node in ast.walk(loop):
        if isinstance(node, ast.Name) and node.id == target.id and is_load(node):
            require_same_text(source, node)
            edits += replacement(source, *source.span(node), f"{convert}({target.id})")
    conversion = f"{target.id} = {convert}({target.id})"
    after = insert_after(source, loop, conversion)
    behind = source.position(after[0].start)[0] + 1
    if behind > len(source.line_starts) or source.line(behind).strip() != conversion:
        edits += after
    return sorted(edits)


def _is_linear(value: ast.expr, item_call: ast.Call) -> bool:
    """Whether a read reaches the sum through nothing but plus, minus, times and division by plain numbers."""
    match value:
        case _ if value is item_call:
            return True
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            return _is_linear(operand, item_call)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult(), right=right):
            sides = [_is_linear(left, item_call), _is_linear(right, item_call)]
            return any(sides) and all(
                linear or not any(isinstance(node, ast.Call) for node in ast.walk(side)) or _is_count(side)
                for linear, side in zip(sides, (left, right), strict=True)
            )
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return _is_linear(left, item_call) and not any(node is item_call for node in ast.walk(right))
    return False


def _is_count(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and last_name(value.func) in ("len", "size", "numel", "int", "float", "item")


def _kept_on_device(source: SourceFile, item_call: ast.Call, integer: bool) -> list[Edit]:
    """The edits that take a read off the device out of a chain, and detach what is left where it may carry a graph."""
    function = item_call.func
    if isinstance(function, ast.Attribute) and function.attr in ("item", "tolist") and not item_call.args:
        tensor = function.value
    elif isinstance(function, ast.Name) and function.id in ("float", "int") and len(item_call.args) == 1:
        [tensor] = item_call.args
    else:
        raise Unfixable("the read is none that can wait")
    while True:
        match tensor:
            case ast.Call(func=ast.Attribute(value=inner, attr="detach" | "cpu" | "float"), args=[], keywords=[]):
                tensor = inner
            case ast.Call(func=ast.Attribute(value=inner, attr="to"), args=[ast.Constant(value="cpu")], keywords=[]):
                tensor = inner
            case ast.Attribute(value=inner, attr="data"):
                tensor = inner
            case _:
                break
    text = _primary_text(source, item_call, tensor)
    return replacement(source, *source.span(item_call), text if integer else f"{text}.detach().float()")


def _primary_text(source: SourceFile, item_call: ast.Call, tensor: ast.expr) -> str:
    """A tensor's text as a method can be called on it."""
    require_same_text(source, item_call)
    text = unix_newlines(source.segment(tensor))
    if isinstance(tensor, ast.Name | ast.Attribute | ast.Call | ast.Subscript):
        start = source.span(tensor)[0]
        # A chain over several lines, whose continuation lines the parentheses further out allow.
        return text if start >= source.span(item_call)[0] else f"({text})"
    return f"({text})"


def _require_one_sum(source: SourceFile, statement: ast.AugAssign, loop: Loop, convert: str) -> None:
    """Raises Unfixable where the loop does more with the total than add to it, reset it to a number, and read it."""
    name = statement.target.id  # type: ignore[union-attr]
    resets = {
        id(target)
        for node in ast.walk(loop)
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.value, ast.Constant)
        for target in node.targets
    }
    sums = {
        id(node.target)
        for node in ast.walk(loop)
        if node is statement
        or (isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) and convert == "float")
    }
    for node in ast.walk(loop):
        if isinstance(node, FUNCTIONS) and reads_free(node, name):
            raise Unfixable(f"a function of the loop reads {name}")
        if isinstance(node, ast.Name) and node.id == name and not is_load(node) and id(node) not in resets | sums:
            raise Unfixable(f"the loop changes {name} in another way")
    path = path_to(source.parse(), statement)
    scope = next(node for node in reversed(path) if isinstance(node, (*FUNCTIONS, ast.Module, ast.ClassDef)))
    for node in ast.walk(scope):
        if isinstance(node, ast.Global | ast.Nonlocal) and name in node.names:
            raise Unfixable(f"{name} is shared between functions")
        if isinstance(node, FUNCTIONS) and node not in path and reads_free(node, name):
            raise Unfixable(f"another function reads {name}")
