"""Flow: what each expression of a file is, followed statement by statement.

One `Flow` evaluates the scopes of one file, each once, in the order in which Python would: the module body, then a
function when something asks for it (its enclosing scope first). Branches are joined to what they agree on, loops run
until their entry state holds, and what a called function returns comes from evaluating it, or, across files, from the
link step. What each kind of node means is in `statements` and `expressions`; here is what they share. Alongside, a flow
notes the events that regions are made of (forward, backward, optimizer step, differentiation) and every call of the
project's own code.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

import msgspec

from torchlint import torch_api
from torchlint.semantics import members
from torchlint.semantics.annotations import annotation
from torchlint.semantics.expressions import EXPRESSIONS, children, constant
from torchlint.semantics.names import TENSOR_TAKERS, Class, Function, FunctionNode, Scope
from torchlint.semantics.statements import STATEMENTS, LoopState
from torchlint.semantics.values import (
    MODULE,
    NONE,
    OPTIMIZER,
    TENSOR,
    UNKNOWN,
    Value,
    container,
    join,
    join_all,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torchlint.semantics.module import Module
    from torchlint.semantics.project_calls import ProjectCall

Env = dict[str, Value]
Key = Scope | tuple[Class, str] | str  # what an evaluation reads: a scope, an attribute of a class, a project's id
_BUILTINS = frozenset(dir(__builtins__) if not isinstance(__builtins__, dict) else __builtins__)
_NAME, _CONSTANT = ast.Name, ast.Constant
_DEFINED = frozenset({"package", "symbol", "class", "function"})
_TENSOR_EVIDENCE = frozenset({"backward", *(f"{name}(…)" for name in TENSOR_TAKERS)})


class Flow:
    """The evaluation of one file. `values` holds every expression evaluated so far.

    A `shallow` one tells what names are bound to and no more: it leaves out statements that bind nothing, and arguments
    of calls that give the same whatever they are given.
    """

    def __init__(self, module: Module, *, shallow: bool = False) -> None:
        self.module = module
        self.shallow = shallow
        self.values: dict[ast.expr, Value] = {}
        self.joined: dict[Scope, Env] = {}
        self.returns: dict[Function, list[Value]] = {}
        self.attributes: dict[tuple[Class, str], Value] = {}
        self.declared: dict[tuple[Class, str], Value] = {}
        self.events: dict[ast.AST, str] = {}
        self.calls: dict[ast.Call, ProjectCall] = {}
        self._noted = self.values, self.events, self.calls  # the call of a lambda looks at others for a while
        self.open_parameters: dict[Function, list[str]] = {}  # of which nothing is known here
        self.asked: dict[Function, set[str]] = {}  # attributes of other files' classes, not known yet
        self.lambdas: dict[str, tuple[ast.Lambda, Env]] = {}
        self.lambda_calls: dict[ast.Call, tuple[ast.Lambda, tuple[Value, ...]]] = {}
        self.open_lambdas: set[str] = set()
        # by scope, what its evaluation has read: other scopes, attributes of classes, ids of what the project says
        self.reads: dict[Scope, set[Key]] = {}
        self.read: set[Key] = set()  # that of the scope under evaluation
        self.writers: dict[tuple[Class, str], set[Key]] = {}  # the scopes that have written an attribute
        self.unfinished: dict[Scope, set[Key]] = {}  # by scope, those that it has read while they were under way
        self._definitions: dict[str, Value | None] = {}
        self._finished: set[Scope] = set()
        self._started: set[Scope] = set()
        self._results: dict[Function, Value] = {}  # of finished functions
        self._settled: dict[tuple[Class, str], Value] = {}  # attributes all of whose writers are finished
        self.loops: list[LoopState] = []
        self.places: dict[str, set[str]] = {}  # by base name, the longer paths that some state may hold
        self.carried: dict[ast.AST, Env] = {}  # the state that a loop settled at, for rounds of the loop around it
        self.scope: Scope = module.index.root
        self._unit: Scope = module.index.root  # the scope under evaluation, classes in it apart

    # Entry points

    def ensure(self, scope: Scope) -> None:
        """Evaluate `scope` (and first the functions around it) unless that has been done or is under way."""
        self.read.add(scope)
        if scope in self._started:
            if scope not in self._finished and scope is not self._unit:
                self.unfinished.setdefault(self._unit, set()).add(scope)
            return
        if scope.parent is not None and not isinstance(scope.node, ast.ClassDef):
            outer = self.body_scope(scope.parent)
            if outer is not self.module.index.root:
                self.ensure(outer)
                if scope in self._started:
                    return
        self._started.add(scope)
        outside = self.scope, self._unit, self.read, self.loops
        looked_at = self.values, self.events, self.calls
        self.values, self.events, self.calls = self._noted
        self.scope = self._unit = scope
        self.read = self.reads.setdefault(scope, set())
        self.loops = []
        try:
            env: Env = {}
            self.joined.setdefault(scope, {})
            if isinstance(scope.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self._bind_parameters(scope, env)
            if isinstance(scope.node, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef)):
                self.block(scope.node.body, env)
        finally:
            self.scope, self._unit, self.read, self.loops = outside
            self.values, self.events, self.calls = looked_at
            self._finished.add(scope)

    def ensure_all(self) -> None:
        """Evaluate every scope of the file, in source order."""
        self.ensure(self.module.index.root)
        for function in self.module.index.functions:
            self.ensure(function.scope)

    @staticmethod
    def body_scope(scope: Scope) -> Scope:
        """The scope whose evaluation covers `scope`: classes and lambdas are evaluated where they stand."""
        while isinstance(scope.node, (ast.Lambda, ast.ClassDef)) and scope.parent is not None:
            scope = scope.parent
        return scope

    def forget(self, stale: set[Key]) -> None:
        """Let go of what scopes and attributes of classes have been found to be: they are evaluated anew when asked."""
        functions = {scope.function for scope in stale if isinstance(scope, Scope) and scope.function is not None}
        for by_scope in (self.reads, self.unfinished, self.joined):
            _drop(by_scope, stale)
        for by_attribute in (self.attributes, self.writers, self._settled):
            _drop(by_attribute, stale)
        for by_function in (self.returns, self._results, self.open_parameters, self.asked):
            _drop(by_function, functions)
        for by_node in (self.events, self.calls, self.lambda_calls):
            _drop(by_node, [node for node in by_node if self._stands_in(node, stale)])
        _drop(self.lambdas, [name for name, (node, _) in self.lambdas.items() if self._stands_in(node, stale)])
        for cls in self.module.classes:
            if self.body_scope(cls.scope) in stale:
                self.joined.pop(cls.scope, None)
        self._started -= stale
        self._finished -= stale
        self.carried.clear()

    def _stands_in(self, node: ast.AST, scopes: set[Key]) -> bool:
        return self.body_scope(self.module.scope_of(node)) in scopes

    def value(self, node: ast.expr) -> Value:
        """The value of an expression, evaluating its scope on first demand."""
        if node.__class__ is ast.Constant:
            return constant(node)
        here = self.module.scope_of(node)
        scope = self.body_scope(here)
        if scope not in self._started:
            if self._is_global(node, here):
                return self.static(node, here)
            self.ensure(scope)
        return self.values.get(node, UNKNOWN)

    def _is_global(self, node: ast.expr, scope: Scope) -> bool:
        """Whether an expression is a name, or a chain of attributes of one, that no function around it binds: what it
        means does not depend on flow.
        """
        while node.__class__ is ast.Attribute:
            node = node.value
        if node.__class__ is not ast.Name:
            return False
        current: Scope | None = scope
        while current is not None and current.parent is not None:
            if node.id in current.bindings:
                return False
            current = current.parent
        return scope is not self.module.index.root or self._defined(node.id) is not None

    def _defined(self, name: str) -> Value | None:
        """The import, function or class that a module-level name always stands for, None for any other name."""
        if name in self._definitions:
            return self._definitions[name]
        found = self.module.index.definition(name)
        if found is None:
            value = None
        elif isinstance(found, Function):
            value = Value("function", name=self.module.id_of(found))
        elif isinstance(found, Class):
            value = Value("class", name=self.module.id_of(found))
        else:
            value = self.imported(*found)
        self._definitions[name] = value
        return value

    def imported(self, node: ast.Import | ast.ImportFrom, alias: ast.alias) -> Value:
        """What one name of an import statement binds."""
        if isinstance(node, ast.ImportFrom):
            return self.module.imported_from(node, alias.name)
        if alias.asname:
            return self.module.imported(alias.name)
        return self.module.imported(alias.name.partition(".")[0], alias.name)

    def result_of(self, function: Function) -> Value:
        """What calling a function of this file gives."""
        self.read.add(function.scope)
        known = self._results.get(function)
        if known is not None:
            return known
        found = self._result_of(function)
        if function.scope in self._finished:
            self._results[function] = found
        return found

    def _result_of(self, function: Function) -> Value:
        linked = self.module.linked.returns.get(self.module.id_of(function))
        self.ensure(function.scope)
        given = self.returns.get(function)
        if given is None:
            # no `return` at all gives None, but an abstract method stands for what its overrides give
            given = [UNKNOWN if _is_abstract(function.node) else NONE]
        found = join_all(given)
        if found.kind in ("unknown", "ref") and function.node.returns is not None and not function.is_generator:
            promised = annotation(self, function.node.returns)
            if promised.kind not in ("unknown", "none", "class"):
                return promised
        if found.kind in ("unknown", "ref") and linked is not None:
            return linked
        if function.is_generator:
            return Value("iterator", items=(found,))
        return found

    def attribute_of(self, owner: Class, name: str) -> Value:
        """What all assignments to `self.name` in a class of this file agree on, evidence of use where they do not
        say.
        """
        key = owner, name
        self.read.add(key)
        known = self._settled.get(key)
        if known is not None:
            return known
        writers = owner.writers.get(name, ())
        for writer in writers:
            self.ensure(writer.scope)
        scopes = [writer.scope for writer in writers]
        if name in owner.scope.bindings:
            scopes.append(self.body_scope(owner.scope))
            self.ensure(scopes[-1])
        found = self._attribute_of(owner, name)
        if found.kind != "unknown" and all(scope in self._finished for scope in scopes):
            self._settled[key] = found
        return found

    def _attribute_of(self, owner: Class, name: str) -> Value:
        # an annotation names the base that all assigned values share
        declared = self.declared.get((owner, name), UNKNOWN)
        if declared.kind not in ("unknown", "none", "ref", "class"):
            return declared
        found = self.attributes.get((owner, name))
        if found is None or found.kind in ("unknown", "none", "ref"):
            evidence = self.evidence(self.module.class_usage(owner, name))
            if evidence is not UNKNOWN:
                return evidence
        return found or UNKNOWN

    # Parameters and evidence

    def _bind_parameters(self, scope: Scope, env: Env) -> None:
        function = scope.function
        assert function is not None
        given = self.module.linked.parameters.get(self.module.id_of(function), {})
        in_forward = (
            function.name == "forward" and function.owner is not None and self.module.is_module_class(function.owner)
        )
        args = function.node.args
        receiver = function.self_name
        for parameter in function.parameters:
            name = parameter.arg
            if name == receiver:
                value = self.module.self_value(function)
            else:
                value = annotation(self, parameter.annotation) if parameter.annotation is not None else UNKNOWN
                if value.kind in ("unknown", "class", "ref") or (value.kind == "module" and not value.name):
                    passed = given.get(name, UNKNOWN)
                    if passed.kind not in ("unknown", "none"):
                        value = passed
                elif value.kind == given.get(name, UNKNOWN).kind and value.kind in ("tensor", "dataset", "loader"):
                    value = given[name]  # the annotation names a base, the call sites what it is
                if value.kind == "unknown":
                    value = self.evidence(scope.usage.get(name, set()), in_forward)
                    if value is UNKNOWN:
                        self.open_parameters.setdefault(function, []).append(name)
                if parameter is args.vararg:
                    value = Value("list", items=(value,) if value.kind != "unknown" else ())
                elif parameter is args.kwarg:
                    value = Value("dict", items=(UNKNOWN,))
            self.store(name, value, env)

    def _with_evidence(self, value: Value, usage: set[str]) -> Value:
        """A value that flow does not know, by what is done with it."""
        evidence = self.evidence(usage)
        return evidence if evidence.kind != "unknown" else value

    def evidence(self, usage: set[str], in_forward: bool = False) -> Value:
        """What the methods used on a name say of it, where nothing else does."""
        if not usage:
            return UNKNOWN
        if usage & _TENSOR_EVIDENCE:
            return Value("tensor", dtype="float")
        if in_forward and usage & torch_api.TENSOR_ONLY_METHODS:
            return TENSOR
        if usage & torch_api.MODULE_ONLY_METHODS or ("train" in usage and "()" in usage):
            return MODULE
        if "zero_grad" in usage and ("step" in usage or ".param_groups" in usage):
            return OPTIMIZER
        return UNKNOWN

    def ask(self, attribute: str) -> None:
        """Note that the function under evaluation would say more if it knew an attribute of another file's class."""
        function = self.scope.function
        if function is not None:
            self.asked.setdefault(function, set()).add(attribute)

    def static(self, node: ast.expr, scope: Scope | None = None) -> Value:
        """A name or attribute as a scope, the one under evaluation unless another is named, knows it without flow: for
        annotations, bases and decorators.
        """
        if scope is not None:
            outer, self.scope = self.scope, scope
            try:
                return self.static(node)
            finally:
                self.scope = outer
        if isinstance(node, ast.Name):
            return self.lookup(node.id, None, self.scope)
        if isinstance(node, ast.Attribute):
            return members.attribute(self, self.static(node.value), node.attr)
        return UNKNOWN

    # Names

    def lookup(self, name: str, env: Env | None, scope: Scope | None = None) -> Value:
        """A name's value: in the flow so far, else in the enclosing scopes, else among the builtins."""
        if env is not None:
            found = env.get(name)
            return found if found is not None else self._unbound(name)
        return self._enclosing(name, scope or self.scope, inside=False)

    def _unbound(self, name: str) -> Value:
        """The value of a name that the flow so far has not bound in the scope under evaluation."""
        scope = self.scope
        if scope.is_outermost and name not in scope.bindings:
            known = self._definitions.get(name)
            if known is not None:
                return known
        return self._enclosing(name, scope, inside=True)

    def _enclosing(self, name: str, start: Scope, *, inside: bool) -> Value:
        """A name's value in the scopes around, or among the builtins; `inside` a scope, what it binds itself is to come
        yet.
        """
        current: Scope | None = start
        while current is not None:
            if name in current.bindings and name not in current.foreign:
                skipped = isinstance(current.node, ast.ClassDef) and current is not start
                if not skipped:
                    if current is start and inside and not isinstance(current.node, ast.ClassDef):
                        return UNKNOWN
                    if name in current.rebound:
                        return UNKNOWN
                    if current.parent is None and (defined := self._defined(name)) is not None:
                        return defined
                    covering = self.body_scope(current)
                    self.ensure(covering)
                    joined = self.joined.get(current)
                    if joined is None:
                        joined = self.joined.get(covering, {})
                    return joined.get(name, UNKNOWN)
            current = current.parent
        if name in _BUILTINS and name not in self.module.index.root.bindings:
            builtin = self._definitions[name] = Value("symbol", name="builtins." + name)
            return builtin
        return self.module.star_value(name)

    def store(self, name: str, value: Value, env: Env) -> None:
        """Bind a name in the state, and note it among all that the scope binds it to."""
        env[name] = value
        joined = self.joined.get(self.scope)
        if joined is None:
            joined = self.joined[self.scope] = {}
        before = joined.get(name)
        # `import model` and later `model = model.Net()`: what the import meant is over
        if before is None or (before.kind in _DEFINED and value.kind in ("module", "tensor", "instance", "ref")):
            joined[name] = value
        elif before is not value:
            joined[name] = join(before, value)

    def _bind_name(self, name: str, value: Value, env: Env) -> None:
        if value.kind in ("unknown", "ref"):
            value = self._with_evidence(value, self.scope.usage.get(name, set()))
        elif value.kind == "tensor" and not value.dtype and "backward" in self.scope.usage.get(name, ()):
            value = msgspec.structs.replace(value, dtype="float")  # only floating-point tensors differentiate
        for key in self.places.get(name, ()):
            env.pop(key, None)  # what was known of `x.attr` and `x['k']` was another x's
        self.store(name, value, env)

    def place(self, path: str, value: Value, env: Env) -> None:
        """Note the value of a name, or of `x.attr` or `x['k']` until x is bound anew."""
        env[path] = value
        base = path.partition(".")[0].partition("[")[0]
        if base != path:
            self.places.setdefault(base, set()).add(path)

    def assign(self, target: ast.expr, value: Value, env: Env) -> None:
        """Bind `value` to a target, unpacking as Python does."""
        if target.__class__ is _NAME:
            self._bind_name(target.id, value, env)
            self.values[target] = env[target.id]
        elif isinstance(target, (ast.Tuple, ast.List)):
            self._unpack(target, value, env)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, container("list", (value,)), env)
        elif isinstance(target, ast.Attribute):
            base = self.eval(target.value, env)
            self._assign_attribute(target, base, value, env)
        elif isinstance(target, ast.Subscript):
            self.eval(target.value, env)
            self.eval(target.slice, env)
            path = self.module.index.path(target)
            if path is not None:
                self.place(path, value, env)

    def _unpack(self, target: ast.Tuple | ast.List, value: Value, env: Env) -> None:
        elements = target.elts
        starred = any(isinstance(e, ast.Starred) for e in elements)
        if value.kind == "tuple" and len(value.items) == len(elements) and not starred:
            parts: list[Value] = list(value.items)
        else:
            parts = [value.element] * len(elements)
        for element, part in zip(elements, parts, strict=False):
            self.assign(element, part, env)

    def _assign_attribute(self, target: ast.Attribute, base: Value, value: Value, env: Env) -> None:
        path = self.module.index.path(target)
        if path is not None:
            self.place(path, value, env)
        self.values[target] = value
        if target.attr == "requires_grad":
            self.events[target] = "differentiate"
        if isinstance(target.value, ast.Name):
            owner = self._receiver_class(target.value.id)
            if owner is not None:
                self.note_attribute(owner, target.attr, value)

    def note_attribute(self, owner: Class, name: str, value: Value) -> None:
        """Note one more value that an attribute of a class of this file is given."""
        before = self.attributes.get((owner, name))
        self.set_attribute(owner, name, value if before is None else join(before, value))

    def set_attribute(self, owner: Class, name: str, value: Value) -> None:
        """Note what an attribute of a class of this file is, as far as evaluation has come."""
        self.attributes[owner, name] = value
        self.writers.setdefault((owner, name), set()).add(self._unit)

    def _receiver_class(self, name: str) -> Class | None:
        """The class whose `self` the name is, in a method or a function nested in one."""
        function = self.scope.function
        while function is not None:
            if function.owner is not None:
                return function.owner if name == function.self_name and name else None
            function = function.parent
        return None

    # Statements and expressions

    def block(self, statements: list[ast.stmt], env: Env) -> bool:
        """Run statements in the state `env`; whether control can fall through to what follows them."""
        falls = True
        for statement in statements:
            run = STATEMENTS.get(statement.__class__)
            try:
                if run is not None and not run(self, statement, env):
                    falls = False
            except RecursionError:
                continue  # an expression deeper than the interpreter allows: its values stay unknown
        return falls

    def eval(self, node: ast.expr, env: Env) -> Value:
        """The value of `node` in the state `env`; also noted in `values`, but for constants."""
        kind = node.__class__
        if kind is _NAME:
            value = env.get(node.id)  # type: ignore[attr-defined]
            if value is None:
                value = self._unbound(node.id)  # type: ignore[attr-defined]
        elif kind is _CONSTANT:
            return constant(node)
        else:
            evaluate = EXPRESSIONS.get(kind)
            value = evaluate(self, node, env) if evaluate is not None else children(self, node, env)
        if value is not UNKNOWN or node in self.values:
            self.values[node] = value
        return value


def _drop(found: dict[Any, Any], keys: Iterable[object]) -> None:
    for key in keys:
        found.pop(key, None)


def _is_abstract(node: FunctionNode) -> bool:
    """Whether a function's body does nothing: a docstring, `...`, `pass` or a raise."""
    return all(
        isinstance(s, (ast.Pass, ast.Raise)) or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))
        for s in node.body
    )
