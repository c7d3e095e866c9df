"""Follows modules from where they are built to where they are called, and tensors from layer to layer.

One abstract run of each function: `__init__` and helpers give graphs of modules, `forward` applies them. Branches are
joined and loop bodies run twice, so a layer ends up with everything that its output may meet. What is not understood
meets "anything else" (None).
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchlint.semantics.layers_facts import (
    Maker,
    argument,
    cancels_mean,
    constant,
    has_star_args,
    is_norm,
    is_super,
    maker_of_class,
    maker_of_function,
)
from torchlint.semantics.layers_graph import (
    BIAS_POSITION,
    NOTHING,
    UNKNOWN_MODULE,
    Flowing,
    Graph,
    Layer,
    Value,
    join,
    join_graphs,
    single,
)
from torchlint.semantics.layers_roots import Root, root_of
from torchlint.semantics.layers_run import Run
from torchlint.semantics.layers_state import SEQUENCE, Env

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torchlint.semantics.module import Module
    from torchlint.semantics.names import Class, Function

_DEFS = (ast.FunctionDef, ast.AsyncFunctionDef)


class LayerFlow:
    """The abstract run of one file. `layer_at` holds every layer by the call that builds it."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.layer_at: dict[ast.Call, Layer] = {}
        self.owners: dict[str, set[Layer]] = {}
        self.hidden: set[Layer] = set()
        self._attributes: dict[Class, dict[str, Value]] = {}
        self._cleared: dict[Class, set[str]] = {}
        self._returns: dict[tuple[Function, Class | None], Value] = {}
        self._makers: dict[str, Maker | None] = {}
        self._recording = False
        self.current_function: Function | None = None
        self.depth = 0
        self.current_class: Class | None = None
        self._classes = {module.id_of(c): c for c in module.classes}

    def run(self, roots: set[Root]) -> None:
        """Follow these roots, None for the module body: first what attributes hold, then what meets what."""
        classes = [c for c in self.module.classes if c in roots or (root_of(self.module, c.node) or c) in roots]
        for cls in classes:
            self._attributes[cls] = {}
        for cls in classes:
            for function in self._writers(cls):
                self.run_function(function, cls)
            for name in self._cleared.get(cls, ()):
                if name in self._attributes[cls]:
                    self._attributes[cls][name] = join(self._attributes[cls][name], UNKNOWN_MODULE)
        self._returns.clear()
        self._recording = True
        for cls in classes:
            for method in self._methods(cls):
                self.result(method, cls)
        for function in self.module.functions:
            if function in roots and function.owner is None:
                self.result(function, None)
        if None in roots:
            body = [s for s in self.module.tree.body if not isinstance(s, (*_DEFS, ast.ClassDef))]
            self.current_function, self.current_class = None, None
            self._block(body, {})
        self._note_owners()

    # Classes

    def _lineage(self, cls: Class) -> list[Class]:
        """A class and those of its bases that stand in this file, nearest first."""
        return [self._classes[name] for name in self.module.bases_of(self.module.id_of(cls)) if name in self._classes]

    def _methods(self, cls: Class) -> list[Function]:
        """What runs on an instance: own methods, and inherited ones that no nearer class replaces."""
        found: dict[str, Function] = {}
        for base in self._lineage(cls):
            for name, method in base.methods.items():
                found.setdefault(name, method)
        return [*found.values()]

    @staticmethod
    def _writers(cls: Class) -> list[Function]:
        """The methods that give the instance attributes, `__init__` first."""
        written = {f for functions in cls.writers.values() for f in functions}
        ordered = [m for m in cls.methods.values() if m in written or m.name == "__init__"]
        return sorted(ordered, key=lambda m: (m.name != "__init__", m.node.lineno))

    def is_sequential(self, cls: Class) -> bool:
        return "torch.nn.Sequential" in self.module.bases_of(self.module.id_of(cls))

    def attribute(self, name: str) -> Value | None:
        """What `self.name` holds in the class at hand."""
        if self.current_class is None:
            return None
        for base in self._lineage(self.current_class):
            found = self._attributes.get(base, {}).get(name)
            if found is not None:
                return found
        return None

    def _note_owners(self) -> None:
        """By attribute name, the layers that an attribute of that name holds."""
        for attributes in self._attributes.values():
            for name, value in attributes.items():
                if isinstance(value, Graph):
                    self.owners.setdefault(name, set()).update(value.exits())

    # Functions

    def result(self, function: Function, cls: Class | None) -> Value:
        """What calling a function of this file gives; nothing where it is being run already."""
        key = (function, cls)
        known = self._returns.get(key)
        if known is None:
            self._returns[key] = NOTHING
            known = self._returns[key] = self.run_function(function, cls)
        return known

    def run_function(self, function: Function, cls: Class | None, env: Env | None = None) -> Value:
        outer = self.current_function, self.current_class
        self.current_function, self.current_class = function, cls
        run = Run(self, function.self_name, dict(env or {}))
        ended = run.block(function.node.body)
        if not ended:
            run.exits.append(run.env)
        if cls is not None:
            self._keep_attributes(cls, run)
        sequences = [s for env in run.exits if isinstance(s := env.get(SEQUENCE), Graph)]
        if function.name == "__init__" and cls is not None and sequences:
            self._commit_sequence(cls, join_graphs(sequences))
        self.current_function, self.current_class = outer
        results = run.results
        if not results:
            return NOTHING
        value = results[0]
        for other in results[1:]:
            value = join(value, other)
        return value

    def _block(self, body: list[ast.stmt], env: Env) -> None:
        Run(self, "", env).block(body)

    def _keep_attributes(self, cls: Class, run: Run) -> None:
        """Join what `self.name` held at the end of a method into the class's attributes."""
        prefix = run.self_name + "."
        known = self._attributes.setdefault(cls, {})
        for env in run.exits:
            for path, value in env.items():
                name = path[len(prefix) :]
                if path.startswith(prefix) and name.isidentifier() and isinstance(value, Graph):
                    known[name] = join(known[name], value) if name in known else value
        self._cleared.setdefault(cls, set()).update(run.cleared)

    def _commit_sequence(self, cls: Class, sequence: Graph) -> None:
        """A subclass of Sequential runs what its `__init__` added in order, unless its own forward does otherwise."""
        forward = cls.methods.get("forward")
        if forward is None or _runs_itself(forward):
            self.commit(sequence)
            self.meet(sequence.tails, None)

    # Meetings

    def commit(self, graph: Graph) -> None:
        """The modules of the graph run in order: note who follows whom."""
        if self._recording:
            for first, second in graph.pairs:
                if first is not None:
                    first.followers.add(second)

    def meet(self, layers: Iterable[Layer | None], other: Layer | None) -> None:
        """The untouched output of `layers` goes into `other`."""
        if self._recording:
            for layer in layers:
                if layer is not None:
                    layer.followers.add(other)

    def feed(self, layers: Iterable[Layer], heads: Iterable[Layer | None]) -> None:
        """The output of `layers`, changed by other operations, goes into `heads`."""
        if self._recording:
            found = [head for head in heads if head is not None]
            for layer in layers:
                layer.feeds.update(found)

    def apply(self, graph: Graph, value: Value) -> Flowing:
        """Calling a module with a value."""
        if isinstance(value, Graph):
            value = NOTHING
        for head in graph.heads:
            self.meet(value.raw, head)
        self.feed(value.through, graph.heads)
        raw = frozenset(t for t in graph.tails if t is not None)
        through: frozenset[Layer] = frozenset()
        if graph.empty:
            raw, through = raw | value.raw, value.through
        if None in graph.tails:
            through = through | value.through | value.raw
        return Flowing(raw, through)

    def consume(self, value: Value) -> frozenset[Layer]:
        """A tensor used by something that is no known layer; the layers whose output went into it."""
        if isinstance(value, Graph):
            return frozenset()
        self.meet(value.raw, None)
        return value.raw | value.through

    def hand_over(self, value: Value) -> frozenset[Layer]:
        """A value given to code that may do anything with it: call it, or use its values."""
        if isinstance(value, Graph):
            self.meet(value.tails, None)
            for item in value.items:
                if not value.ordered:
                    self.hand_over(item)
            return frozenset()
        return self.consume(value)

    def rely_on_bias(self, graph: Graph) -> None:
        """Code reads or sets the bias of these layers without asking whether there is one."""
        self.hidden.update(graph.layers())

    def hide_all(self) -> None:
        """Any attribute of the class at hand may be used in a way that is not followed."""
        for base in self._lineage(self.current_class) if self.current_class is not None else ():
            for value in self._attributes.get(base, {}).values():
                if isinstance(value, Graph):
                    self.hidden.update(value.exits())

    def returned(self, function: Function) -> set[Layer]:
        """The layers whose output the callers get of what a function of this file builds and gives back."""
        values = [value for (known, _), value in self._returns.items() if known is function]
        return {layer for value in values if isinstance(value, Graph) for layer in value.exits()}

    def never_called(self) -> Iterator[Layer]:
        """Layers in attributes of classes whose forward is out of sight."""
        for cls, attributes in self._attributes.items():
            if "forward" not in {m.name for m in self._methods(cls)} and not self.is_sequential(cls):
                for value in attributes.values():
                    if isinstance(value, Graph):
                        yield from value.exits()

    # Building layers

    def layer(self, call: ast.Call, kind: str) -> Graph:
        """The layer of torch class `kind` that `call` builds."""
        found = self.layer_at.get(call)
        if found is None:
            bias = self._bias_given(call, "bias", BIAS_POSITION[kind], True) if kind in BIAS_POSITION else None
            cancels = is_norm(kind) and cancels_mean(kind, call)
            found = Layer(call, kind, bias, position=BIAS_POSITION.get(kind, -1), cancels_mean=cancels)
            self.layer_at[call] = found
        return single(found)

    def made_layer(self, call: ast.Call, maker: Maker) -> Graph:
        """The layer that a call of a maker builds, where the call decides about its bias."""
        found = self.layer_at.get(call)
        if found is None:
            bias = maker.bias
            if maker.parameter:
                bias = self._bias_given(call, maker.parameter, maker.position, maker.bias)
            elif bias:
                bias = None
            found = Layer(call, maker.kind, bias, maker.parameter or "bias", maker.position, maker.cancels_mean)
            self.layer_at[call] = found
        return single(found)

    def _bias_given(self, call: ast.Call, name: str, position: int, default: bool | None) -> bool | None:
        """Whether the layer has a bias: what its call says, else the default where nothing else may say it."""
        given = argument(call, name, position)
        if given is not None:
            return constant(given)
        if has_star_args(call):
            return None
        for keyword in call.keywords:
            if keyword.arg is None and not self._holds_no_bias(keyword.value, name):
                return None
        return default

    def _holds_no_bias(self, node: ast.expr, name: str) -> bool:
        """Whether the unpacked keywords are known not to hold `name`."""
        if isinstance(node, ast.Dict):
            return all(isinstance(k, ast.Constant) and k.value != name for k in node.keys)
        function = self.current_function
        if not isinstance(node, ast.Name) or function is None or _changes(function, node.id):
            return False
        kwarg = function.node.args.kwarg
        if kwarg is not None and kwarg.arg == node.id:
            return self.module.id_of(function) in self.module.linked.layers.closed
        values = function.scope.bindings.get(node.id, [])
        return bool(values) and all(v is not None and _literal_without(v, name) for v in values)

    def maker(self, entity_id: str) -> Maker | None:
        """The maker of that id, here or in another file of the project."""
        if entity_id not in self._makers:
            self._makers[entity_id] = self._find_maker(entity_id)
        return self._makers[entity_id]

    def _find_maker(self, entity_id: str) -> Maker | None:
        function = self.module.function_by_id(entity_id)
        if function is not None:
            return maker_of_function(self.module, function)
        cls = self._classes.get(entity_id)
        if cls is not None:
            return maker_of_class(self.module, cls)
        return self.module.linked.layers.makers.get(entity_id)

    def in_forward(self) -> bool:
        return self.current_function is not None and self.current_function.name == "forward"

    def method(self, name: str) -> Function | None:
        """The method that `self.name` means in the class at hand."""
        if self.current_class is None:
            return None
        return next((base.methods[name] for base in self._lineage(self.current_class) if name in base.methods), None)


