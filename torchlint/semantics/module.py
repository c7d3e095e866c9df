"""`Module`: all facts about one file, and the one thing that rules ask."""

from __future__ import annotations

import ast
import re
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from torchlint import torch_api
from torchlint.semantics import members
from torchlint.semantics.callables import is_sync_lambda, sync_chain
from torchlint.semantics.facts import (
    MODULE_BODY,
    ClassFacts,
    FileSummary,
    Linked,
)
from torchlint.semantics.flow import Flow
from torchlint.semantics.layers import Layers
from torchlint.semantics.layout import ProjectLayout, module_name
from torchlint.semantics.loaders import getter_indexes_memory
from torchlint.semantics.names import Class, Function, Scope, index_tree, last_name
from torchlint.semantics.project import family_of, lineage
from torchlint.semantics.regions import AnyLoop, Regions
from torchlint.semantics.reuse import stale_keys
from torchlint.semantics.summary import Summarizer
from torchlint.semantics.values import OPAQUE, UNKNOWN, Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torchlint.config import Settings
    from torchlint.source import SourceFile

# How code names a device: a parameter `device`, `self.dev`, `args.gpu`, `local_rank`.
_DEVICE_NAME = re.compile(r"device|(?:^|_)dev$|gpu|rank|cuda", re.IGNORECASE)
Node = TypeVar("Node", bound=ast.AST)
T = TypeVar("T")

