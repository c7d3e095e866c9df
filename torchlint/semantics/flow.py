"""Flow: what each expression of a file is, followed statement by statement.

One `Flow` evaluates the scopes of one file, each once, in the order in which Python would: the module body, then a
function when something asks for it (its enclosing scope first). Branches are joined to what they agree on, loops run
until their entry state holds, and what a called function returns comes from evaluating it, or, across files, from the
link step. Alongside, it notes the events that regions are made of (forward, backward, optimizer step, differentiation)
and every call of the project's own code.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from torchlint import torch_api
from torchlint.semantics import calls, members
from torchlint.semantics.callables import lambda_value
from torchlint.semantics.names import Class, Function, FunctionNode, Scope
from torchlint.semantics.values import (
    EMPTY_DICT,
    EMPTY_LIST,
    MODULE,
    NDARRAY,
    NONE,
    NUMBER,
    OPTIMIZER,
    STRING,
    TENSOR,
    UNKNOWN,
    Value,
    join,
    join_all,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torchlint.semantics.module import Module
    from torchlint.semantics.project_calls import ProjectCall

Env = dict[str, Value]
Key = Scope | tuple[Class, str] | str  # what an evaluation reads: a scope, an attribute of a class, a project's id
_BUILTINS = frozenset(dir(__builtins__) if not isinstance(__builtins__, dict) else __builtins__)
_NAME, _CONSTANT, _STARRED = ast.Name, ast.Constant, ast.Starred
_LITERALS: dict[type, Value] = {
    type(None): NONE,
    str: STRING,
    int: NUMBER,
    float: NUMBER,
    complex: NUMBER,
    bool: NUMBER,
}
_GIVING_THE_SAME = frozenset({"function", "bound", "class", "ref"})
_DEFINED = frozenset({"package", "symbol", "class", "function"})
_TELLING_NOTHING = frozenset({ast.Is, ast.IsNot, ast.In, ast.NotIn})  # of what they compare
_TELLING_TESTS = frozenset({ast.UnaryOp, ast.BoolOp, ast.Call})
_DEVICE_NAMES = {name: Value("string", name=name) for name in ("cpu", "cuda")}
_TENSOR_EVIDENCE = frozenset({"backward", "backward(…)", "scale(…)", "all_reduce(…)", "manual_backward(…)"})


@dataclass(slots=True)
class _LoopState:
    breaks: list[Env] = field(default_factory=list)
    continues: list[Env] = field(default_factory=list)


class Flow:
    """The evaluation of one file. `values` holds every expression evaluated so far.

    A `shallow` one tells what names are bound to and no more: it leaves out statements that bind nothing, and arguments
    of calls that give the same whatever they are given.
    """

    def __init__(self, module: Module, *, shallow: bool = False) -> None:
        self.module = module
        self._shallow = shallow
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
        self._definitions: dict[str, Value | None] = {}
        self._finished: set[Scope] = set()
        self._started: set[Scope] = set()
        self._results: dict[Function, Value] = {}  # of finished functions
        self._settled: dict[tuple[Class, str], Value] = {}  # attributes all of whose writers are finished
        self._loops: list[_LoopState] = []
        self._places: dict[str, set[str]] = {}  # by base name, the longer paths that some state may hold
        self._carried: dict[ast.AST, Env] = {}  # the state that a loop settled at, for rounds of the loop around it
        self._scope: Scope = module.index.root
        self._unit: Scope = module.index.root  # the scope under evaluation, classes in it apart

    # Entry points

    def ensure(self, scope: Scope) -> None:
        """Evaluate `scope` (and first the functions around it) unless that has been done or is under way."""
        self.read.add(scope)
        if scope in self._started:
            return
        if scope.parent is not None and not isinstance(scope.node, ast.ClassDef):
            outer = self.body_scope(scope.parent)
            if outer is not self.module.index.root:
                self.ensure(outer)
                if scope in self._started:
                    return
        self._started.add(scope)
        outside = self._scope, self._unit, self.read, self._loops
        looked_at = self.values, self.events, self.calls
        self.values, self.events, self.calls = self._noted
        self._scope = self._unit = scope
        self.read = self.reads.setdefault(scope, set())
        self._loops = []
        try:
            env: Env = {}
            self.joined.setdefault(scope, {})
            if isinstance(scope.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self._bind_parameters(scope, env)
            if isinstance(scope.node, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef)):
                self.block(scope.node.body, env)
        finally:
            self._scope, self._unit, self.read, self._loops = outside
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
        for by_scope in (self.reads, self.joined):
            _drop(by_scope, stale)
        for by_attribute in (self.attributes, self.writers, self._settled):
            _drop(by_attribute, stale)
        for by_function in (self.returns, self._results, self.open_parameters, self.asked):
            _drop(by_function, functions)
        for by_node in (self.events, self.calls, self.lambda_calls):
            _drop(by_node, [node for node in by_node if self.body_scope(self.module.scope_of(node)) in stale])
        for cls in self.module.classes:
            if self.body_scope(cls.scope) in stale:
                self.joined.pop(cls.scope, None)
        self._started -= stale
        self._finished -= stale
        self._carried.clear()

    def value(self, node: ast.expr) -> Value:
        """The value of an expression, evaluating its scope on first demand."""
        if node.__class__ is ast.Constant:
            return _constant(node)
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
            value = self._imported(*found)
        self._definitions[name] = value
        return value

    def _imported(self, node: ast.Import | ast.ImportFrom, alias: ast.alias) -> Value:
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
            promised = self.annotation(function.node.returns)
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
            evidence = self._evidence(self.module.class_usage(owner, name))
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
                value = self.annotation(parameter.annotation) if parameter.annotation is not None else UNKNOWN
                if value.kind in ("unknown", "class", "ref") or (value.kind == "module" and not value.name):
                    passed = given.get(name, UNKNOWN)
                    if passed.kind not in ("unknown", "none"):
                        value = passed
                elif value.kind == given.get(name, UNKNOWN).kind and value.kind in ("tensor", "dataset", "loader"):
                    value = given[name]  # the annotation names a base, the call sites what it is
                if value.kind == "unknown":
                    value = self._evidence(scope.usage.get(name, set()), in_forward)
                    if value is UNKNOWN:
                        self.open_parameters.setdefault(function, []).append(name)
                if parameter is args.vararg:
                    value = Value("list", items=(value,) if value.kind != "unknown" else ())
                elif parameter is args.kwarg:
                    value = Value("dict", items=(UNKNOWN,))
            self._store(name, value, env)

    def _with_evidence(self, value: Value, usage: set[str]) -> Value:
        """A value that flow does not know, by what is done with it."""
        evidence = self._evidence(usage)
        return evidence if evidence.kind != "unknown" else value

    def _evidence(self, usage: set[str], in_forward: bool = False) -> Value:
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
        function = self._scope.function
        if function is not None:
            self.asked.setdefault(function, set()).add(attribute)

    def annotation(self, node: ast.expr | None) -> Value:
        """The value that an annotation promises."""
        if node is None:
            return UNKNOWN
        if isinstance(node, (ast.Name, ast.Attribute)):
            return calls.instance_of(self, self._static(node))
        if isinstance(node, ast.Subscript):
            return self._generic(node)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return self._union([node.left, node.right])
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            return NONE if isinstance(node, ast.Constant) and node.value is None else UNKNOWN
        try:
            return self.annotation(ast.parse(node.value.strip(), mode="eval").body)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return UNKNOWN

    def _union(self, members: Iterable[ast.expr]) -> Value:
        return join_all([self.annotation(member) for member in members])

    def _generic(self, node: ast.Subscript) -> Value:
        origin = self._static(node.value).name.rpartition(".")[2]
        arguments = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if self._static(node.value).name.startswith("jaxtyping."):
            return self.annotation(arguments[0])
        if origin in ("Optional", "Annotated", "Final", "ClassVar"):
            return self.annotation(arguments[0])
        if origin == "Union":
            return self._union(arguments)
        if origin in (
            "list",
            "List",
            "Sequence",
            "Iterable",
            "Iterator",
            "Generator",
            "Collection",
            "set",
            "Set",
            "deque",
        ):
            return Value("list", items=(self.annotation(arguments[0]),))
        if origin in ("tuple", "Tuple"):
            if len(arguments) == 2 and isinstance(arguments[1], ast.Constant) and arguments[1].value is ...:
                return Value("list", items=(self.annotation(arguments[0]),))
            return Value("tuple", items=tuple(self.annotation(a) for a in arguments))
        if (
            origin in ("dict", "Dict", "Mapping", "OrderedDict", "defaultdict", "MutableMapping")
            and len(arguments) == 2
        ):
            return Value("dict", items=(self.annotation(arguments[1]),))
        return self.annotation(node.value) if origin in ("DataLoader", "Dataset", "ndarray", "NDArray") else UNKNOWN

    def _static(self, node: ast.expr) -> Value:
        """A name or attribute as the module's scope knows it, without flow: for annotations, bases and decorators."""
        if isinstance(node, ast.Name):
            return self.lookup(node.id, None, self._scope)
        if isinstance(node, ast.Attribute):
            return members.attribute(self, self._static(node.value), node.attr)
        return UNKNOWN

    def static(self, node: ast.expr, scope: Scope) -> Value:
        """`_static` seen from `scope`."""
        outer, self._scope = self._scope, scope
        try:
            return self._static(node)
        finally:
            self._scope = outer

    # Names

    def lookup(self, name: str, env: Env | None, scope: Scope | None = None) -> Value:
        """A name's value: in the flow so far, else in the enclosing scopes, else among the builtins."""
        if env is not None:
            found = env.get(name)
            return found if found is not None else self._unbound(name)
        return self._enclosing(name, scope or self._scope, inside=False)

    def _unbound(self, name: str) -> Value:
        """The value of a name that the flow so far has not bound in the scope under evaluation."""
        scope = self._scope
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

    def _store(self, name: str, value: Value, env: Env) -> None:
        env[name] = value
        joined = self.joined.get(self._scope)
        if joined is None:
            joined = self.joined[self._scope] = {}
        before = joined.get(name)
        # `import model` and later `model = model.Net()`: what the import meant is over
        if before is None or (before.kind in _DEFINED and value.kind in ("module", "tensor", "instance", "ref")):
            joined[name] = value
        elif before is not value:
            joined[name] = join(before, value)

    def _bind_name(self, name: str, value: Value, env: Env) -> None:
        if value.kind in ("unknown", "ref"):
            value = self._with_evidence(value, self._scope.usage.get(name, set()))
        elif value.kind == "tensor" and not value.dtype and "backward" in self._scope.usage.get(name, ()):
            value = msgspec.structs.replace(value, dtype="float")  # only floating-point tensors differentiate
        for key in self._places.get(name, ()):
            env.pop(key, None)  # what was known of `x.attr` and `x['k']` was another x's
        if name in self._scope.foreign:
            self.joined.setdefault(self.module.index.root, {})[name] = UNKNOWN
        self._store(name, value, env)

    def place(self, path: str, value: Value, env: Env) -> None:
        """Note the value of a name, or of `x.attr` or `x['k']` until x is bound anew."""
        env[path] = value
        base = path.partition(".")[0].partition("[")[0]
        if base != path:
            self._places.setdefault(base, set()).add(path)

    def assign(self, target: ast.expr, value: Value, env: Env) -> None:
        """Bind `value` to a target, unpacking as Python does."""
        if target.__class__ is _NAME:
            self._bind_name(target.id, value, env)
            self.values[target] = env[target.id]
        elif isinstance(target, (ast.Tuple, ast.List)):
            self._unpack(target, value, env)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, Value("list", items=(value,)), env)
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
                self._note_attribute(owner, target.attr, value)

    def _note_attribute(self, owner: Class, name: str, value: Value) -> None:
        before = self.attributes.get((owner, name))
        self.set_attribute(owner, name, value if before is None else join(before, value))

    def set_attribute(self, owner: Class, name: str, value: Value) -> None:
        """Note what an attribute of a class of this file is, as far as evaluation has come."""
        self.attributes[owner, name] = value
        self.writers.setdefault((owner, name), set()).add(self._unit)

    def _receiver_class(self, name: str) -> Class | None:
        """The class whose `self` the name is, in a method or a function nested in one."""
        function = self._scope.function
        while function is not None:
            if function.owner is not None:
                return function.owner if name == function.self_name and name else None
            function = function.parent
        return None

    # Statements. Each returns whether control can fall through to the next statement.

    def block(self, statements: list[ast.stmt], env: Env) -> bool:
        falls = True
        for statement in statements:
            run = _STATEMENTS.get(statement.__class__)
            try:
                if run is not None and not run(self, statement, env):
                    falls = False
            except RecursionError:
                continue  # an expression deeper than the interpreter allows: its values stay unknown
        return falls

    def _expr_statement(self, node: ast.Expr, env: Env) -> bool:
        value = node.value
        if not self._shallow or (isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute)):
            self.eval(value, env)  # `names.append(x)` says more of a name
        return True

    def _assign(self, node: ast.Assign, env: Env) -> bool:
        value = self.eval(node.value, env)
        for target in node.targets:
            if isinstance(target, (ast.Tuple, ast.List)) and isinstance(node.value, (ast.Tuple, ast.List)):
                value = Value("tuple", items=tuple(map(self._evaluated, node.value.elts)))
            self.assign(target, value, env)
        return True

    def _evaluated(self, node: ast.expr) -> Value:
        """What evaluating an expression gave."""
        return _constant(node) if node.__class__ is _CONSTANT else self.values.get(node, UNKNOWN)

    def _ann_assign(self, node: ast.AnnAssign, env: Env) -> bool:
        value = self.eval(node.value, env) if node.value is not None else UNKNOWN
        promised = self.annotation(node.annotation)
        if value.kind in ("unknown", "none") or (promised.kind == "list" and not value.items):
            value = promised
        if node.value is not None or isinstance(self._scope.node, ast.ClassDef):
            self.assign(node.target, value, env)
        if isinstance(node.target, ast.Name) and self._class_here is not None:
            self.declared[(self._class_here, node.target.id)] = promised
            if node.value is not None:
                self._note_attribute(self._class_here, node.target.id, value)
        return True

    @property
    def _class_here(self) -> Class | None:
        return self._scope.owner if isinstance(self._scope.node, ast.ClassDef) else None

    def _aug_assign(self, node: ast.AugAssign, env: Env) -> bool:
        path = self.module.index.path(node.target)
        before = self.eval(node.target, env) if path is None else self._read_path(node.target, env)
        value = members.binary(before, self.eval(node.value, env), node.op)
        if before.kind == "tensor" and value.kind == "tensor":
            value = msgspec.structs.replace(value, host=before.host)  # in place: it stays where it is
        self.values[node.target] = before
        self.assign(node.target, value, env)
        self.values[node.target] = before
        return True

    def _read_path(self, target: ast.expr, env: Env) -> Value:
        if isinstance(target, ast.Name):
            return self.lookup(target.id, env)
        return self.eval(target, env)

    def _function_def(self, node: FunctionNode, env: Env) -> bool:
        if not self._shallow:
            for decorator in node.decorator_list:
                self.eval(decorator, env)
            for default in (*node.args.defaults, *node.args.kw_defaults):
                if default is not None:
                    self.eval(default, env)
        function = self.module.function_at[node]
        value = Value("function", name=self.module.id_of(function))
        if function.is_property and function.owner is not None:
            value = UNKNOWN
        self._store(node.name, value, env)
        return True

    def _class_def(self, node: ast.ClassDef, env: Env) -> bool:
        for base in node.bases:
            self.eval(base, env)
        cls = self.module.class_at[node]
        for decorator in node.decorator_list:
            self.eval(decorator, env)
        self._store(node.name, Value("class", name=self.module.id_of(cls)), env)
        outer, self._scope = self._scope, cls.scope
        try:
            inner = dict(env)
            self.joined.setdefault(cls.scope, {})
            self.block(node.body, inner)
            for name, value in self.joined[cls.scope].items():
                if name not in cls.methods:
                    self._note_attribute(cls, name, value)
        finally:
            self._scope = outer
        return True

    def _return(self, node: ast.Return, env: Env) -> bool:
        value = self.eval(node.value, env) if node.value is not None else NONE
        function = self._scope.function
        if function is not None and not function.is_generator:
            self.returns.setdefault(function, []).append(value)
        return False

    def _delete(self, node: ast.Delete, env: Env) -> bool:
        for target in node.targets:
            if isinstance(target, ast.Name):
                env.pop(target.id, None)
            else:
                self.eval(target, env)
        return True

    def _if(self, node: ast.If, env: Env) -> bool:
        self.eval(node.test, env)
        other = dict(env)
        self._refine(node.test, env, positive=True)
        self._refine(node.test, other, positive=False)
        body_falls = self.block(node.body, env)
        else_falls = self.block(node.orelse, other)
        if body_falls and else_falls:
            _merge(env, other)
        elif else_falls:
            env.clear()
            env.update(other)
        return body_falls or else_falls

    def _refine(self, test: ast.expr, env: Env, *, positive: bool) -> None:
        """What a test says of the names in it: `isinstance(x, torch.Tensor)`, `torch.is_tensor(x)`."""
        if test.__class__ not in _TELLING_TESTS:
            return
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self._refine(test.operand, env, positive=not positive)
        elif isinstance(test, ast.BoolOp):
            if isinstance(test.op, ast.And) is positive:
                for part in test.values:
                    self._refine(part, env, positive=positive)
        elif isinstance(test, ast.Call) and test.args:
            path = self.module.index.path(test.args[0])
            name = self.values.get(test.func, UNKNOWN).name
            if path is None:
                return
            known = self.values.get(test.args[0], UNKNOWN)
            if name == "builtins.isinstance" and len(test.args) == 2:
                promised = self.annotation_of_types(test.args[1])
            elif name == "torch.is_tensor":
                promised = TENSOR
            else:
                return
            if positive:
                if promised.kind != "unknown" and known.kind != promised.kind:
                    self.place(path, promised, env)
                elif promised.kind == "unknown" and known.kind == "tensor":
                    self.place(path, UNKNOWN, env)
            elif promised.kind == "tensor":
                self.place(path, UNKNOWN if known.kind == "tensor" else known, env)

    def annotation_of_types(self, node: ast.expr) -> Value:
        """What `isinstance(x, node)` promises of x."""
        if isinstance(node, ast.Tuple):
            return self._union(node.elts)
        return self.annotation(node)

    def _for(self, node: ast.For | ast.AsyncFor, env: Env) -> bool:
        iterable = self.eval(node.iter, env)
        element = members.iteration(iterable)

        def enter(state: Env) -> None:
            self.assign(node.target, element, state)

        self._loop(node, env, enter)
        return True

    def _while(self, node: ast.While, env: Env) -> bool:
        def enter(state: Env) -> None:
            self.eval(node.test, state)
            self._refine(node.test, state, positive=True)

        self._loop(node, env, enter)
        endless = isinstance(node.test, ast.Constant) and bool(node.test.value)
        return not endless or self._has_break(node)

    @staticmethod
    def _has_break(loop: ast.While) -> bool:
        return any(isinstance(n, ast.Break) for n in ast.walk(loop))

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, env: Env, enter: Callable[[Env], None]) -> None:
        """Run the body until its entry state holds (two rounds do: kinds only widen), then what comes after."""
        carried = self._carried.get(node)
        if carried is not None:
            _merge(env, carried)
        for _ in range(2):
            state = dict(env)
            enter(state)
            self._loops.append(_LoopState())
            falls = self.block(node.body, state)
            loop = self._loops.pop()
            back = [*loop.continues, *([state] if falls else [])]
            before = dict(env)
            for end in back:
                _merge(env, end)
            exits = loop.breaks
            if env == before:
                break
        self._carried[node] = dict(env)
        if node.orelse:
            self.block(node.orelse, env)
        for end in exits:
            _merge(env, end)

    def _break(self, node: ast.Break, env: Env) -> bool:
        if self._loops:
            self._loops[-1].breaks.append(dict(env))
        return False

    def _continue(self, node: ast.Continue, env: Env) -> bool:
        if self._loops:
            self._loops[-1].continues.append(dict(env))
        return False

    def _with(self, node: ast.With | ast.AsyncWith, env: Env) -> bool:
        for item in node.items:
            value = self.eval(item.context_expr, env)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, members.entered(value), env)
        return self.block(node.body, env)

    def _try(self, node: ast.Try, env: Env) -> bool:
        before = dict(env)
        falls = self.block(node.body, env)
        if falls:
            falls = self.block(node.orelse, env)
        for handler in node.handlers:
            state = dict(before)
            _merge(state, env)
            if handler.type is not None:
                self.eval(handler.type, state)
            if handler.name:
                self._store(handler.name, UNKNOWN, state)
            optional = _only_binds_none_or_imports(handler.body)
            if self.block(handler.body, state):
                if not falls:
                    env.clear()
                    env.update(state)
                elif not optional:
                    _merge(env, state)
                falls = True
        if node.finalbody:
            falls = self.block(node.finalbody, env) and falls
        return falls

    def _match(self, node: ast.Match, env: Env) -> bool:
        self.eval(node.subject, env)
        ends: list[Env] = []
        for case in node.cases:
            state = dict(env)
            for name in _captured(case.pattern):
                self._store(name, UNKNOWN, state)
            if case.guard is not None:
                self.eval(case.guard, state)
            if self.block(case.body, state):
                ends.append(state)
        for end in ends:
            _merge(env, end)
        return True

    def _import(self, node: ast.Import, env: Env) -> bool:
        for alias in node.names:
            self._store(alias.asname or alias.name.partition(".")[0], self._imported(node, alias), env)
        return True

    def _import_from(self, node: ast.ImportFrom, env: Env) -> bool:
        for alias in node.names:
            if alias.name != "*":
                self._store(alias.asname or alias.name, self._imported(node, alias), env)
        return True

    def _assert(self, node: ast.Assert, env: Env) -> bool:
        self.eval(node.test, env)
        self._refine(node.test, env, positive=True)
        if node.msg is not None:
            self.eval(node.msg, env)
        return True

    def _raise(self, node: ast.Raise, env: Env) -> bool:
        for part in (node.exc, node.cause):
            if part is not None:
                self.eval(part, env)
        return False

    # Expressions

    def eval(self, node: ast.expr, env: Env) -> Value:
        """The value of `node` in the state `env`; also noted in `values`, but for constants."""
        kind = node.__class__
        if kind is _NAME:
            value = env.get(node.id)  # type: ignore[attr-defined]
            if value is None:
                value = self._unbound(node.id)  # type: ignore[attr-defined]
        elif kind is _CONSTANT:
            return _constant(node)
        else:
            evaluate = _EXPRESSIONS.get(kind)
            value = evaluate(self, node, env) if evaluate is not None else self._children(node, env)
        if value is not UNKNOWN or node in self.values:
            self.values[node] = value
        return value

    def _children(self, node: ast.expr, env: Env) -> Value:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.eval(child, env)
        return UNKNOWN

    def _attribute(self, node: ast.Attribute, env: Env) -> Value:
        base = self.eval(node.value, env)
        known = self._placed(node, env) if self._places else None
        return known if known is not None else members.attribute(self, base, node.attr)

    def _subscript(self, node: ast.Subscript, env: Env) -> Value:
        base = self.eval(node.value, env)
        self.eval(node.slice, env)
        known = self._placed(node, env) if self._places else None
        return known if known is not None else members.subscript(base, node.slice)

    def _placed(self, node: ast.Attribute | ast.Subscript, env: Env) -> Value | None:
        """What was last put at `x.attr` or `x['k']`, None where nothing was."""
        path = self.module.index.paths.get(node)
        return env.get(path) if path is not None else None

    def _slice(self, node: ast.Slice, env: Env) -> Value:
        for part in (node.lower, node.upper, node.step):
            if part is not None:
                self.eval(part, env)
        return UNKNOWN

    def _call(self, node: ast.Call, env: Env) -> Value:
        callee = self.eval(node.func, env)
        positional: list[Value] = []
        starred = False
        if self._shallow and callee.kind in _GIVING_THE_SAME:
            return calls.call(self, node, callee, positional, [], env, starred)
        for argument in node.args:
            kind = argument.__class__
            if kind is _CONSTANT:
                positional.append(_constant(argument))
            elif kind is _STARRED:
                starred = True
                positional.append(self.eval(argument.value, env).element)  # type: ignore[attr-defined]
            else:
                positional.append(self.eval(argument, env))
        keywords = [
            (k.arg or "**", _constant(k.value) if k.value.__class__ is _CONSTANT else self.eval(k.value, env))
            for k in node.keywords
        ]
        return calls.call(self, node, callee, positional, keywords, env, starred)

    def _bin_op(self, node: ast.BinOp, env: Env) -> Value:
        # a long sum leans left: follow the spine in a loop, not by recursion
        spine: list[ast.BinOp] = []
        left: ast.expr = node
        while isinstance(left, ast.BinOp):
            spine.append(left)
            left = left.left
        value = self.eval(left, env)
        for operation in reversed(spine):
            value = members.binary(value, self.eval(operation.right, env), operation.op)
            self.values[operation] = value
        return value

    def _unary_op(self, node: ast.UnaryOp, env: Env) -> Value:
        operand = self.eval(node.operand, env)
        return NUMBER if isinstance(node.op, ast.Not) else operand

    def _bool_op(self, node: ast.BoolOp, env: Env) -> Value:
        state = dict(env)
        parts = []
        for part in node.values:
            parts.append(self.eval(part, state))
            self._refine(part, state, positive=isinstance(node.op, ast.And))
        return join_all(parts)

    def _compare(self, node: ast.Compare, env: Env) -> Value:
        operands = [self.eval(node.left, env), *[self.eval(c, env) for c in node.comparators]]
        if node.ops[0].__class__ in _TELLING_NOTHING and all(op.__class__ in _TELLING_NOTHING for op in node.ops):
            return NUMBER
        tensors = [v for v in operands if v.kind == "tensor"]
        if tensors and not any(v.kind in ("none", "string") for v in operands):
            return Value(
                "tensor", host=any(t.host for t in tensors) and all(t.host for t in tensors), dtype="bool", grad=False
            )
        if any(v.kind == "ndarray" for v in operands):
            return NDARRAY
        return NUMBER if all(v.kind in ("number", "string", "none") for v in operands) else UNKNOWN

    def _if_exp(self, node: ast.IfExp, env: Env) -> Value:
        self.eval(node.test, env)
        positive, negative = dict(env), dict(env)
        self._refine(node.test, positive, positive=True)
        self._refine(node.test, negative, positive=False)
        return join(self.eval(node.body, positive), self.eval(node.orelse, negative))

    def _tuple(self, node: ast.Tuple, env: Env) -> Value:
        items: list[Value] = []
        for element in node.elts:
            if isinstance(element, ast.Starred):
                spread = self.eval(element.value, env)
                if spread.kind != "tuple":
                    rest = [self.eval(e.value if isinstance(e, ast.Starred) else e, env) for e in node.elts]
                    return Value("list", items=(join_all([spread.element, *rest[:0]]),))
                items.extend(spread.items)
            else:
                items.append(self.eval(element, env))
        return Value("tuple", items=tuple(items))

    def _list(self, node: ast.List, env: Env) -> Value:
        if not node.elts:
            return EMPTY_LIST
        items = []
        for element in node.elts:
            if isinstance(element, ast.Starred):
                items.append(self.eval(element.value, env).element)
            else:
                items.append(self.eval(element, env))
        return Value("list", items=(join_all(items),))

    def _set(self, node: ast.Set, env: Env) -> Value:
        return Value("set", items=(join_all([self.eval(e, env) for e in node.elts]),))

    def _dict(self, node: ast.Dict, env: Env) -> Value:
        if not node.keys:
            return EMPTY_DICT
        keys = []
        items = []
        for key, value in zip(node.keys, node.values, strict=False):
            if key is not None:
                self.eval(key, env)
            keys.append(key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else None)
            items.append(self.eval(value, env))
        if all(k is not None for k in keys) and len(set(keys)) == len(keys):
            return Value("dict", keys=tuple(k for k in keys if k is not None), items=tuple(items))
        if any(key is None for key in node.keys):
            return Value("dict", items=(UNKNOWN,))
        return Value("dict", items=(join_all(items),))

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, env: Env) -> Value:
        state = dict(env)
        for generator in node.generators:
            element = members.iteration(self.eval(generator.iter, state))
            self._assign_local(generator.target, element, state)
            for condition in generator.ifs:
                self.eval(condition, state)
                self._refine(condition, state, positive=True)
        if isinstance(node, ast.DictComp):
            self.eval(node.key, state)
            return Value("dict", items=(self.eval(node.value, state),))
        element = self.eval(node.elt, state)
        kind = {ast.ListComp: "list", ast.SetComp: "set", ast.GeneratorExp: "iterator"}[node.__class__]
        return Value(kind, items=(element,))

    def _assign_local(self, target: ast.expr, value: Value, state: Env) -> None:
        """Bind a comprehension's target: it lives in the comprehension alone."""
        if isinstance(target, ast.Name):
            state[target.id] = value
            self.values[target] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            exact = value.kind == "tuple" and len(value.items) == len(target.elts)
            for position, element in enumerate(target.elts):
                self._assign_local(element, value.items[position] if exact else value.element, state)
        elif isinstance(target, ast.Starred):
            self._assign_local(target.value, Value("list", items=(value,)), state)

    def _lambda(self, node: ast.Lambda, env: Env) -> Value:
        state = dict(env)
        a = node.args
        for parameter in [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]:
            state[parameter.arg] = UNKNOWN
        self.eval(node.body, state)
        return lambda_value(self, node, state)

    def _named_expr(self, node: ast.NamedExpr, env: Env) -> Value:
        value = self.eval(node.value, env)
        self.assign(node.target, value, env)
        return value

    def _joined_str(self, node: ast.JoinedStr, env: Env) -> Value:
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self.eval(part.value, env)
                if part.format_spec is not None:
                    self._joined_str(part.format_spec, env)  # type: ignore[arg-type]
        return STRING

    def _await(self, node: ast.Await, env: Env) -> Value:
        return self.eval(node.value, env)

    def _yield(self, node: ast.Yield | ast.YieldFrom, env: Env) -> Value:
        value = self.eval(node.value, env) if node.value is not None else NONE
        if isinstance(node, ast.YieldFrom):
            value = value.element
        function = self._scope.function
        if function is not None:
            self.returns.setdefault(function, []).append(value)
        return UNKNOWN

    def _starred(self, node: ast.Starred, env: Env) -> Value:
        return self.eval(node.value, env)


