"""Follows modules from where they are built to where they are called, and tensors from layer to layer.

One abstract run of each function: `__init__` and helpers give graphs of modules, `forward` applies them. Branches are
joined and loop bodies run twice, so a layer ends up with everything that its output may meet. What is not understood
meets "anything else" (None).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from torchlint.semantics.layers_facts import (
    Maker,
    argument,
    asks_for_bias,
    cancels_mean,
    constant,
    has_star_args,
    is_norm,
    maker_of_class,
    maker_of_function,
)
from torchlint.semantics.layers_graph import (
    BIAS_POSITION,
    IDENTITY,
    NO_MODULES,
    NOTHING,
    UNKNOWN_MODULE,
    Flowing,
    Graph,
    Layer,
    Value,
    as_graph,
    concatenate,
    extend,
    join,
    join_graphs,
    repeat,
    single,
)
from torchlint.semantics.names import Class, Function, last_name, path_of

if TYPE_CHECKING:
    from torchlint.semantics.module import Module

Env = dict[str, Value]

# Where the state keeps what a subclass of Sequential holds; no name is spelled like this.
_SEQUENCE = "<sequence>"
_DEFS = (ast.FunctionDef, ast.AsyncFunctionDef)
# Attributes that say something about a tensor without using its values.
_SHAPE_WORDS = frozenset({"shape", "size", "dim", "ndim", "dtype", "device", "numel", "is_cuda", "requires_grad", "type"})
# What is done with scores for classes: what comes out is no feature of the layer any more.
_CLASS_WORDS = frozenset(
    "softmax log_softmax argmax cross_entropy nll_loss gumbel_softmax one_hot multinomial topk Categorical".split()
)
# Methods of a module or container that give back the same modules.
_SAME_MODULES = frozenset(
    "to cuda cpu half float double bfloat16 eval train requires_grad_ apply share_memory children modules values copy".split()
)
_PAIRED_MODULES = frozenset({"items", "named_children", "named_modules"})
_OUTPUT_HOOKS = frozenset({"register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook"})
# Calls that give back the module or list of modules that they take.
_PASSED_ON = frozenset(
    {
        "builtins.list",
        "builtins.tuple",
        "builtins.iter",
        "builtins.dict",
        "copy.copy",
        "copy.deepcopy",
        "torch.jit.script",
        "torch.compile",
        "collections.OrderedDict",
        "typing.OrderedDict",
        "torch.nn.utils.weight_norm",
        "torch.nn.utils.spectral_norm",
        "torch.nn.utils.skip_init",
        "torch.nn.utils.parametrizations.weight_norm",
        "torch.nn.utils.parametrizations.spectral_norm",
        "torch.nn.utils.parametrizations.orthogonal",
        "torch.nn.utils.parametrize.register_parametrization",
    }
)
_REORDERED = frozenset({"builtins.reversed", "builtins.sorted", "builtins.filter", "builtins.zip", "builtins.enumerate"})
# Functions that read their module arguments and no output of theirs.
_READERS = frozenset({"builtins.isinstance", "builtins.len", "builtins.hasattr", "builtins.print", "builtins.type", "builtins.id"})
_CONTAINERS = frozenset({"torch.nn.ModuleList", "torch.nn.ModuleDict"})


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
        self._function: Function | None = None
        self._class: Class | None = None
        self._classes = {module.id_of(c): c for c in module.classes}

    def run(self) -> None:
        """First what every attribute holds, then what meets what."""
        for cls in self.module.classes:
            self._attributes[cls] = {}
        for cls in self.module.classes:
            for function in self._writers(cls):
                self._run_function(function, cls)
            for name in self._cleared.get(cls, ()):
                if name in self._attributes[cls]:
                    self._attributes[cls][name] = join(self._attributes[cls][name], UNKNOWN_MODULE)
        self._returns.clear()
        self._recording = True
        for cls in self.module.classes:
            for method in self._methods(cls):
                self._result(method, cls)
        for function in self.module.functions:
            if function.owner is None and function.parent is None:
                self._result(function, None)
        body = [s for s in self.module.tree.body if not isinstance(s, (*_DEFS, ast.ClassDef))]
        self._function, self._class = None, None
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

    def _is_sequential(self, cls: Class) -> bool:
        return "torch.nn.Sequential" in self.module.bases_of(self.module.id_of(cls))

    def _attribute(self, name: str) -> Value | None:
        """What `self.name` holds in the class at hand."""
        if self._class is None:
            return None
        for base in self._lineage(self._class):
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

    def _result(self, function: Function, cls: Class | None) -> Value:
        """What calling a function of this file gives; nothing where it is being run already."""
        key = (function, cls)
        known = self._returns.get(key)
        if known is None:
            self._returns[key] = NOTHING
            known = self._returns[key] = self._run_function(function, cls)
        return known

    def _run_function(self, function: Function, cls: Class | None, env: Env | None = None) -> Value:
        outer = self._function, self._class
        self._function, self._class = function, cls
        run = _Run(self, function.self_name, dict(env or {}))
        ended = run.block(function.node.body)
        if not ended:
            run.exits.append(run.env)
        if cls is not None:
            self._keep_attributes(cls, run)
        sequences = [s for env in run.exits if isinstance(s := env.get(_SEQUENCE), Graph)]
        if function.name == "__init__" and cls is not None and sequences:
            self._commit_sequence(cls, join_graphs(sequences))
        self._function, self._class = outer
        results = run.results
        if not results:
            return NOTHING
        value = results[0]
        for other in results[1:]:
            value = join(value, other)
        return value

    def _block(self, body: list[ast.stmt], env: Env) -> None:
        _Run(self, "", env).block(body)

    def _keep_attributes(self, cls: Class, run: _Run) -> None:
        """Join what `self.name` held at the end of a method into the class's attributes."""
        prefix = run.self_name + "."
        known = self._attributes[cls]
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
        for base in self._lineage(self._class) if self._class is not None else ():
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
            if "forward" not in {m.name for m in self._methods(cls)} and not self._is_sequential(cls):
                for value in attributes.values():
                    if isinstance(value, Graph):
                        yield from value.exits()

    # Building layers

    def layer(self, call: ast.Call, kind: str) -> Graph:
        """The layer of torch class `kind` that `call` builds."""
        found = self.layer_at.get(call)
        if found is None:
            bias = self._bias_given(call, "bias", BIAS_POSITION[kind], True) if kind in BIAS_POSITION else None
            found = Layer(call, kind, bias, cancels_mean=is_norm(kind) and cancels_mean(kind, call))
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
            found = Layer(call, maker.kind, bias, maker.parameter or "bias", maker.cancels_mean)
            self.layer_at[call] = found
        return single(found)

    def _bias_given(self, call: ast.Call, name: str, position: int, default: bool | None) -> bool | None:
        """Whether the layer of a call has a bias: what the call says, else the default where nothing else may say it."""
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
        function = self._function
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
        return self._function is not None and self._function.name == "forward"

    def method(self, name: str) -> Function | None:
        """The method that `self.name` means in the class at hand."""
        if self._class is None:
            return None
        return next((base.methods[name] for base in self._lineage(self._class) if name in base.methods), None)


