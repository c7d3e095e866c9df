"""Expressions, as layer graphs see them: displays, operators, subscripts and comprehensions of modules and tensors."""

from __future__ import annotations

import ast

from torchlint.semantics.layers_graph import (
    NO_MODULES,
    NOTHING,
    UNKNOWN_MODULE,
    Flowing,
    Graph,
    Layer,
    Value,
    concatenate,
    extend,
    join,
    join_graphs,
    repeat,
)
from torchlint.semantics.layers_guards import asks_for_bias
from torchlint.semantics.layers_state import State
from torchlint.semantics.names import last_name

# Attributes that say something about a tensor without using its values.
SHAPE_WORDS = frozenset(
    {"shape", "size", "dim", "ndim", "dtype", "device", "numel", "is_cuda", "requires_grad", "type"}
)
PAIRED_MODULES = frozenset({"items", "named_children", "named_modules"})


class Expressions(State):
    """Expressions other than calls."""

    def mixed(self, node: ast.AST) -> Flowing:
        """Any other expression uses the values of its parts."""
        through: frozenset[Layer] = frozenset()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                through |= self.flow.consume(self.eval(child))
            elif isinstance(child, (ast.comprehension, ast.keyword)):
                through |= self.mixed(child).through
        return Flowing(through=through)

    def on_constant(self, node: ast.Constant) -> Value:
        return NOTHING

    def on_name(self, node: ast.Name) -> Value:
        return self.env.get(node.id, NOTHING)

    def on_attribute(self, node: ast.Attribute) -> Value:
        if self.is_self(node.value):
            if node.attr == "_modules" and self.sequence is None:
                self.flow.hide_all()
            return self.read(f"{self.self_name}.{node.attr}") or NOTHING
        base = self.eval(node.value)
        if isinstance(base, Graph):
            if node.attr == "bias" and not asks_for_bias(self.module, node):
                self.flow.rely_on_bias(base)
            return NOTHING
        if node.attr in SHAPE_WORDS:
            return NOTHING
        return Flowing(through=self.flow.consume(base))

    def on_subscript(self, node: ast.Subscript) -> Value:
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
        known = all(
            part is None or bound is not None for part, bound in zip((node.lower, node.upper), bounds, strict=True)
        )
        if base.exact and known and node.step is None and base.items:
            return concatenate(base.items[bounds[0] : bounds[1]])
        loose = repeat(base.any_item())
        return Graph(loose.heads, loose.tails | {None}, True, loose.pairs, loose.items, exact=False)

    def on_conditional(self, node: ast.IfExp) -> Value:
        self.flow.consume(self.eval(node.test))
        return join(self.eval(node.body), self.eval(node.orelse))

    def on_either(self, node: ast.BoolOp) -> Value:
        values = [self.eval(v) for v in node.values]
        if any(isinstance(v, Graph) for v in values):
            return join_graphs([self.as_module(v) for v in values])
        return Flowing(through=frozenset().union(*(self.flow.consume(v) for v in values)))

    def on_operation(self, node: ast.BinOp) -> Value:
        left, right = self.eval(node.left), self.eval(node.right)
        if isinstance(node.op, ast.Add) and (isinstance(left, Graph) or isinstance(right, Graph)):
            return extend(self.as_module(left), self.as_module(right))
        if isinstance(node.op, ast.Mult) and isinstance(left, Graph):
            return extend(left, repeat(left.any_item()))
        return Flowing(through=self.flow.consume(left) | self.flow.consume(right))

    def on_listed(self, node: ast.List | ast.Tuple) -> Value:
        if not node.elts:
            return NO_MODULES
        values = [
            (self.eval(e.value) if isinstance(e, ast.Starred) else self.eval(e), isinstance(e, ast.Starred))
            for e in node.elts
        ]
        graphs = [v for v, _ in values if isinstance(v, Graph)]
        if not graphs:
            if isinstance(node, ast.Tuple):
                return Flowing(
                    through=frozenset().union(*(self.flow.consume(v) for v, _ in values)),
                    words=tuple(v for v, _ in values),
                )
            return Flowing(through=frozenset().union(*(self.flow.consume(v) for v, _ in values)))
        if (
            isinstance(node, ast.Tuple)
            and len(values) == 2
            and isinstance(values[1][0], Graph)
            and values[0][0] == NOTHING
        ):
            # ("conv1", nn.Conv2d(…)) in an OrderedDict
            return values[1][0]
        return self.spliced([(self.as_module(v), star) for v, star in values])

    @staticmethod
    def spliced(parts: list[tuple[Graph, bool]]) -> Graph:
        """A list display or argument list of modules, starred lists spread out."""
        whole = NO_MODULES
        for graph, starred in parts:
            whole = extend(whole, graph if starred else concatenate([graph]))
        return whole

    def on_comprehension(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> Value:
        outer = dict(self.env)
        for generator in node.generators:
            self.bind_elements(generator.target, self.elements(generator.iter))
            for test in generator.ifs:
                self.flow.consume(self.eval(test))
        value = self.eval(node.elt)
        self.env = outer
        return repeat(value) if isinstance(value, Graph) else Flowing(through=self.flow.consume(value))

    def elements(self, node: ast.expr) -> list[Value]:
        """What iterating gives, one value for each target that `zip` or `enumerate` fills."""
        if isinstance(node, ast.Call):
            name = last_name(node.func)
            if isinstance(node.func, ast.Name) and name == "zip":
                return [self.elements(a)[-1] for a in node.args]
            if isinstance(node.func, ast.Name) and name == "enumerate" and node.args:
                return [NOTHING, self.elements(node.args[0])[-1]]
            if isinstance(node.func, ast.Attribute) and name in PAIRED_MODULES:
                return [NOTHING, self._element(node.func.value)]
        return [self._element(node)]

    def _element(self, node: ast.expr) -> Value:
        value = self.eval(node)
        if isinstance(value, Graph):
            return value.any_item() if value.items else UNKNOWN_MODULE
        return Flowing(through=self.flow.consume(value))

    def bind_elements(self, target: ast.expr, values: list[Value]) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            for position, item in enumerate(target.elts):
                if isinstance(item, ast.Tuple) and len(target.elts) == 2 and position == 1:
                    self.bind_elements(item, values[1:] if len(values) > 2 else [NOTHING])
                else:
                    self.bind(item, values[position] if len(values) == len(target.elts) else NOTHING)
        elif len(values) == 1:
            self.bind(target, values[0])
        else:
            for value in values:
                self.flow.hand_over(value)
            self.bind(target, NOTHING)

    def on_dict(self, node: ast.Dict) -> Value:
        values = [self.eval(v) for v in node.values]
        if values and any(isinstance(v, Graph) for v in values):
            return concatenate([self.as_module(v) for v in values])
        if not values:
            return NO_MODULES
        return Flowing(through=frozenset().union(*(self.flow.consume(v) for v in values)))

    def on_lambda(self, node: ast.Lambda) -> Value:
        self.flow.hand_over(self.eval(node.body))
        return NOTHING

    def on_named(self, node: ast.NamedExpr) -> Value:
        value = self.eval(node.value)
        self.bind(node.target, value)
        return value

    def on_starred(self, node: ast.Starred) -> Value:
        return self.eval(node.value)


def _integer(node: ast.expr) -> int | None:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))):
            return -value
    return None
