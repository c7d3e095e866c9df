"""Statements, as layer graphs see them: branches are joined, loop bodies run twice."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchlint.semantics.layers_calls import Calls
from torchlint.semantics.layers_graph import NOTHING, Flowing, Graph, Value, extend, join
from torchlint.semantics.names import path_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchlint.semantics.layers_state import Env

# Nested expressions and blocks; far below what the interpreter's stack holds.
_DEEPEST = 100


class Run(Calls):
    """One abstract run through one function's body."""

    def eval(self, node: ast.expr) -> Value:
        evaluate = _EXPRESSIONS.get(node.__class__)
        if self.flow.depth > _DEEPEST:
            return self._give_up(node)
        self.flow.depth += 1
        value = evaluate(self, node) if evaluate is not None else self.mixed(node)
        self.flow.depth -= 1
        return value

    def block(self, statements: list[ast.stmt]) -> bool:
        """Run the statements; True where control does not reach their end."""
        if self.flow.depth > _DEEPEST:
            for statement in statements:
                self._give_up(statement)
            return False
        self.flow.depth += 1
        ended = any(self._statement(statement) for statement in statements)
        self.flow.depth -= 1
        return ended

    def _statement(self, statement: ast.stmt) -> bool:
        run = _STATEMENTS.get(statement.__class__)
        if run is not None:
            return run(self, statement)
        for child in ast.iter_child_nodes(statement):
            if isinstance(child, ast.expr):
                self.flow.consume(self.eval(child))
        return False

    def _give_up(self, node: ast.AST) -> Value:
        """Code nested too deep to follow may do anything with the values that it names."""
        self.flow.hide_all()
        for child in ast.walk(node):
            if isinstance(child, ast.Name):
                self.flow.hand_over(self.env.get(child.id, NOTHING))
        return NOTHING

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
        if (
            isinstance(target, (ast.Tuple, ast.List))
            and isinstance(node.value, (ast.Tuple, ast.List))
            and len(target.elts) == len(node.value.elts)
        ):
            for name, value in zip(target.elts, [self.eval(v) for v in node.value.elts], strict=True):
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
            self.bind(node.target, extend(before, self.as_module(value)))
            return False
        through = self.flow.consume(value) | (self.flow.consume(before) if before is not None else frozenset())
        self.bind(node.target, Flowing(through=through))
        return False

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
            self.bind_elements(node.target, values)

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
            case ast.Assign(
                targets=[ast.Name(id=out)],
                value=ast.Call(func=ast.Name(id=callee), args=[ast.Name(id=taken)], keywords=[]),
            ):
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
            self.flow.run_function(function, self.flow.current_class, self.env)
        return False

    def _jump(self, node: ast.stmt) -> bool:
        return False


_STATEMENTS: dict[type[ast.stmt], Callable[..., bool]] = {
    ast.Expr: Run._expression,
    ast.Assign: Run._assign,
    ast.AnnAssign: Run._annotated,
    ast.AugAssign: Run._augmented,
    ast.Return: Run._return,
    ast.Raise: Run._raise,
    ast.If: Run._if,
    ast.While: Run._while,
    ast.For: Run._for,
    ast.AsyncFor: Run._for,
    ast.With: Run._with,
    ast.AsyncWith: Run._with,
    ast.Try: Run._try,
    ast.Match: Run._match,
    ast.FunctionDef: Run._function,
    ast.AsyncFunctionDef: Run._function,
    ast.ClassDef: Run._jump,
    ast.Pass: Run._jump,
    ast.Delete: Run._jump,
    ast.Import: Run._jump,
    ast.ImportFrom: Run._jump,
    ast.Global: Run._jump,
    ast.Nonlocal: Run._jump,
}
if hasattr(ast, "TryStar"):
    _STATEMENTS[ast.TryStar] = Run._try

_EXPRESSIONS: dict[type[ast.expr], Callable[..., Value]] = {
    ast.Constant: Run.on_constant,
    ast.Name: Run.on_name,
    ast.Attribute: Run.on_attribute,
    ast.Subscript: Run.on_subscript,
    ast.IfExp: Run.on_conditional,
    ast.BoolOp: Run.on_either,
    ast.BinOp: Run.on_operation,
    ast.List: Run.on_listed,
    ast.Tuple: Run.on_listed,
    ast.ListComp: Run.on_comprehension,
    ast.GeneratorExp: Run.on_comprehension,
    ast.SetComp: Run.on_comprehension,
    ast.Dict: Run.on_dict,
    ast.Lambda: Run.on_lambda,
    ast.NamedExpr: Run.on_named,
    ast.Starred: Run.on_starred,
    ast.Call: Run.on_call,
}
