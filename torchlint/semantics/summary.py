"""The summary of a file: what other files need to know of it, in the three rounds in which they ask."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, TypeVar

from torchlint import torch_api
from torchlint.semantics.facts import (
    MODULE_BODY,
    OUTSIDE,
    CallFacts,
    ClassFacts,
    EventFacts,
    FileSummary,
    FunctionFacts,
    LoopFacts,
)
from torchlint.semantics.layers import summarize_layers
from torchlint.semantics.loaders import getter_indexes_memory
from torchlint.semantics.names import COMPREHENSIONS, Class, Function, last_name
from torchlint.semantics.values import UNKNOWN, Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torchlint.semantics.module import Module
    from torchlint.semantics.regions import AnyLoop

Node = TypeVar("Node", bound=ast.AST)


class Summarizer:
    """Puts together what a module's flow and regions show."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.index = module.index
        self.flow = module.flow
        self.regions = module.regions

    def declarations(self) -> FileSummary:
        """What the file defines and re-exports, without what its functions do: all that resolving names needs."""
        self.flow.ensure(self.index.root)
        return FileSummary(
            module=self.module.name,
            functions=tuple(
                FunctionFacts(
                    self.module.id_of(f),
                    (),
                    moves=self.module.moves_something(f),
                    mentions_grad_off=self.module.function_mentions_grad_off(f),
                )
                for f in self.module.functions
            ),
            classes=tuple(self._declared(c) for c in self.module.classes),
            names=self._root_names(),
            stars=self.module.project_stars(),
            references=tuple(sorted(self._imported_names())),
        )

    def _declared(self, cls: Class) -> ClassFacts:
        properties = tuple(sorted(n for n, m in cls.methods.items() if m.is_property))
        return ClassFacts(
            self.module.id_of(cls),
            tuple(self.module.direct_bases(self.module.id_of(cls))),
            tuple(sorted(cls.methods)),
            properties,
        )

    def _root_names(self) -> dict[str, Value]:
        """What the module body binds, as far as it is known."""
        found = self.flow.joined.get(self.index.root, {})
        return {
            name: value for name, value in found.items() if value.kind not in ("unknown", "none", "number", "string")
        }

    def _imported_names(self) -> set[str]:
        """Every project name that an import anywhere in the file, or an attribute of an imported module, refers to."""
        for node in self.index.imports:
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if alias.name != "*":
                        self.module.imported_from(node, alias.name)
        for path, attributes in self.index.root.usage.items():
            self._refer(path, attributes)
        return self.module.references

    def _refer(self, path: str, attributes: set[str]) -> None:
        """Note `module.name` for an imported project module, and names that only a star import can bind."""
        head, _, rest = path.partition(".")
        value = self.flow.lookup(head, None, self.index.root)
        for part in rest.split(".") if rest else ():
            value = self.module.package_attribute(value.name, part) if value.kind == "package" else UNKNOWN
        if value.kind == "package":
            for attribute in attributes:
                self.module.package_attribute(value.name, attribute.lstrip("."))

    def summary(self) -> FileSummary:
        """What other files may need to know of this one."""
        self.flow.ensure_all()
        return FileSummary(
            module=self.module.name,
            functions=self._facts_of([*self.module.functions, None]),
            classes=tuple(self._class_facts(c) for c in self.module.classes),
            names=self._root_names(),
            stars=self.module.project_stars(),
            escapes=tuple(sorted(self._escapes())),
            references=tuple(sorted(self.module.references)),
            device=self.module.names_device,
            layers=summarize_layers(self.module),
        )

    def revision(self) -> FileSummary:
        """What `summary` said and is different now: of the functions in `linked.again`, and of the classes whose
        attributes they write.
        """
        named = self.module.linked.again
        again = [function for function in self.module.functions if self.module.id_of(function) in named]
        body = [None] if f"{self.module.name}:{MODULE_BODY}" in named else []
        owners = {function.owner for function in again}
        return FileSummary(
            module=self.module.name,
            functions=self._facts_of([*again, *body]),
            classes=tuple(self._class_facts(cls) for cls in self.module.classes if cls in owners),
            names=self._root_names() if body else {},
            references=tuple(sorted(self.module.references)),
        )

    def _facts_of(self, functions: Sequence[Function | None]) -> tuple[FunctionFacts, ...]:
        """The facts of evaluated functions; None stands for the module body."""
        loops = self._by_function(self.index.loops)
        events = self._by_function(self.flow.events)
        made = self._by_function(self.flow.calls)
        found = []
        for function in functions:
            name = self.module.id_of(function) if function is not None else f"{self.module.name}:{MODULE_BODY}"
            found.append(self._function_facts(function, loops.get(name, ()), events.get(name, ()), made.get(name, ())))
        return tuple(found)

    def _by_function(self, nodes: Iterable[Node]) -> dict[str, list[Node]]:
        found: dict[str, list[Node]] = {}
        for node in nodes:
            found.setdefault(self.module.function_id(node), []).append(node)
        return found

    def _function_facts(
        self, function: Function | None, loops: Iterable[AnyLoop], events: Iterable[ast.AST], calls: Iterable[ast.AST]
    ) -> FunctionFacts:
        own_calls = sorted((self.flow.calls[c] for c in calls), key=lambda c: (c.node.lineno, c.node.col_offset))  # type: ignore[index]
        facts = [
            CallFacts(
                c.callee,
                self.regions.place(c.node),
                self.regions.grad_off(c.node),
                c.positional,
                c.keywords,
                c.bound,
                c.starred,
                isinstance(self.module.parents.get(c.node), ast.Expr),
            )
            for c in own_calls
        ]
        event_facts = tuple(
            EventFacts(self.flow.events[node], self.regions.place(node), self.module.event_grad_off(node))
            for node in events
        )
        loop_facts = tuple(self._loop_facts(loop) for loop in loops)
        if function is None:
            return FunctionFacts(
                f"{self.module.name}:{MODULE_BODY}", (), UNKNOWN, loop_facts, event_facts, tuple(facts)
            )
        in_module = function.owner is not None and self.module.is_module_class(function.owner)
        arguments = function.node.args
        return FunctionFacts(
            id=self.module.id_of(function),
            parameters=tuple(p.arg for p in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]),
            returns=self.flow.result_of(function),
            loops=loop_facts,
            events=event_facts,
            calls=tuple(facts),
            grad_off=self.regions.decorated_off(function) or self._free_hook(function),
            mentions_grad_off=self.module.function_mentions_grad_off(function),
            in_module=in_module,
            has_receiver=function.owner is not None and not function.is_static,
            moves=self.module.moves_something(function),
            memory_getter=function.name == "__getitem__" and getter_indexes_memory(self.module, function),
            guards=(returned := self.regions.returned_test(function)) is not None
            and self.regions.periodic(returned)[0],
            single_return_sync=self.module.sync_wrapper(function) is not None,
            open=tuple(self.flow.open_parameters.get(function, ())),
            asks=tuple(sorted(self.flow.asked.get(function, ()))),
        )

    def _free_hook(self, function: Function) -> bool:
        """Whether Lightning runs this method with gradients off."""
        if function.owner is None or function.name not in torch_api.GRAD_FREE_HOOKS:
            return False
        bases = self.module.bases_of(self.module.id_of(function.owner))
        return any(base.endswith((".LightningModule", ":LightningModule")) for base in bases)

    def _loop_facts(self, loop: AnyLoop) -> LoopFacts:
        outer = next(self.regions.loops_around(loop), None)
        short = (
            isinstance(loop, (ast.For, ast.AsyncFor))
            and isinstance(loop.iter, ast.Call)
            and last_name(loop.iter.func) in ("range", "trange")
        )
        return LoopFacts(
            number=self.regions.numbers[loop],
            outer=self.regions.numbers[outer] if outer is not None else OUTSIDE,
            loads=any(self.module.is_loader(head) for head in _heads(loop)),
            short=short,
            after=self._loops_before(loop) if short else (),
        )

    def _loops_before(self, loop: AnyLoop) -> tuple[int, ...]:
        """Loops that stand before `loop` in the body of the loop around both."""
        outer = next(self.regions.loops_around(loop), None)
        if outer is None:
            return ()
        return tuple(
            self.regions.numbers[other]
            for other in self.index.loops
            if other.lineno < loop.lineno
            and (other.end_lineno or 0) < loop.lineno
            and next(self.regions.loops_around(other), None) is outer
        )

    def _class_facts(self, cls: Class) -> ClassFacts:
        declared = self._declared(cls)
        attributes = {}
        for name in {
            *cls.writers,
            *(n for n in cls.scope.bindings if n not in cls.methods),
            *(key[1] for key in self.flow.attributes if key[0] is cls),
        }:
            value = self.flow.attribute_of(cls, name)
            if value.kind not in ("unknown", "none", "number", "string", "bound") and (
                value.kind != "function" or name not in cls.writers
            ):
                attributes[name] = value
        return ClassFacts(
            declared.id, declared.bases, declared.methods, declared.properties, dict(sorted(attributes.items()))
        )

    def _escapes(self) -> set[str]:
        """Functions handed over as values: somebody out of view may call them."""
        found: set[str] = set()
        for node, value in self.flow.values.items():
            if (
                value.kind not in ("function", "bound", "ref")
                or not value.name
                or not isinstance(node, (ast.Name, ast.Attribute))
            ):
                continue
            parent = self.module.parents.get(node)
            if isinstance(parent, ast.Call) and parent.func is node:
                continue
            if isinstance(parent, ast.Attribute) or not isinstance(node.ctx, ast.Load):
                continue
            if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                continue  # a decorator or base
            found.add(value.name)
        return found


def _heads(loop: AnyLoop) -> list[ast.expr]:
    """The expressions that a loop iterates."""
    if isinstance(loop, COMPREHENSIONS):
        return [g.iter for g in loop.generators]
    return [] if isinstance(loop, ast.While) else [loop.iter]
