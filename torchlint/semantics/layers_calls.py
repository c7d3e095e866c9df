"""Calls, as layer graphs see them: layers and containers built, helpers followed, modules applied to tensors."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchlint.semantics.layers_facts import is_super
from torchlint.semantics.layers_graph import (
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
    repeat,
)
from torchlint.semantics.layers_guards import asks_for_bias
from torchlint.semantics.layers_values import PAIRED_MODULES, SHAPE_WORDS, Expressions
from torchlint.semantics.names import Function, last_name, path_of

if TYPE_CHECKING:
    from torchlint.semantics.module import Module

# What is done with scores for classes: what comes out is no feature of the layer any more.
_CLASS_WORDS = frozenset(
    [
        "softmax",
        "log_softmax",
        "argmax",
        "cross_entropy",
        "nll_loss",
        "gumbel_softmax",
        "one_hot",
        "multinomial",
        "topk",
        "Categorical",
    ]
)
# Methods of a module or container that give back the same modules.
_SAME_MODULES = frozenset(
    [
        "to",
        "cuda",
        "cpu",
        "half",
        "float",
        "double",
        "bfloat16",
        "eval",
        "train",
        "requires_grad_",
        "apply",
        "share_memory",
        "children",
        "modules",
        "values",
        "copy",
    ]
)
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
_REORDERED = frozenset(
    {"builtins.reversed", "builtins.sorted", "builtins.filter", "builtins.zip", "builtins.enumerate"}
)
# Functions that read their module arguments and no output of theirs.
_READERS = frozenset(
    {"builtins.isinstance", "builtins.len", "builtins.hasattr", "builtins.print", "builtins.type", "builtins.id"}
)
_CONTAINERS = frozenset({"torch.nn.ModuleList", "torch.nn.ModuleDict"})


class Calls(Expressions):
    """Calls by what is called: a torch name, project code, a method of self, a container or a module."""

    def on_call(self, node: ast.Call) -> Value:
        func = node.func
        if isinstance(func, ast.Attribute):
            if self.is_self(func.value):
                return self._call_on_self(node, func)
            if is_super(func.value):
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
            if func.attr in SHAPE_WORDS:
                return NOTHING
            through = self.flow.consume(base) | self._hand_over_arguments(node)
            return NOTHING if func.attr in _CLASS_WORDS else Flowing(through=through)
        if callee.kind in ("function", "class", "bound") and name and not self._is_local(func):
            return self._call_project(node, name, callee.kind)
        return Flowing(through=self._hand_over_arguments(node))

    def _is_local(self, func: ast.expr) -> bool:
        """Whether the callee comes from a parameter or an attribute of self: the caller decides what it is."""
        base = func
        while isinstance(base, ast.Attribute):
            base = base.value
        if not isinstance(base, ast.Name) or base.id == self.self_name:
            return True
        function = self.flow.current_function
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
        result = self.flow.result(method, self.flow.current_class)
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
        values = [
            (as_graph(self.eval(a.value if isinstance(a, ast.Starred) else a)), isinstance(a, ast.Starred))
            for a in node.args
        ]
        for keyword in node.keywords:
            self.flow.hand_over(self.eval(keyword.value))
        if len(values) == 1 and not values[0][1] and not values[0][0].ordered and values[0][0].items:
            return values[0][0]
        return self.spliced(values)

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
        if name == "builtins.getattr" and len(node.args) > 1 and path_of(node.args[0]) is not None:
            return self._attribute_of(self.eval(node.args[0]), node)
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

    def _attribute_of(self, base: Value, node: ast.Call) -> Value:
        """`getattr(conv, "bias", None)` asks for a bias; without a default it relies on one."""
        for argument in node.args[1:]:
            self.flow.hand_over(self.eval(argument))
        if not isinstance(base, Graph):
            return Flowing(through=self.flow.hand_over(base))
        if not isinstance(node.args[1], ast.Constant):
            self.flow.hand_over(base)
        elif node.args[1].value == "bias" and len(node.args) == 2:
            self.flow.rely_on_bias(base)
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
        if maker is not None and (
            maker.parameter or maker.cancels_mean or kind == "class" or self.module.function_by_id(name) is None
        ):
            self._hand_over_arguments(node)
            return self.flow.made_layer(node, maker)
        function = self.module.function_by_id(name) if kind != "class" else None
        if function is not None:
            through = self._hand_over_arguments(node, function)
            result = self.flow.result(function, None)
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
        if method in PAIRED_MODULES:
            return base
        if method == "forward":
            return self._apply(node, base)
        if method in ("append", "add_module", "extend", "update", "insert") and node.args:
            value = self.eval(node.args[-1])
            if isinstance(value, Flowing) and (value.raw or value.through):
                # a list of tensors after all: taps, skip connections
                if path is not None:
                    self.store(path, Flowing(through=self.flow.consume(value)))
                return NOTHING
            value = as_graph(value)
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
