"""Scopes, bindings and imports: one pass over the tree that every later fact stands on.

The pass is an explicit loop over each node type's own child fields (a visitor or `ast.walk` is several times slower,
and recursion would overflow on deep expressions). It records, for the whole file: parents, scopes with what they bind,
functions and classes, loops, calls by their last name, and which methods are used on which name.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
LoopNode = ast.For | ast.AsyncFor | ast.While
Comprehension = ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp

LOOPS = (ast.For, ast.AsyncFor, ast.While)
_BINDING = frozenset({ast.AnnAssign, ast.NamedExpr})
_LEAVES = frozenset({ast.Constant, ast.Name})
TENSOR_TAKERS = frozenset({"backward", "scale", "all_reduce", "manual_backward"})
_START = attrgetter("lineno", "col_offset")
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)

_SKIPPED_FIELDS = frozenset({"ctx", "op", "ops", "type_comment", "kind", "type_params"})


def _child_fields() -> dict[type[ast.AST], tuple[str, ...]]:
    """For each node class, the fields that can hold nodes worth visiting."""
    table: dict[type[ast.AST], tuple[str, ...]] = {}
    plain = frozenset(
        "id attr arg name asname module level names simple is_async rest kwd_attrs conversion str".split()
    )
    for cls in vars(ast).values():
        if isinstance(cls, type) and issubclass(cls, ast.AST):
            skipped = _SKIPPED_FIELDS | plain
            table[cls] = tuple(f for f in cls._fields if f not in skipped)
    table[ast.Constant] = table[ast.MatchSingleton] = ()
    table[ast.Name] = ()
    table[ast.Import] = table[ast.ImportFrom] = ()
    table[ast.Global] = table[ast.Nonlocal] = ()
    table[ast.BoolOp] = ("values",)
    return table


CHILD_FIELDS = _child_fields()


@dataclass(eq=False, slots=True)
class Scope:
    """A module, function, lambda or class body: what it binds, and which methods are used on its names.

    `bindings` maps a name to the expressions assigned to it (None where the value is no plain expression, such as a
    loop target or an import); `usage` maps a dotted path such as `model` or `self.opt` to the attributes called on it,
    with `()` for a call of the path itself and `.name` for an attribute read or set. `foreign` holds the names that are
    declared to be another scope's (`global`, `nonlocal`), `rebound` those of its own that another scope binds so.
    """

    node: ast.AST
    parent: Scope | None
    function: Function | None = None
    owner: Class | None = None
    bindings: dict[str, list[ast.expr | None]] = field(default_factory=dict)
    usage: dict[str, set[str]] = field(default_factory=dict)
    foreign: set[str] = field(default_factory=set)
    rebound: set[str] = field(default_factory=set)
    children: list[Scope] = field(default_factory=list)
    is_outermost: bool = False
    """Whether it is a function's and only the module is around it: what it does not bind means what it means there."""

    def bind(self, name: str, value: ast.expr | None = None) -> None:
        found = self.bindings.get(name)
        if found is None:
            self.bindings[name] = [value]
        else:
            found.append(value)

    def use(self, path: str, attribute: str) -> None:
        found = self.usage.get(path)
        if found is None:
            self.usage[path] = {attribute}
        else:
            found.add(attribute)


@dataclass(eq=False, slots=True)
class Function:
    """A `def`: its node, its dotted place in the file ("Net.forward", "train.<locals>.validate"), and its scope."""

    node: FunctionNode
    name: str
    qualname: str
    scope: Scope
    owner: Class | None
    parent: Function | None
    is_generator: bool = False
    is_static: bool = field(init=False)
    is_classmethod: bool = field(init=False)
    is_property: bool = field(init=False)
    parameters: list[ast.arg] = field(init=False)
    """Every parameter in order: positional-only, positional, `*args`, keyword-only, `**kwargs`."""
    self_name: str = field(init=False)
    """The name of the receiver parameter, empty for plain functions and static methods."""

    def __post_init__(self) -> None:
        decorators = {last_name(d) for d in self.node.decorator_list}
        self.is_static = "staticmethod" in decorators
        self.is_classmethod = "classmethod" in decorators
        self.is_property = not decorators.isdisjoint(("property", "cached_property", "setter"))
        positional = self.node.args.posonlyargs or self.node.args.args
        self.parameters = all_parameters(self.node.args)
        self.self_name = positional[0].arg if self.owner is not None and positional and not self.is_static else ""

    @property
    def only_statement(self) -> ast.stmt | None:
        """What a function does, where that is one statement, a docstring apart."""
        body = self.node.body
        first = body[0]
        if len(body) == 2 and isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            return body[1]
        return first if len(body) == 1 else None


