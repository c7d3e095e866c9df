"""Where code runs: step loops, hot code, guards, grad mode.

A *place* says, for each loop around a node (innermost first) and at last for the function itself, whether a guard
stands between the two. It is a fact of one file; which loops are step loops and which functions are hot is decided for
the whole project by the link step, and read back here.
"""

from __future__ import annotations

import ast
import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

from torchlint import torch_api
from torchlint.semantics.facts import OUTSIDE, Place
from torchlint.semantics.names import COMPREHENSIONS, LOOPS, Comprehension, Function, LoopNode, last_name, path_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchlint.semantics.module import Module

AnyLoop = LoopNode | Comprehension
_FLAG = re.compile(
    r"(?:^|_)(?:debug|debugging|verbose|verbosity|dry_?run|sanity_check)(?:$|_)|^is_?debug|^debug|isEnabledFor|DEBUG|VERBOSE"
)
_INTERVAL = re.compile(r"interval|every|freq|period|(?:^|_)cadence")
_WARM = re.compile(r"warm")
_WORDS = {_INTERVAL: ("interval", "every", "freq", "period", "cadence"), _WARM: ("warm",)}
_FUNCTIONS = frozenset({ast.FunctionDef, ast.AsyncFunctionDef})
# The nodes that can put a loop or a guard around a child.
_STATEMENTS = frozenset(ast.stmt.__subclasses__())
_BEARING = _STATEMENTS | {ast.ExceptHandler, ast.IfExp, ast.BoolOp, *COMPREHENSIONS}
_ITERATING = frozenset({*LOOPS, *COMPREHENSIONS})
# Those that put guards around one.
_GUARDING = frozenset({ast.If, ast.IfExp, ast.BoolOp, ast.ExceptHandler})
_WHOLE: Place = ((OUTSIDE, False),)  # what runs once a call
_BLOCKS = ("body", "orelse", "finalbody")
_EXITS = frozenset({"exit", "_exit", "abort"})