def _drop(found: dict[Any, Any], keys: Iterable[object]) -> None:
    for key in keys:
        found.pop(key, None)


def _constant(node: Any) -> Value:
    value = node.value
    kind = value.__class__
    return _DEVICE_NAMES.get(value, STRING) if kind is str else _LITERALS.get(kind, UNKNOWN)


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


def _is_abstract(node: FunctionNode) -> bool:
    """Whether a function's body does nothing: a docstring, `...`, `pass` or a raise."""
    return all(
        isinstance(s, (ast.Pass, ast.Raise)) or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))
        for s in node.body
    )


def _captured(pattern: ast.pattern) -> list[str]:
    names = []
    for node in ast.walk(pattern):
        name = getattr(node, "name", None) or getattr(node, "rest", None)
        if isinstance(name, str):
            names.append(name)
    return names


# Each function takes its own node class: the key says which.
_STATEMENTS: dict[type[ast.stmt], Callable[[Flow, Any, Env], bool]] = {
    ast.Expr: Flow._expr_statement,
    ast.Assign: Flow._assign,
    ast.AnnAssign: Flow._ann_assign,
    ast.AugAssign: Flow._aug_assign,
    ast.FunctionDef: Flow._function_def,
    ast.AsyncFunctionDef: Flow._function_def,
    ast.ClassDef: Flow._class_def,
    ast.Return: Flow._return,
    ast.Delete: Flow._delete,
    ast.If: Flow._if,
    ast.For: Flow._for,
    ast.AsyncFor: Flow._for,
    ast.While: Flow._while,
    ast.Break: Flow._break,
    ast.Continue: Flow._continue,
    ast.With: Flow._with,
    ast.AsyncWith: Flow._with,
    ast.Try: Flow._try,
    ast.Match: Flow._match,
    ast.Import: Flow._import,
    ast.ImportFrom: Flow._import_from,
    ast.Assert: Flow._assert,
    ast.Raise: Flow._raise,
}
if hasattr(ast, "TryStar"):
    _STATEMENTS[ast.TryStar] = Flow._try

_EXPRESSIONS: dict[type[ast.expr], Callable[[Flow, Any, Env], Value]] = {
    ast.Attribute: Flow._attribute,
    ast.Subscript: Flow._subscript,
    ast.Slice: Flow._slice,
    ast.Call: Flow._call,
    ast.BinOp: Flow._bin_op,
    ast.UnaryOp: Flow._unary_op,
    ast.BoolOp: Flow._bool_op,
    ast.Compare: Flow._compare,
    ast.IfExp: Flow._if_exp,
    ast.Tuple: Flow._tuple,
    ast.List: Flow._list,
    ast.Set: Flow._set,
    ast.Dict: Flow._dict,
    ast.ListComp: Flow._comprehension,
    ast.SetComp: Flow._comprehension,
    ast.GeneratorExp: Flow._comprehension,
    ast.DictComp: Flow._comprehension,
    ast.Lambda: Flow._lambda,
    ast.NamedExpr: Flow._named_expr,
    ast.JoinedStr: Flow._joined_str,
    ast.Await: Flow._await,
    ast.Yield: Flow._yield,
    ast.YieldFrom: Flow._yield,
    ast.Starred: Flow._starred,
}