@dataclass(eq=False, slots=True)
class Class:
    """A class: its methods by name, and for each attribute of `self` the methods that assign it."""

    node: ast.ClassDef
    name: str
    qualname: str
    scope: Scope
    methods: dict[str, Function] = field(default_factory=dict)
    writers: dict[str, list[Function]] = field(default_factory=dict)


Definition = Function | Class | tuple[ast.Import | ast.ImportFrom, ast.alias]


@dataclass(eq=False, slots=True)
class Index:
    """What one pass over a file's tree found.

    `calls` holds calls by the last name of what is called, `paths` `a.b` and `a['k']` as strings (see `path_of`),
    `attributes` the nodes `….name` by that name, `counted` the paths that `+= 1` counts, `definitions` the imports,
    functions and classes of the module body by name.
    """

    tree: ast.Module
    root: Scope
    parents: dict[ast.AST, ast.AST] = field(default_factory=dict)
    scopes: dict[ast.AST, Scope] = field(default_factory=dict)
    functions: list[Function] = field(default_factory=list)
    classes: list[Class] = field(default_factory=list)
    loops: list[LoopNode | Comprehension] = field(default_factory=list)
    calls: dict[str, list[ast.Call]] = field(default_factory=lambda: defaultdict(list))
    imports: list[ast.Import | ast.ImportFrom] = field(default_factory=list)
    contexts: list[ast.With | ast.AsyncWith] = field(default_factory=list)
    scope_of: dict[ast.AST, Scope] = field(default_factory=dict)
    paths: dict[ast.expr, str] = field(default_factory=dict)
    attributes: dict[str, list[ast.Attribute]] = field(default_factory=lambda: defaultdict(list))
    counted: set[str] = field(default_factory=set)
    definitions: dict[str, Definition] = field(default_factory=dict)

    def path(self, node: ast.expr) -> str | None:
        """`path_of` for a node of the tree, without putting it together anew."""
        return node.id if node.__class__ is ast.Name else self.paths.get(node)

    def definition(self, name: str) -> Definition | None:
        """The import, function or class that a module-level name stands for wherever it is read: its only binding."""
        found = self.definitions.get(name)
        if found is None or name in self.root.rebound or len(self.root.bindings[name]) != 1:
            return None
        return found


def all_parameters(node: ast.arguments) -> list[ast.arg]:
    """Every parameter in order: positional-only, positional, `*args`, keyword-only, `**kwargs`."""
    found = [*node.posonlyargs, *node.args]
    if node.vararg is not None:
        found.append(node.vararg)
    found += node.kwonlyargs
    if node.kwarg is not None:
        found.append(node.kwarg)
    return found