class _Run:
    """One run through one function's body."""

    def __init__(self, flow: LayerFlow, self_name: str, env: Env) -> None:
        self.flow = flow
        self.module = flow.module
        self.self_name = self_name
        self.env = env
        self.results: list[Value] = []
        self.exits: list[Env] = []
        self.cleared: set[str] = set()
        cls = flow._class
        if cls is not None and flow._is_sequential(cls):
            self.env[_SEQUENCE] = NO_MODULES

    @property
    def sequence(self) -> Graph | None:
        """In a subclass of Sequential, the modules added to it so far."""
        found = self.env.get(_SEQUENCE)
        return found if isinstance(found, Graph) else None

    def add_to_sequence(self, modules: Graph) -> None:
        if self.sequence is not None:
            self.env[_SEQUENCE] = extend(self.sequence, modules)

    # Statements

    def block(self, statements: list[ast.stmt]) -> bool:
        """Run the statements; True where control does not reach their end."""
        for statement in statements:
            run = _STATEMENTS.get(statement.__class__)
            if run is not None:
                if run(self, statement):
                    return True
            else:
                for child in ast.iter_child_nodes(statement):
                    if isinstance(child, ast.expr):
                        self.flow.consume(self.eval(child))
        return False

    def branch(self, statements: list[ast.stmt], env: Env) -> Env | None:
        """The state after running the statements from `env`, None where control does not reach their end."""
        outer, self.env = self.env, dict(env)
        ended = self.block(statements)
        after, self.env = self.env, outer
        return None if ended else after

    def join_into(self, states: list[Env | None]) -> bool:
        """Go on from whichever of these states; True where there is none."""
        alive = [s for s in states if s is not None]
        if not alive:
            return True
        merged = dict(alive[0])
        for state in alive[1:]:
            for name, value in state.items():
                merged[name] = join(merged[name], value) if name in merged else value
        self.env = merged
        return False

    def _expression(self, node: ast.Expr) -> bool:
        self.eval(node.value)
        return False

    def _assign(self, node: ast.Assign) -> bool:
        target = node.targets[0]
        if isinstance(target, (ast.Tuple, ast.List)) and isinstance(node.value, (ast.Tuple, ast.List)):
            if len(target.elts) == len(node.value.elts):
                for value, name in [(self.eval(v), t) for v, t in zip(node.value.elts, target.elts, strict=True)]:
                    self.bind(name, value)
                return False
        value = self.eval(node.value)
        for target in node.targets:
            self.bind(target, value)
        return False

    def _annotated(self, node: ast.AnnAssign) -> bool:
        if node.value is not None:
            self.bind(node.target, self.eval(node.value))
        return False

    def _augmented(self, node: ast.AugAssign) -> bool:
        path = path_of(node.target)
        before = self.read(path) if path is not None else None
        value = self.eval(node.value)
        if isinstance(before, Graph) and isinstance(node.op, ast.Add):
            self.bind(node.target, extend(before, as_graph(value)))
            return False
        through = self.flow.consume(value) | (self.flow.consume(before) if before is not None else frozenset())
        self.bind(node.target, Flowing(through=through))
        return False

    def bind(self, target: ast.expr, value: Value) -> None:
        """Assign `value` to a name, an attribute of self, or something that is not followed."""
        if isinstance(target, (ast.Tuple, ast.List)):
            parts: list[Value] = list(value.words) if isinstance(value, Flowing) and value.words else []
            if isinstance(value, Graph) and value.exact and len(value.items) == len(target.elts):
                parts = list(value.items)
            through = self.flow.consume(value)
            for position, item in enumerate(target.elts):
                part = parts[position] if len(parts) == len(target.elts) else Flowing(through=through)
                self.bind(item.value if isinstance(item, ast.Starred) else item, part)
            return
        if isinstance(target, ast.Name):
            self.env[target.id] = value
            return
        if isinstance(target, ast.Attribute) and self.is_self(target.value):
            self.set_attribute(target.attr, value)
            return
        if isinstance(target, ast.Subscript):
            self._set_item(target, value)
            return
        path = path_of(target)
        self.flow.hand_over(value)
        if path is not None:
            self.env.pop(path, None)

    def set_attribute(self, name: str, value: Value) -> None:
        """`self.name = value`: in a Sequential it also goes to the end of the sequence."""
        if isinstance(value, Graph):
            self.add_to_sequence(concatenate([value]))
        else:
            self.flow.consume(value)
            self.cleared.add(name)
        self.env[f"{self.self_name}.{name}"] = value

    def _set_item(self, target: ast.Subscript, value: Value) -> None:
        """`layers["conv1"] = conv` adds to the end; another index puts the module nobody knows where."""
        path = path_of(target.value)
        before = self.read(path) if path is not None else None
        self.eval(target.slice)
        key = target.slice
        named = isinstance(key, ast.JoinedStr) or (isinstance(key, ast.Constant) and isinstance(key.value, str))
        if isinstance(before, Graph) and isinstance(value, Graph) and path is not None:
            if named and before.exact is not None and not isinstance(key, ast.Slice):
                self.store(path, extend(before, concatenate([value])))
                return
            self.flow.hand_over(value)
            self.flow.hand_over(Graph(before.heads, before.tails, items=before.items))
            return
        self.flow.hand_over(value)

    def store(self, path: str, value: Value) -> None:
        self.env[path] = value

    def read(self, path: str | None) -> Value | None:
        """What a name or `self.name` holds, None where that is not followed."""
        if path is None:
            return None
        found = self.env.get(path)
        if found is None and self.self_name and path.startswith(self.self_name + "."):
            return self.flow._attribute(path[len(self.self_name) + 1 :])
        return found

    def is_self(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and bool(self.self_name) and node.id == self.self_name

    def _return(self, node: ast.Return) -> bool:
        if node.value is not None:
            value = self.eval(node.value)
            if isinstance(value, Flowing):
                value = Flowing(through=self.flow.consume(value), words=value.words)
            self.results.append(value)
        self.exits.append(self.env)
        return True

    def _raise(self, node: ast.stmt) -> bool:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.flow.consume(self.eval(child))
        return True

    def _if(self, node: ast.If) -> bool:
        self.flow.consume(self.eval(node.test))
        return self.join_into([self.branch(node.body, self.env), self.branch(node.orelse, self.env)])

    def _while(self, node: ast.While) -> bool:
        self.flow.consume(self.eval(node.test))
        return self._repeat(node.body, node.orelse, lambda: None)

    def _for(self, node: ast.For | ast.AsyncFor) -> bool:
        sequence = self._run_in_order(node)
        if sequence is not None:
            return False
        values = self.elements(node.iter)

        def enter() -> None:
            self._bind_elements(node.target, values)

        return self._repeat(node.body, node.orelse, enter)

    def _repeat(self, body: list[ast.stmt], orelse: list[ast.stmt], enter: Callable[[], None]) -> bool:
        """A loop's body, twice: what the first round leaves, the second meets."""
        start = dict(self.env)
        for _ in range(2):
            enter()
            after = self.branch(body, self.env)
            self.join_into([start, after])
            start = dict(self.env)
        return self.block(orelse) if orelse else False

    def _run_in_order(self, node: ast.For | ast.AsyncFor) -> Flowing | None:
        """`for layer in layers: x = layer(x)` is the Sequential of these layers."""
        if len(node.body) != 1 or node.orelse or not isinstance(node.target, ast.Name):
            return None
        match node.body[0]:
            case ast.Assign(targets=[ast.Name(id=out)], value=ast.Call(func=ast.Name(id=callee), args=[ast.Name(id=taken)], keywords=[])):
                if callee != node.target.id or out != taken:
                    return None
            case _:
                return None
        if self.is_self(node.iter):
            return NOTHING
        graph = self.eval(node.iter)
        if not isinstance(graph, Graph):
            return None
        self.flow.commit(graph)
        before = self.env.get(out, NOTHING)
        self.env[out] = self.flow.apply(graph, before)
        return NOTHING

    def elements(self, node: ast.expr) -> list[Value]:
        """What iterating gives, one value for each target that `zip` or `enumerate` fills."""
        if isinstance(node, ast.Call):
            name = last_name(node.func)
            if isinstance(node.func, ast.Name) and name == "zip":
                return [self.elements(a)[-1] for a in node.args]
            if isinstance(node.func, ast.Name) and name == "enumerate" and node.args:
                return [NOTHING, self.elements(node.args[0])[-1]]
            if isinstance(node.func, ast.Attribute) and name in _PAIRED_MODULES:
                return [NOTHING, self._element(node.func.value)]
        return [self._element(node)]

    def _element(self, node: ast.expr) -> Value:
        value = self.eval(node)
        if isinstance(value, Graph):
            return value.any_item() if value.items else UNKNOWN_MODULE
        return Flowing(through=self.flow.consume(value))

    def _bind_elements(self, target: ast.expr, values: list[Value]) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            for position, item in enumerate(target.elts):
                if isinstance(item, ast.Tuple) and len(target.elts) == 2 and position == 1:
                    self._bind_elements(item, values[1:] if len(values) > 2 else [NOTHING])
                else:
                    self.bind(item, values[position] if len(values) == len(target.elts) else NOTHING)
        elif len(values) == 1:
            self.bind(target, values[0])
        else:
            for value in values:
                self.flow.hand_over(value)
            self.bind(target, NOTHING)

    def _with(self, node: ast.With | ast.AsyncWith) -> bool:
        for item in node.items:
            value = self.eval(item.context_expr)
            self.flow.consume(value)
            if item.optional_vars is not None:
                self.bind(item.optional_vars, NOTHING)
        return self.block(node.body)

    def _try(self, node: ast.Try) -> bool:
        before = dict(self.env)
        body = self.branch([*node.body, *node.orelse], before)
        states: list[Env | None] = [body]
        for handler in node.handlers:
            start = dict(before)
            if body is not None:
                start = {**start, **body}
            states.append(self.branch(handler.body, start))
        ended = self.join_into(states)
        return self.block(node.finalbody) or ended

    def _match(self, node: ast.Match) -> bool:
        self.flow.consume(self.eval(node.subject))
        return self.join_into([*(self.branch(case.body, self.env) for case in node.cases), dict(self.env)])

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        """A nested function sees what is around it; when it runs is not known."""
        function = self.module.function_at.get(node)
        if function is not None and function.owner is None:
            self.flow._run_function(function, self.flow._class, self.env)
        return False

    def _jump(self, node: ast.stmt) -> bool:
        return False

    # Expressions

    def eval(self, node: ast.expr) -> Value:
        evaluate = _EXPRESSIONS.get(node.__class__)
        return evaluate(self, node) if evaluate is not None else self._mixed(node)

    def _mixed(self, node: ast.AST) -> Flowing:
        """Any other expression uses the values of its parts."""
        through: frozenset[Layer] = frozenset()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                through |= self.flow.consume(self.eval(child))
            elif isinstance(child, (ast.comprehension, ast.keyword)):
                through |= self._mixed(child).through
        return Flowing(through=through)

    def _constant(self, node: ast.Constant) -> Value:
        return NOTHING

    def _name(self, node: ast.Name) -> Value:
        return self.env.get(node.id, NOTHING)

    def _attribute(self, node: ast.Attribute) -> Value:
        if self.is_self(node.value):
            if node.attr == "_modules" and self.sequence is None:
                self.flow.hide_all()
            return self.read(f"{self.self_name}.{node.attr}") or NOTHING
        base = self.eval(node.value)
        if isinstance(base, Graph):
            if node.attr == "bias" and not asks_for_bias(self.module, node):
                self.flow.rely_on_bias(base)
            return NOTHING
        if node.attr in _SHAPE_WORDS:
            return NOTHING
        return Flowing(through=self.flow.consume(base))

    def _subscript(self, node: ast.Subscript) -> Value:
        base = self.eval(node.value)
        self.flow.consume(self.eval(node.slice))
        if not isinstance(base, Graph):
            return Flowing(through=self.flow.consume(base))
        if isinstance(node.slice, ast.Slice):
            return self._sliced(base, node.slice)
        index = _integer(node.slice)
        if index is not None and base.exact and -len(base.items) <= index < len(base.items):
            return base.items[index]
        return base.any_item()

    def _sliced(self, base: Graph, node: ast.Slice) -> Graph:
        bounds = [None if part is None else _integer(part) for part in (node.lower, node.upper)]
        known = all(part is None or bound is not None for part, bound in zip((node.lower, node.upper), bounds, strict=True))
        if base.exact and known and node.step is None and base.items:
            return concatenate(base.items[bounds[0] : bounds[1]])
        loose = repeat(base.any_item())
        return Graph(loose.heads, loose.tails | {None}, True, loose.pairs, loose.items, exact=False)

    def _conditional(self, node: ast.IfExp) -> Value:
        self.flow.consume(self.eval(node.test))
        return join(self.eval(node.body), self.eval(node.orelse))

    def _either(self, node: ast.BoolOp) -> Value:
        values = [self.eval(v) for v in node.values]
        if any(isinstance(v, Graph) for v in values):
            return join_graphs([as_graph(v) for v in values])
        return Flowing(through=frozenset().union(*(self.flow.consume(v) for v in values)))

    def _operation(self, node: ast.BinOp) -> Value:
        left, right = self.eval(node.left), self.eval(node.right)
        if isinstance(node.op, ast.Add) and (isinstance(left, Graph) or isinstance(right, Graph)):
            return extend(as_graph(left), as_graph(right))
        if isinstance(node.op, ast.Mult) and isinstance(left, Graph):
            return extend(left, repeat(left.any_item()))
        return Flowing(through=self.flow.consume(left) | self.flow.consume(right))

    def _listed(self, node: ast.List | ast.Tuple) -> Value:
        if not node.elts:
            return NO_MODULES
        values = [(self.eval(e.value) if isinstance(e, ast.Starred) else self.eval(e), isinstance(e, ast.Starred)) for e in node.elts]
        graphs = [v for v, _ in values if isinstance(v, Graph)]
        if not graphs:
            if isinstance(node, ast.Tuple):
                return Flowing(through=frozenset().union(*(self.flow.consume(v) for v, _ in values)), words=tuple(v for v, _ in values))
            return Flowing(through=frozenset().union(*(self.flow.consume(v) for v, _ in values)))
        if isinstance(node, ast.Tuple) and len(values) == 2 and isinstance(values[1][0], Graph) and values[0][0] == NOTHING:
            # ("conv1", nn.Conv2d(…)) in an OrderedDict
            return values[1][0]
        return self._spliced([(as_graph(v), star) for v, star in values])

    @staticmethod
    def _spliced(parts: list[tuple[Graph, bool]]) -> Graph:
        """A list display or argument list of modules, starred lists spread out."""
        whole = NO_MODULES
        for graph, starred in parts:
            whole = extend(whole, graph if starred else concatenate([graph]))
        return whole

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> Value:
        outer = dict(self.env)
        for generator in node.generators:
            self._bind_elements(generator.target, self.elements(generator.iter))
            for test in generator.ifs:
                self.flow.consume(self.eval(test))
        value = self.eval(node.elt)
        self.env = outer
        return repeat(value) if isinstance(value, Graph) else Flowing(through=self.flow.consume(value))

    def _dict(self, node: ast.Dict) -> Value:
        values = [self.eval(v) for v in node.values]
        if values and any(isinstance(v, Graph) for v in values):
            return concatenate([as_graph(v) for v in values])
        if not values:
            return NO_MODULES
        return Flowing(through=frozenset().union(*(self.flow.consume(v) for v in values)))

    def _lambda(self, node: ast.Lambda) -> Value:
        self.flow.hand_over(self.eval(node.body))
        return NOTHING

    def _named(self, node: ast.NamedExpr) -> Value:
        value = self.eval(node.value)
        self.bind(node.target, value)
        return value

    def _starred(self, node: ast.Starred) -> Value:
        return self.eval(node.value)

    # Calls

    def _call(self, node: ast.Call) -> Value:
        func = node.func
        if isinstance(func, ast.Attribute):
            if self.is_self(func.value):
                return self._call_on_self(node, func)
            if _is_super(func.value):
                return self._call_on_super(node, func)
        callee = self.module.value(func)
        name = callee.name
        if callee.kind == "symbol" and name and not self._is_local(func):
            return self._call_symbol(node, name)
        if isinstance(func, (ast.Attribute, ast.Name, ast.Subscript, ast.Call)):
            value = self._callee_value(func)
            if isinstance(value, Graph):
                return self._apply(node, value)
        if isinstance(func, ast.Attribute):
            base = self.eval(func.value)
            if isinstance(base, Graph):
                return self._call_container(node, func, base)
            if func.attr in _SHAPE_WORDS:
                return NOTHING
            through = self.flow.consume(base) | self._hand_over_arguments(node)
            return NOTHING if func.attr in _CLASS_WORDS else Flowing(through=through)
        if callee.kind in ("function", "class", "bound") and name and not self._is_local(func):
            return self._call_project(node, name, callee.kind)
        return Flowing(through=self._hand_over_arguments(node))

    def _is_local(self, func: ast.expr) -> bool:
        """Whether the callee comes from a parameter or an attribute of self: which class it is depends on the caller."""
        base = func
        while isinstance(base, ast.Attribute):
            base = base.value
        if not isinstance(base, ast.Name) or base.id == self.self_name:
            return True
        function = self.flow._function
        while function is not None:
            if base.id in function.scope.bindings:
                return base.id in [p.arg for p in function.parameters]
            function = function.parent
        return False

    def _callee_value(self, func: ast.expr) -> Value | None:
        if isinstance(func, ast.Name):
            return self.env.get(func.id)
        if isinstance(func, (ast.Subscript, ast.Call)):
            return self.eval(func)
        return self.read(path_of(func))

    def _apply(self, node: ast.Call, graph: Graph) -> Value:
        if not node.args or isinstance(node.args[0], ast.Starred):
            return Flowing(through=self._hand_over_arguments(node))
        result = self.flow.apply(graph, self.eval(node.args[0]))
        rest: frozenset[Layer] = frozenset()
        for other in [*node.args[1:], *(k.value for k in node.keywords)]:
            rest |= self.flow.hand_over(self.eval(other))
        self.flow.feed(rest, graph.heads)
        return result

    def _call_on_self(self, node: ast.Call, func: ast.Attribute) -> Value:
        if func.attr in ("add_module", "register_module") and len(node.args) == 2:
            return self._add_module(node)
        value = self.read(f"{self.self_name}.{func.attr}")
        if isinstance(value, Graph):
            return self._apply(node, value)
        method = self.flow.method(func.attr)
        if func.attr in ("children", "named_children") and self.flow.in_forward():
            self.flow.hide_all()
        if self.sequence is not None and func.attr in ("append", "extend", "insert") and method is None:
            graph = as_graph(self.eval(node.args[-1])) if node.args else UNKNOWN_MODULE
            added = graph if func.attr == "extend" else concatenate([graph])
            self.add_to_sequence(added if func.attr != "insert" else UNKNOWN_MODULE)
            return NOTHING
        through = self._hand_over_arguments(node)
        if method is None:
            return Flowing(through=through)
        result = self.flow._result(method, self.flow._class)
        return result if isinstance(result, Graph) else Flowing(through=through | result.through)

    def _add_module(self, node: ast.Call) -> Value:
        value, name = self.eval(node.args[1]), node.args[0]
        if isinstance(name, ast.Constant) and isinstance(name.value, str) and name.value.isidentifier():
            self.set_attribute(name.value, value if isinstance(value, Graph) else UNKNOWN_MODULE)
        elif self.sequence is not None:
            self.add_to_sequence(concatenate([as_graph(value)]))
        else:
            self.flow.hand_over(value)
        return NOTHING

    def _call_on_super(self, node: ast.Call, func: ast.Attribute) -> Value:
        if func.attr == "__init__" and self.sequence is not None:
            self.add_to_sequence(self._sequence_of(node))
            return NOTHING
        return Flowing(through=self._hand_over_arguments(node))

    def _sequence_of(self, node: ast.Call) -> Graph:
        """The arguments of a Sequential: modules, or one list or OrderedDict of named modules."""
        values = [(as_graph(self.eval(a.value if isinstance(a, ast.Starred) else a)), isinstance(a, ast.Starred)) for a in node.args]
        for keyword in node.keywords:
            self.flow.hand_over(self.eval(keyword.value))
        if len(values) == 1 and not values[0][1] and not values[0][0].ordered and values[0][0].items:
            return values[0][0]
        return self._spliced(values)

    def _call_symbol(self, node: ast.Call, name: str) -> Value:
        if name == "torch.nn.Sequential":
            graph = self._sequence_of(node)
            self.flow.commit(graph)
            return Graph(graph.heads, graph.tails, graph.empty, graph.pairs, graph.items, graph.exact, ordered=True)
        if name == "torch.nn.Identity":
            return IDENTITY
        if name in _CONTAINERS or name in _PASSED_ON or name in _REORDERED:
            return self._contained(node, name)
        if name in ("builtins.getattr", "builtins.setattr") and node.args and self.is_self(node.args[0]):
            return self._by_name(node, name)
        if name in _READERS or name.startswith(("torch.nn.init.", "torch.nn.utils.fusion.")):
            return Flowing(through=frozenset().union(*(self.flow.consume(self.eval(a)) for a in node.args)))
        if name.startswith("torch.nn.") and name.count(".") == 2 and name[9:10].isupper():
            self._hand_over_arguments(node)
            return NOTHING if name in ("torch.nn.Parameter", "torch.nn.Buffer") else self.flow.layer(node, name)
        through = self._hand_over_arguments(node)
        return NOTHING if name.rpartition(".")[2] in _CLASS_WORDS else Flowing(through=through)

    def _by_name(self, node: ast.Call, function: str) -> Value:
        """`getattr(self, name)` may mean any layer where the name is not spelled out; `setattr` is an assignment."""
        name = node.args[1] if len(node.args) > 1 else None
        spelled = name.value if isinstance(name, ast.Constant) and isinstance(name.value, str) else None
        if function == "builtins.setattr" and len(node.args) == 3:
            value = self.eval(node.args[2])
            if spelled is not None and spelled.isidentifier():
                self.set_attribute(spelled, value)
            else:
                self.flow.hand_over(value)
        elif spelled is not None:
            return self.read(f"{self.self_name}.{spelled}") or NOTHING
        else:
            self.flow.hide_all()
        return NOTHING

    def _contained(self, node: ast.Call, name: str) -> Value:
        """Lists, dicts and wrappers of modules."""
        if not node.args:
            graphs = [as_graph(self.eval(k.value)) for k in node.keywords]
            return concatenate(graphs) if graphs else NO_MODULES
        values = [self.eval(a) for a in node.args]
        value = values[0]
        for keyword in node.keywords:
            self.flow.consume(self.eval(keyword.value))
        if not isinstance(value, Graph):
            return Flowing(through=frozenset().union(*(self.flow.consume(v) for v in values)))
        if name in _REORDERED:
            loose = repeat(value.any_item())
            return Graph(loose.heads, loose.tails | {None}, True, loose.pairs, loose.items, exact=False)
        return value

    def _call_project(self, node: ast.Call, name: str, kind: str) -> Value:
        maker = self.flow.maker(name)
        if maker is not None and (maker.parameter or maker.cancels_mean or kind == "class" or self.module.function_by_id(name) is None):
            self._hand_over_arguments(node)
            return self.flow.made_layer(node, maker)
        function = self.module.function_by_id(name) if kind != "class" else None
        if function is not None:
            through = self._hand_over_arguments(node, function)
            result = self.flow._result(function, None)
            return result if isinstance(result, Graph) else Flowing(through=through | result.through)
        through = self._hand_over_arguments(node)
        if kind == "class" and self.module.class_family(name) == "module":
            return self.flow.layer(node, "")
        return Flowing(through=through)

    def _call_container(self, node: ast.Call, func: ast.Attribute, base: Graph) -> Value:
        """A method of a module or of a list of modules."""
        path, method = path_of(func.value), func.attr
        if method in _OUTPUT_HOOKS:
            self.flow.meet(base.layers(), None)
        if method in _SAME_MODULES:
            self._hand_over_arguments(node)
            return base
        if method in _PAIRED_MODULES:
            return base
        if method == "forward":
            return self._apply(node, base)
        if method in ("append", "add_module", "extend", "update", "insert") and node.args:
            value = as_graph(self.eval(node.args[-1]))
            if method == "insert":
                value = UNKNOWN_MODULE
            added = extend(base, value if method in ("extend", "update") else concatenate([value]))
            whole = Graph(added.heads, added.tails, added.empty, added.pairs, added.items, added.exact, base.ordered)
            if base.ordered:
                self.flow.commit(whole)
            if path is not None:
                self.store(path, whole)
            else:
                self.flow.hand_over(value)
            return whole
        return Flowing(through=self._hand_over_arguments(node))

    def _hand_over_arguments(self, node: ast.Call, function: Function | None = None) -> frozenset[Layer]:
        """Give every argument to a callee that may do anything with it; the layers whose output goes there."""
        through: frozenset[Layer] = frozenset()
        modules: list[Graph] = []
        for position, item in enumerate([*node.args, *(k.value for k in node.keywords)]):
            value = self.eval(item.value if isinstance(item, ast.Starred) else item)
            if isinstance(value, Graph):
                modules.append(value)
                if function is not None and position < len(node.args) and _only_reads(function, position):
                    if _reads_bias(self.module, function, position):
                        self.flow.rely_on_bias(value)
                    continue
            through |= self.flow.hand_over(value)
        for graph in modules:
            self.flow.feed(through, graph.heads)
        return through


def _is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def _integer(node: ast.expr) -> int | None:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))):
            return -value
    return None


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
        isinstance(n, ast.Subscript) and isinstance(n.value, ast.Name) and n.value.id == name and isinstance(n.ctx, ast.Store)
        for n in ast.walk(function.node)
    )


