"""Code that asks whether a layer has a bias before it touches it, and so goes on working where there is none."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchlint.semantics.names import LOOPS, last_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchlint.semantics.module import Module

_DEFS = (ast.FunctionDef, ast.AsyncFunctionDef)
_TRIES: tuple[type[ast.AST], ...] = (ast.Try, *([ast.TryStar] if hasattr(ast, "TryStar") else []))
_ANY_ERROR = frozenset({"Exception", "BaseException"})
_LEAVING = (ast.Raise, ast.Return, ast.Break)


def asks_for_bias(module: Module, node: ast.Attribute) -> bool:
    """Whether `x.bias` is a test for a bias, or stands where one has been made: by a condition around it, by an early
    exit before it, or by a handler of what a bias of None raises.
    """
    child: ast.AST = node
    parent = module.parents.get(child)
    while parent is not None and not isinstance(parent, (*_DEFS, ast.Module)):
        if isinstance(parent, ast.Compare) and any(isinstance(o, (ast.Is, ast.IsNot)) for o in parent.ops):
            return True
        if isinstance(parent, (ast.If, ast.IfExp, ast.While)) and (child is parent.test or _mentions_bias(parent.test)):
            return True
        if isinstance(parent, ast.BoolOp):
            before = parent.values[: parent.values.index(child)] if child in parent.values else []
            if any(_mentions_bias(value) for value in before):
                return True
        if _left_before(parent, child, node.value):
            return True
        child, parent = parent, module.parents.get(parent)
    return (parent is not None and _left_before(parent, child, node.value)) or _is_caught(module, node)


def _mentions_bias(test: ast.expr) -> bool:
    for node in ast.walk(test):
        if isinstance(node, ast.Attribute) and node.attr == "bias":
            return True
        if isinstance(node, ast.Name) and "bias" in node.id:
            return True
        if isinstance(node, ast.Call) and last_name(node.func) == "getattr":
            return True
    return False


# Early exits


def _left_before(parent: ast.AST, child: ast.AST, layer: ast.expr) -> bool:
    """Whether an earlier statement of the block leaves it where the layer has no bias: `if m.bias is None: return`."""
    for name in ("body", "orelse", "finalbody"):
        block = getattr(parent, name, None)
        if isinstance(block, list) and any(child is statement for statement in block):
            earlier = block[: next(n for n, statement in enumerate(block) if statement is child)]
            return any(
                isinstance(s, ast.If)
                and isinstance(s.body[-1], (ast.Return, ast.Raise, ast.Continue, ast.Break))
                and any(_is_missing(test, layer) for test in _alternatives(s.test))
                for s in earlier
            )
    return False


def _alternatives(test: ast.expr) -> list[ast.expr]:
    """The tests of which one being true is enough."""
    return test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) else [test]


def _is_missing(test: ast.expr, layer: ast.expr) -> bool:
    """Whether a test is true where `layer` has no bias: `x.bias is None`, `getattr(x, "bias", None) is None`."""
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Is, ast.Eq))):
        return False
    if not (isinstance(test.comparators[0], ast.Constant) and test.comparators[0].value is None):
        return False
    match test.left:
        case ast.Attribute(value=base, attr="bias"):
            return ast.dump(base) == ast.dump(layer)
        case ast.Call(func=ast.Name(id="getattr"), args=[base, ast.Constant(value="bias"), *_]):
            return ast.dump(base) == ast.dump(layer)
    return False


# Handlers


def _is_caught(module: Module, node: ast.Attribute) -> bool:
    """Whether what the use raises with a bias of None ends in a handler around that use alone.

    Nothing may be left undone by it: the use ends its `try` (or `with suppress(…)`), in no loop inside that.
    """
    raised = _raised_by(module, node)
    child: ast.AST = module.statement_of(node)
    while raised:
        parent = module.parents[child]
        block = getattr(parent, "body", [])
        if isinstance(parent, (*_DEFS, ast.Module, ast.ClassDef, *LOOPS)):
            return False
        if isinstance(parent, _TRIES) and child is block[-1] and _handles(parent, raised):
            return True
        if isinstance(parent, ast.With) and child is block[-1] and _suppresses(parent, raised):
            return True
        others = getattr(parent, "orelse", None) or block
        if child is not block[-1] and child is not others[-1]:
            return False
        child = parent
    return False


def _raised_by(module: Module, node: ast.Attribute) -> str:
    """The exception that a use of a bias raises where it is None (tried on torch 2.13), "Exception" for one of a kind
    that is not known, and an empty string for a plain read, which raises nothing.

    `torch.nn.init` calls a method of the tensor, or asks it for an attribute, first.
    """
    user = module.parents[node]
    match user:
        case ast.Attribute():
            return "AttributeError"
        case ast.Subscript() | ast.AugAssign() | ast.BinOp() | ast.UnaryOp():
            return "TypeError"
        case ast.Call(func=function, args=[first, *_]) if first is node:
            return "AttributeError" if (module.qualified(function) or "").startswith("torch.nn.init.") else "Exception"
        case ast.Call() | ast.keyword():
            return "Exception"
    return ""


def _handles(block: ast.AST, raised: str) -> bool:
    """Whether a handler takes the exception and goes on behind the `try`."""
    for handler in block.handlers:  # type: ignore[attr-defined]
        if handler.type is None or not _ANY_ERROR.union({raised}).isdisjoint(_names(handler.type)):
            return not any(isinstance(n, _LEAVING) for statement in handler.body for n in ast.walk(statement))
    return False


def _suppresses(block: ast.With, raised: str) -> bool:
    for call in (item.context_expr for item in block.items):
        if isinstance(call, ast.Call) and last_name(call.func) == "suppress":
            names = {name for argument in call.args for name in _names(argument)}
            if not _ANY_ERROR.union({raised}).isdisjoint(names):
                return True
    return False


def _names(caught: ast.expr) -> Iterator[str]:
    for part in caught.elts if isinstance(caught, ast.Tuple) else [caught]:
        yield last_name(part)