class Regions:
    """The places of one file's nodes, and their grad mode."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.numbers: dict[ast.AST, int] = {loop: n for n, loop in enumerate(module.index.loops)}
        self._places: dict[ast.AST, Place] = {}
        self._spelled: dict[re.Pattern[str], bool] = {}
        self._counters: set[str] | None = None
        self._exits: dict[ast.AST, list[tuple[list[ast.stmt], int, ast.If]]] = {}  # by what holds the block
        self._periodic: dict[ast.expr, tuple[bool, bool]] = {}
        self._modes: dict[ast.AST, bool | None] = {}  # the grad mode that contexts set, by what holds a statement

    # Loops

    def loops_around(self, node: ast.AST) -> Iterator[AnyLoop]:
        """The loops of the same function on whose every iteration `node` may run, innermost first."""
        for parent, child in self.ancestors(node):
            if self._iterates(parent, child):
                yield parent  # type: ignore[misc]

    def ancestors(self, node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
        """(parent, child) pairs from `node` up to the function or module body that holds it."""
        parents = self.module.index.parents
        child = node
        while True:
            parent = parents.get(child)
            if parent is None:
                return
            if parent.__class__ in _FUNCTIONS and child.__class__ in _STATEMENTS:
                return
            yield parent, child
            child = parent

    @staticmethod
    def _iterates(parent: ast.AST, child: ast.AST) -> bool:
        """Whether `parent` is a loop that runs its child once an iteration (a loop's iterable runs once, its else
        too).
        """
        if isinstance(parent, (ast.For, ast.AsyncFor)):
            return child is not parent.iter and not any(child is s for s in parent.orelse)
        if isinstance(parent, ast.While):
            return not any(child is s for s in parent.orelse)
        return isinstance(parent, COMPREHENSIONS) and child is not parent.generators[0]

    # Places

    def place(self, node: ast.AST) -> Place:
        """(loop number, guarded) for each loop around `node`, then (OUTSIDE, guarded) for the function body."""
        found = self._places.get(node)
        if found is None:
            found = self._places[node] = self._place(node)
        return found

    def _place(self, node: ast.AST) -> Place:
        """The place of what holds `node`, and what stands between the two."""
        parents = self.module.index.parents
        child, parent = node, parents.get(node)
        while parent is not None and parent.__class__ not in _BEARING:
            child, parent = parent, parents.get(parent)
        if parent is None:
            return _WHOLE
        statement = child.__class__ in _STATEMENTS
        if statement and parent.__class__ in _FUNCTIONS:
            return self._inside(_WHOLE, parent, child)
        place = self.place(parent)
        if parent.__class__ in _ITERATING and self._iterates(parent, child):
            place = ((self.numbers[parent], False), *place)
        return self._inside(place, parent, child) if statement or parent.__class__ in _GUARDING else place

    def _inside(self, place: Place, parent: ast.AST, child: ast.AST) -> Place:
        """A place with the guards that `parent` puts in front of `child`."""
        exits = self._early_exits(child, parent)
        if not exits and parent.__class__ not in _GUARDING:
            return place
        for test in [*self._guards(parent, child), *exits]:
            # a counter guards no loop inside the one that counts it: there it is constant
            loop = self._counting_loop(test, child) if test is not None else None
            numbers = [number for number, _ in place]
            first = numbers.index(self.numbers[loop]) if loop is not None else 0
            place = tuple((number, guarded or n >= first) for n, (number, guarded) in enumerate(place))
        leaves = self._leaves(parent, child)
        if leaves == "function":
            place = tuple((number, guarded or number != OUTSIDE) for number, guarded in place)
        elif leaves == "loop" and place[0][0] != OUTSIDE:
            place = ((place[0][0], True), *place[1:])
        return place

    def _counting_loop(self, test: ast.expr, place: ast.AST) -> AnyLoop | None:
        """The innermost loop around `place` whose target a guard's test reads; None where it reads none."""
        names = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
        for loop in self.loops_around(place):
            if isinstance(loop, (ast.For, ast.AsyncFor)):
                targets: list[ast.expr] = [loop.target]
            elif isinstance(loop, ast.While):
                return None  # whatever a while loop counts, it counts in its body
            else:
                targets = [generator.target for generator in loop.generators]
            if any(isinstance(n, ast.Name) and n.id in names for t in targets for n in ast.walk(t)):
                return loop
        return None

    def _guards(self, parent: ast.AST, child: ast.AST) -> list[ast.expr | None]:
        """The tests that make `child` run only now and then inside `parent` (None for an `except` handler)."""
        if isinstance(parent, ast.ExceptHandler):
            return [None] if isinstance(child, ast.stmt) else []
        if isinstance(parent, ast.If):
            if child is parent.test:
                return []
            in_body = any(child is s for s in parent.body)
            body, orelse = self.periodic(parent.test)
            if not (body if in_body else orelse) or self._trains(parent.body if in_body else parent.orelse):
                return []
            return [parent.test]
        if isinstance(parent, ast.IfExp) and child is not parent.test:
            body, orelse = self.periodic(parent.test)
            return [parent.test] if (body if child is parent.body else orelse) else []
        if isinstance(parent, ast.BoolOp) and isinstance(parent.op, ast.And):
            position = next(n for n, operand in enumerate(parent.values) if operand is child)
            return [operand for operand in parent.values[:position] if self.periodic(operand)[0]]
        return []

    def _trains(self, block: list[ast.stmt]) -> bool:
        """Whether a block does a backward or an optimizer step: then no test in front of it makes it cold."""
        first, last = block[0], block[-1]
        return self.module.trains_between(first.lineno, last.end_lineno or last.lineno)

    def _leaves(self, parent: ast.AST, child: ast.AST) -> str:
        """What the branch that holds `child` ends by leaving: "function", "loop" or nothing."""
        if not isinstance(parent, (ast.If, ast.ExceptHandler)) or (isinstance(parent, ast.If) and child is parent.test):
            return ""
        block = parent.orelse if isinstance(parent, ast.If) and any(child is s for s in parent.orelse) else parent.body
        last = block[-1]
        if isinstance(last, (ast.Raise, ast.Return)):
            return "function"
        if isinstance(last, ast.Break):
            return "loop"
        if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call) and last_name(last.value.func) in _EXITS:
            return "function"
        return ""

    def _early_exits(self, child: ast.AST, parent: ast.AST) -> list[ast.expr]:
        """The tests of earlier `if step % n: continue` in the same block, which let `child` run only now and then."""
        if child.__class__ not in _STATEMENTS:
            return []
        exits = self._exits.get(parent)
        if exits is None:
            blocks = (getattr(parent, name, None) for name in _BLOCKS)
            exits = self._exits[parent] = [exit for block in blocks if block for exit in self._exits_of(block)]
        return [
            exit.test
            for block, position, exit in exits
            if child in block[position + 1 :] and not self._trains(block[block.index(child) :])
        ]

    def _exits_of(self, block: Any) -> Iterator[tuple[list[ast.stmt], int, ast.If]]:
        """The tests of a block that leave it now and then, with their positions."""
        for position, statement in enumerate(block if block.__class__ is list else ()):
            if (
                statement.__class__ is ast.If
                and not statement.orelse
                and isinstance(statement.body[-1], (ast.Continue, ast.Return))
                and self.periodic(statement.test)[1]  # what follows runs where the test is false
            ):
                yield block, position, statement

    # Guards

    def periodic(self, test: ast.expr, depth: int = 0) -> tuple[bool, bool]:
        """Whether a test makes its body, and its else branch, run only now and then."""
        if depth:
            return self._is_periodic(test, depth)
        found = self._periodic.get(test)
        if found is None:
            found = self._periodic[test] = self._is_periodic(test, 0)
        return found

    def _is_periodic(self, test: ast.expr, depth: int) -> tuple[bool, bool]:
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            body, orelse = self.periodic(test.operand, depth)
            return orelse, body
        if isinstance(test, ast.BoolOp):
            counted = self._counters_of(test)
            parts = [self.periodic(value, depth) for value in test.values if not _tests_equality(value, counted)]
            if isinstance(test.op, ast.And):
                return any(b for b, _ in parts), all(e for _, e in parts)
            return all(b for b, _ in parts), any(e for _, e in parts)
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            return self._compare_guard(test, depth)
        if isinstance(test, ast.BinOp) and isinstance(test.op, ast.Mod):
            return False, True
        if isinstance(test, ast.NamedExpr):
            return self.periodic(test.value, depth)
        name = last_name(test.func if isinstance(test, ast.Call) else test)
        if name and _FLAG.search(name):
            return True, False
        if isinstance(test, ast.Name) and depth < 3:
            definition = self._definition(test)
            if definition is not None:
                return self.periodic(definition, depth + 1)
        if isinstance(test, ast.Call) and depth < 3:
            return self._called_guard(test, depth)
        return False, False

    @staticmethod
    def _counters_of(test: ast.BoolOp) -> set[str]:
        """What `step % n` in one operand counts: `or step == last` beside it is no more frequent."""
        if not isinstance(test.op, ast.Or):
            return set()
        return {
            path
            for node in ast.walk(test)
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod)
            for part in ast.walk(node.left)
            if isinstance(part, (ast.Name, ast.Attribute)) and (path := path_of(part)) is not None
        }

    def _compare_guard(self, test: ast.Compare, depth: int) -> tuple[bool, bool]:
        left, right, op = test.left, test.comparators[0], test.ops[0]
        if self._holds_modulo and (_has_modulo(left) or _has_modulo(right)):
            if isinstance(op, ast.NotEq):
                return False, True
            return True, False
        if isinstance(op, (ast.Eq, ast.In)) and (
            self._is_counter(left) or (isinstance(op, ast.Eq) and self._is_counter(right))
        ):
            return True, False
        if isinstance(op, (ast.NotEq, ast.NotIn)) and (
            self._is_counter(left) or (isinstance(op, ast.NotEq) and self._is_counter(right))
        ):
            return False, True
        for side in (left, right):
            name = last_name(side)
            if name and _FLAG.search(name):
                return True, False
        ascending = isinstance(op, (ast.Lt, ast.LtE))
        if isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)):
            if self._is_counter(left) and isinstance(right, ast.Constant):
                return (True, False) if ascending else (False, False)
            if self._mentions(left, _WARM, depth) or self._mentions(right, _WARM, depth):
                low_side_left = self._mentions(right, _WARM, depth)
                return (ascending, not ascending) if low_side_left else (not ascending, ascending)
            if not ascending and (self._mentions(right, _INTERVAL, 3) or _reads_clock(left)):
                return True, False
        return False, False

    def _definition(self, name: ast.Name) -> ast.expr | None:
        """The one expression that a name is bound to in its scope, where there is just one."""
        scope = self.module.scope_of(name)
        bound = scope.bindings.get(name.id)
        return bound[0] if bound is not None and len(bound) == 1 else None

    def _called_guard(self, call: ast.Call, depth: int) -> tuple[bool, bool]:
        """The guard that a function is whose whole body returns a test: `if should_save(step):`."""
        value = self.module.flow.value(call.func)
        if value.kind not in ("function", "bound"):
            return False, False
        function = self.module.function_by_id(value.name)
        if function is None:
            return value.name in self.module.linked.guards, False
        returned = self.returned_test(function)
        return self.periodic(returned, depth + 1) if returned is not None else (False, False)

    @staticmethod
    def returned_test(function: Function) -> ast.expr | None:
        """The expression that a function returns, where that is all it does."""
        statement = function.only_statement
        return statement.value if isinstance(statement, ast.Return) else None

    def _is_counter(self, node: ast.expr) -> bool:
        """A whole number that moves with the iterations: a range or enumerate target, or what `+= 1` counts."""
        if isinstance(node, ast.BinOp):
            return self._is_counter(node.left) or self._is_counter(node.right)
        path = path_of(node)
        if path is None:
            return False
        if self._counters is None:
            self._counters = self._find_counters()
        if path in self._counters:
            return True
        definition = self._definition(node) if isinstance(node, ast.Name) else None
        return isinstance(definition, ast.BinOp) and self._is_counter(definition)

    def _find_counters(self) -> set[str]:
        found: set[str] = set()
        for loop in self.module.index.loops:
            generators = (
                loop.generators
                if isinstance(loop, COMPREHENSIONS)
                else [loop]
                if not isinstance(loop, ast.While)
                else []
            )
            for part in generators:
                if not isinstance(part.iter, ast.Call):
                    continue
                callee, target = last_name(part.iter.func), part.target
                if callee == "enumerate" and isinstance(target, ast.Tuple):
                    target = target.elts[0]
                elif callee in ("range", "trange", "arange", "count"):
                    pass
                elif any(
                    isinstance(a, ast.Call) and last_name(a.func) in ("range", "enumerate") for a in part.iter.args
                ):
                    inner = next(last_name(a.func) for a in part.iter.args if isinstance(a, ast.Call))
                    if inner == "enumerate" and isinstance(target, ast.Tuple):
                        target = target.elts[0]
                else:
                    continue
                if isinstance(target, ast.Name):
                    found.add(target.id)
        return found | self.module.index.counted

    def _mentions(self, node: ast.expr, pattern: re.Pattern[str], depth: int) -> bool:
        """Whether an identifier in the expression, or the definition of a name in it, matches."""
        if not self._spells(pattern):
            return False
        for part in ast.walk(node):
            if isinstance(part, ast.Name):
                if pattern.search(part.id):
                    return True
                if depth < 1:
                    definition = self._definition(part)
                    if definition is not None and self._mentions(definition, pattern, depth + 1):
                        return True
            elif (isinstance(part, ast.Attribute) and pattern.search(part.attr)) or (
                isinstance(part, ast.Constant) and isinstance(part.value, str) and pattern.search(part.value)
            ):
                return True
        return False

    @cached_property
    def _holds_modulo(self) -> bool:
        return "%" in self.module.source.text

    def _spells(self, pattern: re.Pattern[str]) -> bool:
        """Whether the file holds any of the words that a pattern looks for: most hold none."""
        found = self._spelled.get(pattern)
        if found is None:
            text = self.module.source.text
            found = self._spelled[pattern] = any(word in text for word in _WORDS[pattern])
        return found

    # Grad mode

    def grad_off(self, node: ast.AST) -> bool:
        """Whether gradients are off at `node` by what its own function says (or may be off: then silence is right)."""
        mode = self._context_around(node) if self.module.index.contexts else None
        return self._switched_off_before(node) if mode is None else mode

    def _context_around(self, node: ast.AST) -> bool | None:
        """What the innermost `with` around a node that sets the grad mode sets it to; None where none does."""
        parents = self.module.index.parents
        while node.__class__ not in _STATEMENTS:
            parent = parents.get(node)
            if parent is None:
                return None
            node = parent
        holder = parents.get(node)
        if holder is None or holder.__class__ in _FUNCTIONS:
            return None
        if holder not in self._modes:
            mode = self._mode_of(holder) if isinstance(holder, (ast.With, ast.AsyncWith)) else None
            self._modes[holder] = self._context_around(holder) if mode is None else mode
        return self._modes[holder]

    def _mode_of(self, node: ast.With | ast.AsyncWith) -> bool | None:
        modes = (self.context_mode(item.context_expr) for item in reversed(node.items))
        return next((mode for mode in modes if mode is not None), None)

    def context_mode(self, node: ast.expr) -> bool | None:
        """True where a context turns gradients off (or may), False where it turns them on, None for any other."""
        if isinstance(node, ast.IfExp):
            modes = {self.context_mode(node.body), self.context_mode(node.orelse)}
            return True if True in modes else None
        if isinstance(node, ast.Name):
            definition = self._definition(node)
            return (
                self.context_mode(definition)
                if definition is not None and not isinstance(definition, ast.Name)
                else None
            )
        if not isinstance(node, ast.Call):
            value = self.module.flow.value(node)
            return True if value.name in torch_api.GRAD_OFF else None
        callee = self.module.flow.value(node.func)
        if callee.name == "torch.inference_mode":
            return not (node.args and _is_false(node.args[0]))
        if callee.name == "torch.no_grad":
            return True
        if callee.name == "torch.enable_grad":
            return False
        if callee.name == "torch.set_grad_enabled":
            return not (node.args and isinstance(node.args[0], ast.Constant) and bool(node.args[0].value))
        if callee.kind in ("function", "bound", "ref") and self.module.mentions_grad_off(callee.name):
            return True
        if isinstance(node.func, ast.IfExp):
            return self.context_mode(ast.IfExp(node.func.test, node.func.body, node.func.orelse))
        return None

    def _switched_off_before(self, node: ast.AST) -> bool:
        """`torch.set_grad_enabled(False)` as a statement, earlier in the function or at module level."""
        calls = self.module.calls_named("set_grad_enabled")
        if not calls:
            return False
        function = self.module.function_of(node)
        line = getattr(node, "lineno", 0)
        off = False
        for call in calls:
            parent = self.module.index.parents.get(call)
            if not isinstance(parent, ast.Expr):
                continue
            holder = self.module.function_of(call)
            if holder is function and call.lineno < line:
                off = bool(call.args) and not (isinstance(call.args[0], ast.Constant) and bool(call.args[0].value))
            elif holder is None and function is not None and call.args and _is_false(call.args[0]):
                off = True
        return off

    def decorated_off(self, function: Function) -> bool:
        """Whether a decorator runs the whole function without gradients."""
        for decorator in function.node.decorator_list:
            value = self.module.flow.value(decorator)
            if value.name in torch_api.GRAD_OFF:
                return True
            if self.context_mode(decorator):
                return True
            if value.kind in ("function", "bound", "ref") and self.module.mentions_grad_off(value.name):
                return True
        return False


def _tests_equality(node: ast.expr, counted: set[str]) -> bool:
    """Whether a test is `step == …` of something counted."""
    return (
        isinstance(node, ast.Compare)
        and isinstance(node.ops[0], (ast.Eq, ast.In))
        and any(path_of(side) in counted for side in (node.left, *node.comparators))
    )


def _has_modulo(node: ast.expr) -> bool:
    if isinstance(node, (ast.Name, ast.Constant, ast.Attribute)):
        return False
    return any(
        isinstance(part, ast.BinOp)
        and isinstance(part.op, ast.Mod)
        and not (
            isinstance(part.left, (ast.Constant, ast.JoinedStr))
            and not isinstance(getattr(part.left, "value", 0), (int, float))
        )
        for part in ast.walk(node)
    )


def _reads_clock(node: ast.expr) -> bool:
    return any(
        isinstance(part, ast.Call) and last_name(part.func) in ("time", "perf_counter", "monotonic")
        for part in ast.walk(node)
    )


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False