def _uses(function: Function, position: int) -> tuple[str, list[ast.Name]]:
    parameters = [*function.node.args.posonlyargs, *function.node.args.args]
    if position >= len(parameters):
        return "", []
    name = parameters[position].arg
    return name, [n for n in ast.walk(function.node) if isinstance(n, ast.Name) and n.id == name]


def _only_reads(function: Function, position: int) -> bool:
    """Whether a function does no more with a parameter than to look at its attributes: an initializer of one layer."""
    name, uses = _uses(function, position)
    if not name:
        return False
    looked_at = {id(n.value) for n in ast.walk(function.node) if isinstance(n, ast.Attribute)}
    asked = {
        id(a)
        for n in ast.walk(function.node)
        if isinstance(n, ast.Call) and last_name(n.func) in ("isinstance", "hasattr", "getattr", "type")
        for a in n.args
    }
    called = function.scope.usage.get(name, set()) & {"forward", "()", *_OUTPUT_HOOKS}
    return not called and all(id(use) in looked_at or id(use) in asked for use in uses)


def _reads_bias(module: Module, function: Function, position: int) -> bool:
    name, _ = _uses(function, position)
    return any(
        isinstance(n, ast.Attribute)
        and n.attr == "bias"
        and isinstance(n.value, ast.Name)
        and n.value.id == name
        and not asks_for_bias(module, n)
        for n in ast.walk(function.node)
    )


