"""What one run through a function knows at each point: the values of names and of the attributes of self."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchlint.semantics.layers_graph import (
    NO_MODULES,
    Flowing,
    Graph,
    Value,
    as_graph,
    concatenate,
    extend,
)
from torchlint.semantics.names import path_of

if TYPE_CHECKING:
    from torchlint.semantics.layers_flow import LayerFlow

Env = dict[str, Value]

# Where the state keeps what a subclass of Sequential holds; no name is spelled like this.
SEQUENCE = "<sequence>"


class State:
    """The values of one run, by name or dotted path. Reading and binding, in one place."""

    def __init__(self, flow: LayerFlow, self_name: str, env: Env) -> None:
        self.flow = flow
        self.module = flow.module
        self.self_name = self_name
        self.env = env
        self.results: list[Value] = []
        self.exits: list[Env] = []
        self.cleared: set[str] = set()
        cls = flow.current_class
        if cls is not None and flow.is_sequential(cls):
            self.env[SEQUENCE] = NO_MODULES

    @property
    def sequence(self) -> Graph | None:
        """In a subclass of Sequential, the modules added to it so far."""
        found = self.env.get(SEQUENCE)
        return found if isinstance(found, Graph) else None

    def add_to_sequence(self, modules: Graph) -> None:
        if self.sequence is not None:
            self.env[SEQUENCE] = extend(self.sequence, modules)

    def eval(self, node: ast.expr) -> Value:
        """The value of an expression, noting what its parts meet."""
        raise NotImplementedError

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
        if before is None:
            self.eval(target.value)
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
            return self.flow.attribute(path[len(self.self_name) + 1 :])
        return found

    def as_module(self, value: Value) -> Graph:
        """A value among modules; a tensor among them is used by somebody unknown."""
        self.flow.consume(value)
        return as_graph(value)

    def is_self(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and bool(self.self_name) and node.id == self.self_name