def last_name(node: ast.expr) -> str:
    """The last identifier of a callee: `item` for `x.y.item`, `zeros` for `zeros`, empty for anything else."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def path_of(node: ast.expr) -> str | None:
    """`a`, `a.b.c` or `a['k']` as one string, None for any other expression: how flow follows places other than
    names.
    """
    if node.__class__ is ast.Name:
        return node.id
    parts: list[str] = []
    while True:
        if isinstance(node, ast.Name):
            parts.append(node.id)
            return "".join(reversed(parts))
        if isinstance(node, ast.Attribute):
            parts.append("." + node.attr)
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            parts.append(f"[{node.slice.value!r}]")
        else:
            return None
        node = node.value


def index_tree(tree: ast.Module) -> Index:
    """Walk `tree` once and record what later facts ask for."""
    return _Indexer(tree).run()


class _Indexer:
    def __init__(self, tree: ast.Module) -> None:
        root = Scope(tree, None)
        self.index = Index(tree, root, scopes={tree: root})
        self.stack: list[tuple[ast.AST, Scope]] = [(tree, root)]
        self.borrowed: list[tuple[ast.Global | ast.Nonlocal, Scope]] = []

    def run(self) -> Index:
        index = self.index
        parents = index.parents
        fields_of, special, constant, name_node, load = CHILD_FIELDS, _SPECIAL, ast.Constant, ast.Name, ast.Load
        pop, push = self.stack.pop, self.stack.append
        while self.stack:
            node, scope = pop()
            cls = node.__class__
            visit = special.get(cls)
            if visit is not None and visit(self, node, scope):
                continue
            for name in fields_of[cls]:
                child = getattr(node, name)
                for item in child if child.__class__ is list else (child,):
                    if item is None:
                        continue
                    parents[item] = node
                    kind = item.__class__
                    # constants and names are two thirds of all nodes, and there is little to record of them
                    if kind is name_node:
                        # a direct target of an assignment was bound together with its value
                        if item.ctx.__class__ is not load and cls not in _BINDING:
                            scope.bind(item.id)
                    elif kind is not constant:
                        push((item, scope))
        self._note_rebound()
        _spread_usage(index.root)
        # of two that start at the same place the outer one was seen first, and stays first
        for calls in index.calls.values():
            calls.sort(key=_START)
        index.functions.sort(key=lambda f: (f.node.lineno, f.node.col_offset))
        index.classes.sort(key=lambda c: (c.node.lineno, c.node.col_offset))
        index.loops.sort(key=_START)
        index.imports.sort(key=_START)
        return index

    def _enter(self, node: ast.AST, outer: Scope, inner: Scope) -> bool:
        """Queue a function's, lambda's or class's children, each in the scope where Python evaluates it."""
        parents, push = self.index.parents, self.stack.append
        for name in CHILD_FIELDS[node.__class__]:
            child = getattr(node, name, None)
            scope = inner if name == "body" else outer
            for item in child if child.__class__ is list else (child,):
                if item.__class__ is ast.arguments:
                    parents[item] = node
                    self._parameters(item, scope)
                elif isinstance(item, ast.AST):
                    parents[item] = node
                    push((item, scope))
        return True

    def _parameters(self, node: ast.arguments, scope: Scope) -> None:
        """Queue what parameters are annotated with and default to."""
        parents, push = self.index.parents, self.stack.append
        for parameter in all_parameters(node):
            parents[parameter] = node
            annotation = parameter.annotation
            if annotation is not None:
                parents[annotation] = parameter
                if annotation.__class__ not in _LEAVES:
                    push((annotation, scope))
        for default in (*node.defaults, *node.kw_defaults):
            if default is not None:
                parents[default] = node
                if default.__class__ not in _LEAVES:
                    push((default, scope))

    # What each special node adds; True means that its children are queued already.

    def function(self, node: FunctionNode, scope: Scope) -> bool:
        owner = scope.owner if isinstance(scope.node, ast.ClassDef) else None
        prefix = owner.qualname + "." if owner else (scope.function.qualname + ".<locals>." if scope.function else "")
        inner = Scope(node, scope, owner=scope.owner)
        outer = scope.parent if isinstance(scope.node, ast.ClassDef) else scope
        inner.is_outermost = outer is not None and outer.parent is None
        function = Function(node, node.name, prefix + node.name, inner, owner, scope.function)
        inner.function = function
        scope.children.append(inner)
        scope.bind(node.name)
        for parameter in function.parameters:
            inner.bind(parameter.arg)
        if owner is not None:
            owner.methods.setdefault(node.name, function)
        if scope.parent is None:
            self.index.definitions[node.name] = function
        self.index.functions.append(function)
        self.index.scopes[node] = inner
        return self._enter(node, scope, inner)

    def lambda_(self, node: ast.Lambda, scope: Scope) -> bool:
        inner = Scope(node, scope, function=scope.function, owner=scope.owner)
        scope.children.append(inner)
        for parameter in all_parameters(node.args):
            inner.bind(parameter.arg)
        self.index.scopes[node] = inner
        return self._enter(node, scope, inner)

    def class_(self, node: ast.ClassDef, scope: Scope) -> bool:
        prefix = scope.owner.qualname + "." if isinstance(scope.node, ast.ClassDef) and scope.owner else ""
        if scope.function is not None and not prefix:
            prefix = scope.function.qualname + ".<locals>."
        inner = Scope(node, scope, function=scope.function)
        cls = Class(node, node.name, prefix + node.name, inner)
        inner.owner = cls
        scope.children.append(inner)
        scope.bind(node.name)
        if scope.parent is None:
            self.index.definitions[node.name] = cls
        self.index.classes.append(cls)
        self.index.scopes[node] = inner
        return self._enter(node, scope, inner)

    def call(self, node: ast.Call, scope: Scope) -> bool:
        index, parents, push = self.index, self.index.parents, self.stack.append
        index.scope_of[node] = scope
        callee = node.func
        parents[callee] = node
        path: str | None = None
        if callee.__class__ is ast.Attribute:
            index.calls[callee.attr].append(node)
            path = self.chain(callee, scope)
            receiver = callee.value
            before = receiver.id if receiver.__class__ is ast.Name else index.paths.get(receiver)
            if before is not None:
                scope.use(before, callee.attr)
            if callee.attr in TENSOR_TAKERS:
                self._evidence_of_arguments(node, callee.attr, scope)
        elif callee.__class__ is ast.Name:
            path = callee.id
            index.calls[path].append(node)
        else:
            index.calls[""].append(node)
            push((callee, scope))
        if path is not None:
            scope.use(path, "()")
        for argument in node.args:
            parents[argument] = node
            if argument.__class__ not in _LEAVES:
                push((argument, scope))
        for keyword in node.keywords:
            value = keyword.value
            parents[keyword] = node
            parents[value] = keyword
            if value.__class__ not in _LEAVES:
                push((value, scope))
        return True

    def _evidence_of_arguments(self, node: ast.Call, name: str, scope: Scope) -> None:
        """`scaler.scale(loss)`, `accelerator.backward(loss)` and `dist.all_reduce(t)` say that their argument is a
        tensor.
        """
        for argument in node.args:
            path = path_of(argument)
            if path is not None:
                scope.use(path, f"{name}(…)")

    def chain(self, node: ast.expr, scope: Scope) -> str | None:
        """Record a whole `a.b['k'].c`, and each place in it; its path, None where it has none."""
        parents, paths, attributes = self.index.parents, self.index.paths, self.index.attributes
        usage = scope.usage
        links: list[ast.Attribute | ast.Subscript] = []
        while node.__class__ is ast.Attribute or node.__class__ is ast.Subscript:
            links.append(node)
            parents[node.value] = node
            node = node.value
        path: str | None = None
        if node.__class__ is ast.Name:
            path = node.id
        elif node.__class__ is not ast.Constant:
            self.stack.append((node, scope))
        for link in reversed(links):
            if link.__class__ is ast.Attribute:
                attributes[link.attr].append(link)
                if path is not None:
                    used = usage.get(path)
                    if used is None:
                        usage[path] = {"." + link.attr}
                    else:
                        used.add("." + link.attr)
                    path = paths[link] = f"{path}.{link.attr}"
                continue
            assert isinstance(link, ast.Subscript)
            index = link.slice
            parents[index] = link
            if isinstance(index, ast.Constant):
                if path is not None:
                    path = paths[link] = f"{path}[{index.value!r}]"
            else:
                path = None
                if index.__class__ is not ast.Name:
                    self.stack.append((index, scope))
        return path

    def place(self, node: ast.Attribute | ast.Subscript, scope: Scope) -> bool:
        self.chain(node, scope)
        return True

    def assign(self, node: ast.Assign, scope: Scope) -> bool:
        parents, push, value = self.index.parents, self.stack.append, node.value
        for target in node.targets:
            parents[target] = node
            if target.__class__ is ast.Name:
                scope.bind(target.id, value)
            else:
                self._assign_target(target, value, scope)
                push((target, scope))
        parents[value] = node
        if value.__class__ not in _LEAVES:
            push((value, scope))
        return True

    def ann_assign(self, node: ast.AnnAssign, scope: Scope) -> None:
        self._assign_target(node.target, node.value, scope)

    def named(self, node: ast.NamedExpr, scope: Scope) -> None:
        self._assign_target(node.target, node.value, scope)

    def aug_assign(self, node: ast.AugAssign, scope: Scope) -> None:
        if isinstance(node.op, ast.Add) and isinstance(node.value, ast.Constant):
            path = path_of(node.target)
            if path is not None:
                self.index.counted.add(path)
        self._note_attribute(node.target, scope)

    def _assign_target(self, target: ast.expr, value: ast.expr | None, scope: Scope) -> None:
        if isinstance(target, ast.Name):
            scope.bind(target.id, value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for item in target.elts:
                self._note_attribute(item, scope)
        else:
            self._note_attribute(target, scope)

    def _note_attribute(self, target: ast.expr, scope: Scope) -> None:
        function, owner = scope.function, scope.owner
        if not (isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and function and owner):
            return
        method: Function | None = function
        while method is not None and method.owner is None:
            method = method.parent
        if method is None or target.value.id != method.self_name:
            return
        writers = owner.writers.setdefault(target.attr, [])
        if function not in writers:
            writers.append(function)

    def loop(self, node: LoopNode | Comprehension, scope: Scope) -> None:
        self.index.loops.append(node)
        self.index.scope_of[node] = scope

    def import_(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        self.index.imports.append(node)
        for alias in node.names:
            name = (alias.asname or alias.name).partition(".")[0]
            scope.bind(name)
            if scope.parent is None:
                self.index.definitions[name] = (node, alias)

    def context(self, node: ast.With | ast.AsyncWith, scope: Scope) -> None:
        self.index.contexts.append(node)

    def global_(self, node: ast.Global | ast.Nonlocal, scope: Scope) -> None:
        scope.foreign.update(node.names)
        self.borrowed.append((node, scope))

    def _note_rebound(self) -> None:
        """Note with each scope which of its names another one binds by `global` or `nonlocal`."""
        for node, scope in self.borrowed:
            for name in scope.bindings.keys() & node.names:
                owner = self.index.root if isinstance(node, ast.Global) else scope.parent
                while owner is not None and owner.parent is not None:
                    if name in owner.bindings and name not in owner.foreign and owner.function is not None:
                        break
                    owner = owner.parent
                if owner is not None:
                    owner.rebound.add(name)

    def handler(self, node: ast.ExceptHandler, scope: Scope) -> None:
        if node.name:
            scope.bind(node.name)

    def pattern(self, node: ast.MatchAs | ast.MatchStar, scope: Scope) -> None:
        if node.name:
            scope.bind(node.name)

    def yield_(self, node: ast.Yield | ast.YieldFrom, scope: Scope) -> None:
        if scope.function is not None:
            scope.function.is_generator = True


# Each method takes its own node class: the key says which.
_SPECIAL: dict[type[ast.AST], Callable[[_Indexer, Any, Scope], bool | None]] = {
    ast.FunctionDef: _Indexer.function,
    ast.AsyncFunctionDef: _Indexer.function,
    ast.Lambda: _Indexer.lambda_,
    ast.ClassDef: _Indexer.class_,
    ast.Call: _Indexer.call,
    ast.Attribute: _Indexer.place,
    ast.Subscript: _Indexer.place,
    ast.Assign: _Indexer.assign,
    ast.AnnAssign: _Indexer.ann_assign,
    ast.AugAssign: _Indexer.aug_assign,
    ast.NamedExpr: _Indexer.named,
    ast.For: _Indexer.loop,
    ast.AsyncFor: _Indexer.loop,
    ast.While: _Indexer.loop,
    ast.ListComp: _Indexer.loop,
    ast.SetComp: _Indexer.loop,
    ast.GeneratorExp: _Indexer.loop,
    ast.DictComp: _Indexer.loop,
    ast.With: _Indexer.context,
    ast.AsyncWith: _Indexer.context,
    ast.Import: _Indexer.import_,
    ast.ImportFrom: _Indexer.import_,
    ast.Global: _Indexer.global_,
    ast.Nonlocal: _Indexer.global_,
    ast.ExceptHandler: _Indexer.handler,
    ast.MatchAs: _Indexer.pattern,
    ast.MatchStar: _Indexer.pattern,
    ast.Yield: _Indexer.yield_,
    ast.YieldFrom: _Indexer.yield_,
}


def _spread_usage(scope: Scope) -> None:
    """Methods used on a name in a nested function speak of the outer scope's name too, unless it is rebound there."""
    order = [scope]
    for current in order:
        order.extend(current.children)
    for current in reversed(order):
        parent = current.parent
        if parent is None:
            continue
        for path, attributes in current.usage.items():
            base = path.partition(".")[0].partition("[")[0]
            if base not in current.bindings or base in current.foreign:
                known = parent.usage.get(path)
                if known is None:
                    parent.usage[path] = set(attributes)
                else:
                    known.update(attributes)
