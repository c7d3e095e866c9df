"""Which classes and functions of a file can pair a layer with a norm at all: only these are followed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from torchlint.semantics.layers_facts import Maker, argument, constant, is_norm
from torchlint.semantics.layers_graph import BIAS_POSITION
from torchlint.semantics.names import Class, Function

if TYPE_CHECKING:
    import ast

    from torchlint.semantics.module import Module

# An outermost class or function of the file, None for the module body.
Root = Class | Function | None
FindMaker = Callable[[str], Maker | None]


def pairing_roots(module: Module, find_maker: FindMaker) -> set[Root]:
    """The roots that may hold both a layer with a bias and a norm, and all that use a helper or base of theirs."""
    layers = _calls_with(module, "conv", "linear")
    biased = _spread(module, _roots_of(module, layers, lambda call: _may_be_biased(module, call, find_maker)))
    if not biased:
        return biased
    norms = _calls_with(module, "norm", "bn")
    normed = _spread(module, _roots_of(module, norms, lambda call: _is_norm(module, call, find_maker)))
    return with_users(module, normed & biased)


def _calls_with(module: Module, *words: str) -> list[ast.Call]:
    """Calls whose name holds one of the words, as the names of such layers and of what builds them do."""
    found = []
    for name, calls in module.index.calls.items():
        lowered = name.lower()
        if any(word in lowered for word in words):
            found += calls
    return found


def _roots_of(module: Module, calls: list[ast.Call], holds: Callable[[ast.Call], bool]) -> set[Root]:
    """The roots with a call that holds. One is enough, and `self.conv(x)`, which costs an evaluation, is asked last."""
    found: set[Root] = set()
    for call in sorted(calls, key=lambda call: module.is_place_of_self(call.func)):
        root = root_of(module, call)
        if root not in found and holds(call):
            found.add(root)
    return found


def root_of(module: Module, node: ast.AST) -> Root:
    """The outermost class or function around a node."""
    root: Root = None
    parent = module.parents.get(node)
    while parent is not None:
        root = module.class_at.get(parent) or module.function_at.get(parent) or root  # type: ignore[call-overload]
        parent = module.parents.get(parent)
    return root


def with_users(module: Module, roots: set[Root]) -> set[Root]:
    """The roots, the bases and subclasses of their classes, and whoever calls or is called by their helpers.

    A layer that a helper builds is cancelled only if it is for every caller, so all callers count.
    """
    found = set(roots)
    helpers = {f.name: f for f in module.functions if f.owner is None and f.parent is None}
    names = _class_names(module)
    for root in roots:
        if isinstance(root, Function):
            found |= {root_of(module, call) for call in module.calls_named(root.name)}
    for name, helper in helpers.items():
        if helper not in found:
            callers = {root_of(module, call) for call in module.calls_named(name)}
            if callers & found and helper in _spread_down(module, found):
                found |= callers | {helper}
    for cls in module.classes:
        lineage = {names[base] for base in module.bases_of(module.id_of(cls)) if base in names}
        if lineage & found:
            found |= lineage | {cls}
    return found


def _spread_down(module: Module, roots: set[Root]) -> set[Root]:
    """Functions of the file that code in these roots calls by name."""
    called: set[Root] = set()
    for function in module.functions:
        if function.owner is None and any(root_of(module, call) in roots for call in module.calls_named(function.name)):
            called.add(function)
    return called


def _spread(module: Module, roots: set[Root]) -> set[Root]:
    """The roots, with callers of helpers among them and subclasses of classes among them, as far as that leads."""
    found = set(roots)
    names = _class_names(module)
    while True:
        before = len(found)
        for root in list(found):
            if isinstance(root, Function) and root.owner is None:
                found |= {root_of(module, call) for call in module.calls_named(root.name)}
        for cls in module.classes:
            if cls not in found and any(
                names.get(base) in found for base in module.bases_of(module.id_of(cls)) if base in names
            ):
                found.add(cls)
        if len(found) == before:
            return found


def _class_names(module: Module) -> dict[str, Class]:
    return {module.id_of(cls): cls for cls in module.classes}


def _is_norm(module: Module, call: ast.Call, find_maker: FindMaker) -> bool:
    """Whether a call builds a norm which cancels a mean."""
    callee = module.value(call.func)
    if callee.kind == "symbol":
        return is_norm(callee.name)
    maker = find_maker(callee.name) if callee.kind in ("class", "function") else None
    return maker is not None and maker.cancels_mean


def _may_be_biased(module: Module, call: ast.Call, find_maker: FindMaker) -> bool:
    """Whether a call may build a layer with a bias."""
    if constant(argument(call, "bias", -1)) is False:
        return False  # the most frequent case needs no resolving
    callee = module.value(call.func)
    position = BIAS_POSITION.get(callee.name, -1) if callee.kind == "symbol" else -1
    known = position >= 0 or (callee.kind in ("class", "function") and find_maker(callee.name) is not None)
    return known and constant(argument(call, "bias", position)) is not False