_DEVICE_SPAN = 80  # characters around a hint: enough for `.to(` on one line and `device` on the next
_GRAD_WORDS = ("no_grad", "inference_mode", "set_grad_enabled")
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Module:
    """The facts about one file.

    Names, scopes and calls are indexed once; kinds and places are worked out as rules ask. Until `attach` gives the
    project's part, a file is judged alone. `path` is the file's posix path relative to the project root.
    """

    settings: Settings
    target_torch: tuple[int, int] = (2, 0)

    def __init__(self, source: SourceFile, tree: ast.Module, layout: ProjectLayout, path: str) -> None:
        self.source = source
        self.tree = tree
        self.layout = layout
        self.path = path
        self.name = module_name(path)
        self.linked = Linked()
        self.index = index_tree(tree)
        self.parents = self.index.parents
        self.functions = self.index.functions
        self.classes = self.index.classes
        self.function_at = {f.node: f for f in self.functions}
        self.class_at = {c.node: c for c in self.classes}
        entities: list[Function | Class] = [*self.functions, *self.classes]
        self._ids = {entity: f"{self.name}:{entity.qualname}" for entity in entities}
        self._functions_by_id = {self.id_of(f): f for f in self.functions}
        self._classes_by_id = {self.id_of(c): c for c in self.classes}
        self._bases: dict[str, list[str]] = {}
        self._families: dict[str, str] = {}
        self._climbed: set[str] = set()
        self._star_modules: list[str] | None = None
        self.references: set[str] = set()
        self.flow = Flow(self)
        self.regions = Regions(self)

    def release(self) -> None:
        """Let go of everything, cycles included, so that the memory is free without a garbage collection."""
        for scope in self.index.scopes.values():
            scope.children.clear()
            scope.parent = scope.function = scope.owner = None
        for cls in self.classes:
            cls.methods.clear()
            cls.writers.clear()
        self.__dict__.clear()

    def attach(self, linked: Linked) -> None:
        """Take what the project says about this file, and forget what was judged without it.

        All of the file is evaluated here, in one order, whatever is asked of it later: where scopes wait for each
        other, what they find depends on the order.
        """
        if linked.flow_inputs != self.linked.flow_inputs:
            stale = stale_keys(self, self.linked, linked)
            if stale is None:
                self._bases.clear()
                self._families.clear()
                self.flow = Flow(self)
            else:
                self.flow.forget(stale)
            self.regions = Regions(self)
        if linked != self.linked:
            self.linked = linked
            self.__dict__.pop("layers", None)
        self.flow.ensure_all()

    @cached_property
    def layers(self) -> Layers:
        """The file's layer graphs."""
        return Layers(self)

    # Places in the tree

    def calls_named(self, *names: str) -> list[ast.Call]:
        """Calls whose last identifier is one of `names`, in source order."""
        if len(names) == 1:
            return self.index.calls.get(names[0], [])
        found = [call for name in names for call in self.index.calls.get(name, ())]
        found.sort(key=lambda c: (c.lineno, c.col_offset, -(c.end_col_offset or 0)))
        return found

    def parent(self, node: ast.AST) -> ast.AST | None:
        return self.parents.get(node)

    def scope_of(self, node: ast.AST) -> Scope:
        """The scope in which Python evaluates `node`: decorators, defaults and annotations belong outside their
        function.
        """
        known = self.index.scope_of.get(node)
        if known is not None:
            return known
        child = node
        while True:
            parent = self.parents.get(child)
            if parent is None:
                return self.index.root
            if isinstance(parent, _SCOPES):
                if isinstance(child, ast.stmt):
                    return self.index.scopes[parent]
            elif isinstance(parent, ast.Lambda) and child is parent.body:
                return self.index.scopes[parent]
            child = parent

    def function_of(self, node: ast.AST) -> Function | None:
        """The function whose body holds `node`."""
        return self.scope_of(node).function

    def class_of(self, node: ast.AST) -> Class | None:
        """The class whose body, methods included, holds `node`."""
        return self.scope_of(node).owner

    def method_around(self, node: ast.AST) -> Function | None:
        """The method that holds `node`, also through functions nested in it."""
        function = self.function_of(node)
        while function is not None and function.owner is None:
            function = function.parent
        return function

    def statement_of(self, node: ast.AST) -> ast.stmt:
        """The smallest statement that holds `node`."""
        current = node
        while not isinstance(current, ast.stmt):
            current = self.parents[current]
        return current

    def block_of(self, statement: ast.stmt) -> list[ast.stmt] | None:
        """The list of statements that holds `statement`."""
        parent = self.parents.get(statement)
        for name in ("body", "orelse", "finalbody"):
            block = getattr(parent, name, None)
            if isinstance(block, list) and any(s is statement for s in block):
                return block
        return None

    def under_condition(self, node: ast.AST, statement: ast.stmt) -> bool:
        """Whether `node` runs only under a condition inside its own statement."""
        child: ast.AST = node
        while child is not statement:
            parent = self.parents[child]
            if isinstance(parent, (ast.IfExp, ast.Lambda)) and child is not getattr(parent, "test", None):
                return True
            if isinstance(parent, ast.BoolOp) and child is not parent.values[0]:
                return True
            child = parent
        return False

    def inside_device_context(self, node: ast.AST) -> bool:
        """Whether `node` stands in `with torch.device(…):`, where factories make tensors on that device."""
        for parent, child in self.regions.ancestors(node):
            if isinstance(parent, (ast.With, ast.AsyncWith)) and isinstance(child, ast.stmt):
                values = [self.value(item.context_expr) for item in parent.items]
                if any(v.kind == "device" for v in values):
                    return True
        return False

    # Kinds and names

    def value(self, node: ast.expr) -> Value:
        """What flow shows the expression to be."""
        return self.flow.value(node)

    def qualified(self, node: ast.expr) -> str | None:
        """The canonical dotted name of a symbol outside the project, through any import form; None where unknown."""
        value = self.flow.value(node)
        return value.name if value.kind == "symbol" else None

    def is_place_of_self(self, node: ast.expr) -> bool:
        """Whether an expression is an attribute of a method's receiver, or of one."""
        path = self.index.paths.get(node)
        method = self.method_around(node) if path is not None else None
        return path is not None and method is not None and path.startswith(f"{method.self_name}.")

    def is_tensor(self, node: ast.expr) -> bool:
        return self.flow.value(node).kind == "tensor"

    def id_of(self, entity: Function | Class) -> str:
        """The project-wide name of a function or class of this file."""
        return self._ids[entity]

    def function_by_id(self, function_id: str) -> Function | None:
        return self._functions_by_id.get(function_id)

    # Regions

    def function_id(self, node: ast.AST) -> str:
        """The id of the function around `node`, or of the module body."""
        function = self.function_of(node)
        return self.id_of(function) if function is not None else f"{self.name}:{MODULE_BODY}"

    def hot(self, node: ast.AST) -> bool:
        """Whether `node` runs on every iteration of a step loop, here or in a caller."""
        if self.function_id(node) not in self.linked.hot and self.step_loop(node) is None:
            return False
        self.flow.ensure(self.flow.body_scope(self.scope_of(node)))
        place = self.regions.place(node)
        for number, guarded in place[:-1]:
            if number in self.linked.step_loops:
                return not guarded
        return self.function_id(node) in self.linked.hot and not place[-1][1]

    def step_loop(self, node: ast.AST) -> AnyLoop | None:
        """The innermost step loop around `node` in its own function."""
        for loop in self.regions.loops_around(node):
            if self.regions.numbers[loop] in self.linked.step_loops:
                return loop
        return None

    def grad_disabled(self, node: ast.AST) -> bool:
        """Whether `node` always runs without gradients: by its own function's contexts, or at all call sites in
        view.
        """
        self.flow.ensure_all()
        return self.regions.grad_off(node) or self.function_id(node) in self.linked.grad_off

    @cached_property
    def device_project(self) -> bool:
        """Whether the project names a GPU device."""
        return self.linked.device or self.names_device

    @cached_property
    def names_device(self) -> bool:
        """Whether this file names a GPU device."""
        return names_device(self.source.text)

    @cached_property
    def default_device_changed(self) -> bool:
        """Whether tensors are made on another device than the CPU by a global setting of this file."""
        return bool(self.calls_named("set_default_device")) or (
            "cuda" in self.source.text and bool(self.calls_named("set_default_tensor_type"))
        )

    def trains(self, callee: str) -> bool:
        """Whether a called function is known to do a backward or an optimizer step."""
        if callee in self.linked.trains:
            return True
        function = self.function_by_id(callee)
        if function is None:
            return False
        node = function.node
        return any(node.lineno <= line <= (node.end_lineno or node.lineno) for line in self._training_lines)

    def trains_between(self, first: int, last: int) -> bool:
        """Whether something between two lines does a backward or an optimizer step, directly or in what it calls."""
        if any(first <= line <= last for line in self._training_lines):
            return True
        return any(first <= call.node.lineno <= last and self.trains(call.callee) for call in self.flow.calls.values())

    @property
    def _training_lines(self) -> list[int]:
        """The lines of this file's own backward calls and optimizer steps, as far as flow has come."""
        return [getattr(n, "lineno", 0) for n, kind in self.flow.events.items() if kind in ("backward", "step")]

    def mentions_grad_off(self, function_id: str) -> bool:
        """Whether a project function turns gradients off: as a decorator or context of the project's own."""
        if function_id in self.linked.mentions_grad_off:
            return True
        linked = self.linked.refs.get(function_id)
        if linked is not None and linked.name in self.linked.mentions_grad_off:
            return True
        function = self.function_by_id(function_id)
        return function is not None and self.function_mentions_grad_off(function)

    def exposed_forwards(self, function: Function | None) -> list[ast.Call]:
        """The calls in a function (or the module body) that run a module's forward with gradients on, in source
        order.
        """
        if function is not None and self.id_of(function) not in self.linked.exposed:
            return []
        self.flow.ensure(function.scope if function is not None else self.index.root)
        found = [
            node
            for node, kind in self._within(function, self.flow.events)
            if kind in ("forward", "layer")
            and isinstance(node, ast.Call)
            and not self.event_grad_off(node)
            and not self._forwards_free(node)
        ]
        for node, call in self._within(function, self.flow.calls):
            callee = self.resolved_callee(call.callee)
            if callee in self.linked.exposed and not callee.endswith(".forward") and not self.regions.grad_off(node):
                found.append(node)
        return sorted(dict.fromkeys(found), key=lambda c: (c.lineno, c.col_offset))

    def _within(self, function: Function | None, noted: Mapping[Node, T]) -> list[tuple[Node, T]]:
        """What is noted of nodes in a function itself, functions nested in it apart."""
        if function is None:
            return [(node, what) for node, what in noted.items() if self.function_of(node) is None]
        first, last = function.node.lineno, function.node.end_lineno or function.node.lineno
        return [
            (node, what)
            for node, what in noted.items()
            if first <= node.lineno <= last and self.function_of(node) is function  # type: ignore[attr-defined]
        ]

    def _forwards_free(self, node: ast.Call) -> bool:
        """Whether the forward that a call runs turns gradients off itself, in another file."""
        call = self.flow.calls.get(node)
        return (
            call is not None and call.callee not in self._functions_by_id and call.callee in self.linked.always_grad_off
        )

    def resolved_callee(self, callee: str) -> str:
        """The id of the project function behind a callee reference."""
        linked = self.linked.refs.get(callee)
        return linked.name if linked is not None else callee

    def differentiates(self, node: ast.stmt) -> bool:
        """Whether a statement differentiates, directly or in a function that it calls."""
        first, last = node.lineno, node.end_lineno or node.lineno
        self.flow.ensure(self.flow.body_scope(self.scope_of(node)))
        for function in self.functions:
            if first <= function.node.lineno <= last:
                self.flow.ensure(function.scope)
        kinds = ("backward", "step", "differentiate")
        return any(
            kind in kinds and first <= getattr(found, "lineno", 0) <= last for found, kind in self.flow.events.items()
        ) or any(
            first <= call.node.lineno <= last and self.resolved_callee(call.callee) in self.linked.differentiates
            for call in self.flow.calls.values()
        )

    def function_mentions_grad_off(self, function: Function) -> bool:
        """Whether a function of this file names something that turns gradients off."""
        if not self._holds_grad_words:
            return False
        usage = function.scope.usage
        return any(word in path for path in usage for word in _GRAD_WORDS) or any(
            f".{word}" in attributes or word in attributes for attributes in usage.values() for word in _GRAD_WORDS
        )

    @cached_property
    def _holds_grad_words(self) -> bool:
        return any(word in self.source.text for word in _GRAD_WORDS)

    # Project code

    def self_value(self, function: Function) -> Value:
        """What the receiver parameter of a method is."""
        assert function.owner is not None
        class_id = self.id_of(function.owner)
        if function.is_classmethod:
            return Value("class", name=class_id)
        family = self.class_family(class_id)
        return Value(family if family in ("module", "dataset", "loader", "optimizer") else "instance", name=class_id)

    def is_module_class(self, cls: Class) -> bool:
        return self.class_family(self.id_of(cls)) == "module"

    def in_module_class(self, node: ast.AST) -> bool:
        """Whether `node` stands in a method of an nn.Module."""
        method = self.method_around(node)
        return method is not None and method.owner is not None and self.is_module_class(method.owner)

    def class_family(self, class_id: str) -> str:
        """What the instances of a class are by its bases: "module", "dataset", … or nothing of torch's (empty)."""
        known = self._families.get(class_id)
        if known is None:
            known = family_of(self.bases_of(class_id))
            if class_id in self._bases:
                self._families[class_id] = known
        return known

    def bases_of(self, class_id: str) -> list[str]:
        """A class and all its bases, nearest first, as project ids or external names."""
        known = self._bases.get(class_id)
        if known is not None:
            return known
        if class_id in self._climbed:
            return [class_id]  # what asks again on the way: the bases are being worked out
        self._climbed.add(class_id)
        try:
            return lineage(class_id, self.direct_bases, self._bases)
        finally:
            self._climbed.discard(class_id)

    def has_met(self, class_id: str) -> bool:
        """Whether a class has been asked for, or is a base of one that has."""
        return class_id in self._bases or any(class_id in bases for bases in self._bases.values())

    def direct_bases(self, class_id: str) -> list[str]:
        cls = self._classes_by_id.get(class_id)
        if cls is None:
            facts = self.linked.classes.get(class_id)
            return list(facts.bases) if facts is not None else []
        scope = self.flow.body_scope(cls.scope.parent or self.index.root)
        values = [self.flow.static(base, scope) for base in cls.node.bases]
        return [v.name for v in values if v.name and v.kind in ("symbol", "class", "ref")]

    def find_method(self, class_id: str, name: str, *, skip_own: bool = False) -> str | None:
        """The id of the method that `name` means on an instance of a project class."""
        for base in self.bases_of(class_id):
            if skip_own and base == class_id:
                continue
            cls = self._classes_by_id.get(base)
            if cls is not None:
                if name in cls.methods:
                    return self.id_of(cls.methods[name])
            else:
                facts = self.linked.classes.get(base)
                if facts is not None and name in facts.methods:
                    return f"{base}.{name}"
        return None

    def member(self, base: Value, name: str) -> Value | None:
        """An attribute or method that a project class gives its instances, None where it gives none."""
        skip = base.kind == "super"
        for class_id in self.bases_of(base.name):
            if skip and class_id == base.name:
                continue
            cls = self._classes_by_id.get(class_id)
            facts = self.linked.classes.get(class_id) if cls is None else None
            if cls is None:
                self.flow.read.add(f"{class_id}.{name}")
            found = self._member_of(cls, name, base) if cls is not None else self._linked_member(facts, name, base)
            if found is not None:
                return found
        if any(class_id in self.linked.classes for class_id in self.bases_of(base.name)):
            self.flow.ask(f"{base.name}.{name}")
        return None

    def _member_of(self, cls: Class, name: str, base: Value) -> Value | None:
        method = cls.methods.get(name)
        if method is not None:
            if method.is_property:
                return self.function_result(self.id_of(method))
            unbound = method.is_static or (base.kind == "class" and not method.is_classmethod)
            return Value("function" if unbound else "bound", name=self.id_of(method))
        if name in cls.writers or name in cls.scope.bindings:
            found = self.flow.attribute_of(cls, name)
            if found.kind == "function" and name not in cls.writers:
                return Value("bound", name=found.name)  # `decode = decode_function` in the class body is a method
            return found if found.kind != "none" else UNKNOWN
        if (
            "__init__" in cls.methods
            and f"{cls.methods['__init__'].self_name}.register_buffer"
            in (initializer := cls.methods["__init__"].scope).usage
        ):
            self.flow.ensure(initializer)
        self.flow.read.add((cls, name))
        registered = self.flow.attributes.get((cls, name))
        if registered is not None:
            return registered
        evidence = self.flow.evidence(self.class_usage(cls, name))
        return evidence if evidence is not UNKNOWN else None

    def _linked_member(self, facts: ClassFacts | None, name: str, base: Value) -> Value | None:
        if facts is None:
            return None
        if name in facts.properties:
            return self.linked.returns.get(f"{facts.id}.{name}", UNKNOWN)
        if name in facts.methods:
            return Value("function" if base.kind == "class" else "bound", name=f"{facts.id}.{name}")
        found = facts.attributes.get(name)
        return Value("bound", name=found.name) if found is not None and found.kind == "function" else found

    def class_usage(self, cls: Class, name: str) -> set[str]:
        """What is called on `self.name` in any method of the class."""
        found: set[str] = set()
        for method in cls.methods.values():
            found |= method.scope.usage.get(f"{method.self_name}.{name}", set())
        return found

    def function_result(self, function_id: str) -> Value:
        """What calling a project function gives: evaluated here for this file's, from the link step for others'."""
        function = self._functions_by_id.get(function_id)
        if function is not None:
            found = self.flow.result_of(function)
        else:
            self.flow.read.add(function_id)
            found = self.linked.returns.get(function_id, members.result(function_id))
        if found.kind in ("unknown", "ref") and torch_api.returns_tensor(members.published_name(function_id)):
            return OPAQUE  # a well-known helper, in the project that publishes it
        return found

    def method_result(self, name: str) -> Value:
        """What a method gives on a receiver of unknown type, where one class of the project alone has one so named."""
        reference = f"?.{name}()"
        self.references.add(reference)
        self.flow.read.add(reference)
        return self.linked.refs.get(reference, UNKNOWN)

    def parameter_reference(self, name: ast.Name) -> str | None:
        """A reference to a parameter, for the link step: what call sites pass says what calling it means."""
        scope = self.scope_of(name)
        function = scope.function
        if function is None or scope is not function.scope or len(scope.bindings.get(name.id, ())) != 1:
            return None
        if all(p.arg != name.id for p in function.parameters) or name.id == function.self_name:
            return None
        return f"{self.id_of(function)}@{name.id}"

    def function_moves(self, function_id: str) -> bool:
        """Whether a function moves something to a device: then its result need not live where its arguments do."""
        function = self._functions_by_id.get(function_id)
        if function is None:
            return function_id in self.linked.moves
        return self.moves_something(function)

    def moves_something(self, function: Function) -> bool:
        """Whether a function of this file calls `to` or `cuda` on anything."""
        if not self._holds_moves:
            return False
        return any("to" in attributes or "cuda" in attributes for attributes in function.scope.usage.values())

    @cached_property
    def _holds_moves(self) -> bool:
        return "to" in self.index.calls or "cuda" in self.index.calls

    # Imports

    def imported(self, name: str, full: str | None = None) -> Value:
        """What `import name` binds (`full` is the whole dotted import where only its top is bound)."""
        found = self.layout.resolve(self.path, name)
        if found is not None and (full is None or self.layout.resolve(self.path, full) is not None):
            return Value("package", name=found)
        return Value("symbol", name=torch_api.canonical(name))

    def imported_from(self, node: ast.ImportFrom, name: str) -> Value:
        """What `from module import name` binds."""
        module = self._import_source(node)
        if module is None:
            return members.symbol(f"{node.module}.{name}")
        return self.package_attribute(module, name)

    def _import_source(self, node: ast.ImportFrom) -> str | None:
        """The project module that a `from` import reads, None for one outside the project."""
        if node.level:
            return self.layout.resolve_relative(self.path, node.level, node.module or "")
        return self.layout.resolve(self.path, node.module) if node.module else None

    def package_attribute(self, module: str, name: str) -> Value:
        """A name of a project module: a submodule, or a reference that the link step resolves."""
        submodule = f"{module}.{name}" if module else name
        if self.layout.path(module) is None and self.layout.exists(submodule):
            return Value("package", name=submodule)
        return self.reference(f"{module}:{name}")

    def reference(self, name: str) -> Value:
        self.references.add(name)
        return self.linked.refs.get(name) or Value("ref", name=name)

    def star_value(self, name: str) -> Value:
        """A name that only a star import can have bound."""
        if self._star_modules is None:
            self._star_modules = [
                (":" + source) if (source := self._import_source(node)) is not None else (node.module or "")
                for node in self.index.imports
                if isinstance(node, ast.ImportFrom) and any(a.name == "*" for a in node.names)
            ]
        if not self._star_modules:
            return UNKNOWN
        project = [m[1:] for m in self._star_modules if m.startswith(":")]
        for module in self._star_modules:
            if module.startswith("torch") and torch_api.exports(module, name):
                return Value("symbol", name=torch_api.canonical(f"{module}.{name}"))
        if project:
            return self.reference("|".join(f"{module}:{name}" for module in reversed(project)))
        return UNKNOWN

    # The summary

    def declarations(self) -> FileSummary:
        """What the file defines and re-exports, without what its functions do: all that resolving names needs."""
        evaluated, self.flow = self.flow, Flow(self, shallow=True)
        try:
            return Summarizer(self).declarations()
        finally:
            self.flow = evaluated
            self.references = set()  # the whole evaluation will find its own, and not all of these

    def summary(self) -> FileSummary:
        """What other files may need to know of this one."""
        return Summarizer(self).summary()

    def revision(self) -> FileSummary:
        """What `summary` said and is different now: of the functions in `linked.again`, and of the classes whose
        attributes they write.
        """
        return Summarizer(self).revision()

    def project_stars(self) -> tuple[str, ...]:
        """The project modules that the file star-imports, the last first."""
        self.star_value("")
        return tuple(m[1:] for m in reversed(self._star_modules or []) if m.startswith(":"))

    def event_grad_off(self, node: ast.AST) -> bool:
        """Whether an event runs without gradients: where it stands, or inside the forward that it calls."""
        if self.regions.grad_off(node):
            return True
        call = self.flow.calls.get(node) if isinstance(node, ast.Call) else None
        forward = self.function_by_id(call.callee) if call is not None else None
        return forward is not None and self.regions.decorated_off(forward)

    def sync_wrapper(self, function: Function) -> ast.Call | None:
        """The sync chain that is all a helper does: `def to_np(t): return t.detach().cpu().numpy()`."""
        body = function.only_statement
        if not isinstance(body, ast.Return) or not isinstance(body.value, ast.Call):
            return None
        return sync_chain(body.value, {p.arg for p in function.parameters})

    def inside_sync_wrapper(self, node: ast.AST) -> bool:
        """Whether `node` is the one sync chain of a helper that is reported at its call sites instead."""
        function = self.function_of(node)
        return (
            function is not None
            and self.id_of(function) in self.linked.called
            and self.sync_wrapper(function) is not None
        )

    def sync_wrapper_calls(self) -> list[ast.Call]:
        """Calls, in source order, of helpers whose whole body reads their parameter, with a tensor not on the host."""
        lambdas = [node for node in self.index.scopes if isinstance(node, ast.Lambda) and is_sync_lambda(node)]
        if not lambdas and not self.linked.sync_wrappers:
            return []
        self.flow.ensure_all()
        given = {
            call.node: call.positional
            for call in self.flow.calls.values()
            if self.resolved_callee(call.callee) in self.linked.sync_wrappers
        }
        given |= {call: values for call, (node, values) in self.flow.lambda_calls.items() if node in lambdas}
        found = [call for call, values in given.items() if any(v.kind == "tensor" and not v.host for v in values)]
        return sorted(found, key=lambda c: (c.lineno, c.col_offset))

    def calls_of(self, name: str) -> list[ast.Call]:
        """Calls, in source order, of the external callable with this canonical name, whatever it is called here."""
        self.flow.ensure_all()
        found = [
            node.func
            for calls in self.index.calls.values()
            for node in calls
            if (value := self.flow.values.get(node.func)) is not None and value.kind == "symbol" and value.name == name
        ]
        calls = [call for func in found if isinstance(call := self.parents[func], ast.Call)]
        return sorted(calls, key=lambda c: (c.lineno, c.col_offset))

    def indexes_memory(self, class_id: str) -> bool:
        """Whether a dataset class in view only indexes memory for an item."""
        getter = self.find_method(class_id, "__getitem__")
        if getter is None:
            return not torch_api.MEMORY_DATASETS.isdisjoint(self.bases_of(class_id))
        function = self.function_by_id(getter)
        return getter_indexes_memory(self, function) if function is not None else getter in self.linked.memory_getters

    def moves_to_host(self, call: ast.Call) -> bool:
        """Whether `x.to(…)` names the CPU."""
        targets = [*call.args[:1], *(k.value for k in call.keywords if k.arg == "device")]
        values = [self.value(target) for target in targets]
        return any(v.name == "cpu" and v.kind in ("string", "device") for v in values)

    def moves_to_device(self, call: ast.Call) -> bool:
        """Whether `x.cuda()` or `x.to(…)` moves x to another device: any target but the CPU and a dtype."""
        if not isinstance(call.func, ast.Attribute):
            return False
        if call.func.attr in ("cuda", "xpu"):
            return True
        if call.func.attr != "to" or self.moves_to_host(call) or any(isinstance(a, ast.Starred) for a in call.args):
            return False
        targets = [*call.args[:1], *(k.value for k in call.keywords if k.arg in ("device", "other"))]
        return any(self._may_be_device(target) for target in targets)

    def names_a_device(self, call: ast.Call) -> bool:
        """Whether the one target of a move is shown, or named, to be a device and not a tensor or dtype to follow."""
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("cuda", "xpu"):
            return True
        targets = [*call.args[:1], *(k.value for k in call.keywords if k.arg == "device")]
        for target in targets:
            value = self.value(target)
            if value.kind in ("device", "string", "number"):
                continue
            if value.kind not in ("unknown", "method", "ref") or _DEVICE_NAME.search(last_name(target)) is None:
                return False
        return bool(targets)

    def _may_be_device(self, node: ast.expr) -> bool:
        value = self.value(node)
        if value.kind in ("device", "string", "tensor", "number"):
            return True
        if value.kind == "symbol":
            return value.name in ("torch.cuda", "torch.device")
        return value.kind in ("unknown", "method", "ref") and "type" not in last_name(node).lower()

    def is_loader(self, node: ast.expr) -> bool:
        """Whether iterating `node` iterates a DataLoader, wrapped or not."""
        value = self.flow.value(node)
        return value.kind == "loader" or (value.kind in ("iterator", "list") and value.name == "loader")


def names_device(text: str) -> bool:
    """Whether source text names a GPU device."""
    search = torch_api.DEVICE_WORDS.search
    return any(
        search(text, max(0, hint.start() - _DEVICE_SPAN), hint.end() + _DEVICE_SPAN)
        for hint in torch_api.DEVICE_HINTS.finditer(text)
    )