def _runs_itself(forward: Function) -> bool:
    """Whether the forward of a Sequential subclass still runs its modules in order."""
    for node in ast.walk(forward.node):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == "forward" and _is_super(node.func.value):
                return True
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Name) and node.iter.id == forward.self_name:
            match node.body:
                case [ast.Assign(targets=[ast.Name(id=out)], value=ast.Call(args=[ast.Name(id=taken)]))] if out == taken:
                    return True
    return False


_STATEMENTS: dict[type[ast.stmt], Callable[..., bool]] = {
    ast.Expr: _Run._expression,
    ast.Assign: _Run._assign,
    ast.AnnAssign: _Run._annotated,
    ast.AugAssign: _Run._augmented,
    ast.Return: _Run._return,
    ast.Raise: _Run._raise,
    ast.If: _Run._if,
    ast.While: _Run._while,
    ast.For: _Run._for,
    ast.AsyncFor: _Run._for,
    ast.With: _Run._with,
    ast.AsyncWith: _Run._with,
    ast.Try: _Run._try,
    ast.Match: _Run._match,
    ast.FunctionDef: _Run._function,
    ast.AsyncFunctionDef: _Run._function,
    ast.ClassDef: _Run._jump,
    ast.Pass: _Run._jump,
    ast.Delete: _Run._jump,
    ast.Import: _Run._jump,
    ast.ImportFrom: _Run._jump,
    ast.Global: _Run._jump,
    ast.Nonlocal: _Run._jump,
}
if hasattr(ast, "TryStar"):
    _STATEMENTS[ast.TryStar] = _Run._try

_EXPRESSIONS: dict[type[ast.expr], Callable[..., Value]] = {
    ast.Constant: _Run._constant,
    ast.Name: _Run._name,
    ast.Attribute: _Run._attribute,
    ast.Subscript: _Run._subscript,
    ast.IfExp: _Run._conditional,
    ast.BoolOp: _Run._either,
    ast.BinOp: _Run._operation,
    ast.List: _Run._listed,
    ast.Tuple: _Run._listed,
    ast.ListComp: _Run._comprehension,
    ast.GeneratorExp: _Run._comprehension,
    ast.SetComp: _Run._comprehension,
    ast.Dict: _Run._dict,
    ast.Lambda: _Run._lambda,
    ast.NamedExpr: _Run._named,
    ast.Starred: _Run._starred,
    ast.Call: _Run._call,
}