def _literal_without(node: ast.expr, name: str) -> bool:
    """Whether an expression is a dict display or `dict(…)` call with known keys, `name` not among them."""
    if isinstance(node, ast.Dict):
        return all(isinstance(k, ast.Constant) and k.value != name for k in node.keys)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict" and not node.args:
        return all(k.arg is not None and k.arg != name for k in node.keywords)
    return False


def _changes(function: Function, name: str) -> bool:
    """Whether a function calls methods of the dict `name` that change it, or sets its items."""
    if function.scope.usage.get(name, set()) & {"pop", "update", "setdefault", "popitem", "clear"}:
        return True
    return any(
        isinstance(n, ast.Subscript)
        and isinstance(n.value, ast.Name)
        and n.value.id == name
        and isinstance(n.ctx, ast.Store)
        for n in ast.walk(function.node)
    )


def _runs_itself(forward: Function) -> bool:
    """Whether the forward of a Sequential subclass still runs its modules in order."""
    for node in ast.walk(forward.node):
        if isinstance(node, ast.Attribute) and node.attr == "forward" and is_super(node.value):
            return True
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Name) and node.iter.id == forward.self_name:
            match node.body:
                case [ast.Assign(targets=[ast.Name(id=out)], value=ast.Call(args=[ast.Name(id=taken)]))] if (
                    out == taken
                ):
                    return True
    return False
