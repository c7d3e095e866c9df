"""What each expression is, by what its parts are."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from torchlint.semantics import calls, members
from torchlint.semantics.annotations import annotation_of_types
from torchlint.semantics.callables import lambda_value
from torchlint.semantics.names import all_parameters
from torchlint.semantics.values import (
    EMPTY_DICT,
    EMPTY_LIST,
    NDARRAY,
    NONE,
    NUMBER,
    STRING,
    TENSOR,
    UNKNOWN,
    Value,
    container,
    join,
    join_all,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchlint.semantics.flow import Env, Flow

_CONSTANT, _STARRED = ast.Constant, ast.Starred
_LITERALS: dict[type, Value] = {
    type(None): NONE,
    str: STRING,
    int: NUMBER,
    float: NUMBER,
    complex: NUMBER,
    bool: NUMBER,
}
_GIVING_THE_SAME = frozenset({"function", "bound", "class", "ref"})
_TELLING_NOTHING = frozenset({ast.Is, ast.IsNot, ast.In, ast.NotIn})  # of what they compare
_TELLING_TESTS = frozenset({ast.UnaryOp, ast.BoolOp, ast.Call})
_DEVICE_NAMES = {name: Value("string", name=name) for name in ("cpu", "cuda")}


def constant(node: Any) -> Value:
    """The value of a literal (an `ast.Constant`)."""
    value = node.value
    kind = value.__class__
    return _DEVICE_NAMES.get(value, STRING) if kind is str else _LITERALS.get(kind, UNKNOWN)


def refine(flow: Flow, test: ast.expr, env: Env, *, positive: bool) -> None:
    """What a test says of the names in it: `isinstance(x, torch.Tensor)`, `torch.is_tensor(x)`."""
    if test.__class__ not in _TELLING_TESTS:
        return
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        refine(flow, test.operand, env, positive=not positive)
    elif isinstance(test, ast.BoolOp):
        if isinstance(test.op, ast.And) is positive:
            for part in test.values:
                refine(flow, part, env, positive=positive)
    elif isinstance(test, ast.Call) and test.args:
        path = flow.module.index.path(test.args[0])
        name = flow.values.get(test.func, UNKNOWN).name
        if path is None:
            return
        known = flow.values.get(test.args[0], UNKNOWN)
        if name == "builtins.isinstance" and len(test.args) == 2:
            promised = annotation_of_types(flow, test.args[1])
        elif name == "torch.is_tensor":
            promised = TENSOR
        else:
            return
        if positive:
            if promised.kind != "unknown" and known.kind != promised.kind:
                flow.place(path, promised, env)
            elif promised.kind == "unknown" and known.kind == "tensor":
                flow.place(path, UNKNOWN, env)
        elif promised.kind == "tensor":
            flow.place(path, UNKNOWN if known.kind == "tensor" else known, env)


def children(flow: Flow, node: ast.expr, env: Env) -> Value:
    """What any other expression is: unknown, once its parts have been evaluated."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            flow.eval(child, env)
    return UNKNOWN


def _attribute(flow: Flow, node: ast.Attribute, env: Env) -> Value:
    base = flow.eval(node.value, env)
    known = _placed(flow, node, env) if flow.places else None
    return known if known is not None else members.attribute(flow, base, node.attr)


def _subscript(flow: Flow, node: ast.Subscript, env: Env) -> Value:
    base = flow.eval(node.value, env)
    flow.eval(node.slice, env)
    known = _placed(flow, node, env) if flow.places else None
    return known if known is not None else members.subscript(base, node.slice)


def _placed(flow: Flow, node: ast.Attribute | ast.Subscript, env: Env) -> Value | None:
    """What was last put at `x.attr` or `x['k']`, None where nothing was."""
    path = flow.module.index.paths.get(node)
    return env.get(path) if path is not None else None


def _slice(flow: Flow, node: ast.Slice, env: Env) -> Value:
    for part in (node.lower, node.upper, node.step):
        if part is not None:
            flow.eval(part, env)
    return UNKNOWN


def _call(flow: Flow, node: ast.Call, env: Env) -> Value:
    callee = flow.eval(node.func, env)
    positional: list[Value] = []
    starred = False
    if flow.shallow and callee.kind in _GIVING_THE_SAME:
        return calls.call(flow, node, callee, positional, [], env, starred)
    for argument in node.args:
        kind = argument.__class__
        if kind is _CONSTANT:
            positional.append(constant(argument))
        elif kind is _STARRED:
            starred = True
            positional.append(flow.eval(argument.value, env).element)  # type: ignore[attr-defined]
        else:
            positional.append(flow.eval(argument, env))
    keywords = [
        (k.arg or "**", constant(k.value) if k.value.__class__ is _CONSTANT else flow.eval(k.value, env))
        for k in node.keywords
    ]
    return calls.call(flow, node, callee, positional, keywords, env, starred)


def _bin_op(flow: Flow, node: ast.BinOp, env: Env) -> Value:
    # a long sum leans left: follow the spine in a loop, not by recursion
    spine: list[ast.BinOp] = []
    left: ast.expr = node
    while isinstance(left, ast.BinOp):
        spine.append(left)
        left = left.left
    value = flow.eval(left, env)
    for operation in reversed(spine):
        value = members.binary(value, flow.eval(operation.right, env), operation.op)
        flow.values[operation] = value
    return value


def _unary_op(flow: Flow, node: ast.UnaryOp, env: Env) -> Value:
    operand = flow.eval(node.operand, env)
    return NUMBER if isinstance(node.op, ast.Not) else operand


def _bool_op(flow: Flow, node: ast.BoolOp, env: Env) -> Value:
    state = dict(env)
    parts = []
    for part in node.values:
        parts.append(flow.eval(part, state))
        refine(flow, part, state, positive=isinstance(node.op, ast.And))
    return join_all(parts)


def _compare(flow: Flow, node: ast.Compare, env: Env) -> Value:
    operands = [flow.eval(node.left, env), *[flow.eval(c, env) for c in node.comparators]]
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


def _if_exp(flow: Flow, node: ast.IfExp, env: Env) -> Value:
    flow.eval(node.test, env)
    positive, negative = dict(env), dict(env)
    refine(flow, node.test, positive, positive=True)
    refine(flow, node.test, negative, positive=False)
    return join(flow.eval(node.body, positive), flow.eval(node.orelse, negative))


def _tuple(flow: Flow, node: ast.Tuple, env: Env) -> Value:
    items: list[Value] = []
    exact = True
    for element in node.elts:
        if isinstance(element, ast.Starred):
            spread = flow.eval(element.value, env)
            exact = exact and spread.kind == "tuple"
            items += spread.items if spread.kind == "tuple" else [spread.element]
        else:
            items.append(flow.eval(element, env))
    return container("tuple", tuple(items)) if exact else container("list", (join_all(items),))


def _list(flow: Flow, node: ast.List, env: Env) -> Value:
    if not node.elts:
        return EMPTY_LIST
    items = []
    for element in node.elts:
        if isinstance(element, ast.Starred):
            items.append(flow.eval(element.value, env).element)
        else:
            items.append(flow.eval(element, env))
    return container("list", (join_all(items),))


def _set(flow: Flow, node: ast.Set, env: Env) -> Value:
    return container("set", (join_all([flow.eval(e, env) for e in node.elts]),))


def _dict(flow: Flow, node: ast.Dict, env: Env) -> Value:
    if not node.keys:
        return EMPTY_DICT
    keys = []
    items = []
    for key, value in zip(node.keys, node.values, strict=False):
        if key is not None:
            flow.eval(key, env)
        keys.append(key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else None)
        items.append(flow.eval(value, env))
    if all(k is not None for k in keys) and len(set(keys)) == len(keys):
        return container("dict", tuple(items), tuple(k for k in keys if k is not None))
    if any(key is None for key in node.keys):
        return Value("dict", items=(UNKNOWN,))
    return container("dict", (join_all(items),))


def _comprehension(flow: Flow, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, env: Env) -> Value:
    state = dict(env)
    for generator in node.generators:
        element = members.iteration(flow.eval(generator.iter, state))
        _assign_local(flow, generator.target, element, state)
        for condition in generator.ifs:
            flow.eval(condition, state)
            refine(flow, condition, state, positive=True)
    if isinstance(node, ast.DictComp):
        flow.eval(node.key, state)
        return container("dict", (flow.eval(node.value, state),))
    element = flow.eval(node.elt, state)
    kind = {ast.ListComp: "list", ast.SetComp: "set", ast.GeneratorExp: "iterator"}[node.__class__]
    return container(kind, (element,))


def _assign_local(flow: Flow, target: ast.expr, value: Value, state: Env) -> None:
    """Bind a comprehension's target: it lives in the comprehension alone."""
    if isinstance(target, ast.Name):
        state[target.id] = value
        flow.values[target] = value
    elif isinstance(target, (ast.Tuple, ast.List)):
        exact = value.kind == "tuple" and len(value.items) == len(target.elts)
        for position, element in enumerate(target.elts):
            _assign_local(flow, element, value.items[position] if exact else value.element, state)
    elif isinstance(target, ast.Starred):
        _assign_local(flow, target.value, Value("list", items=(value,)), state)


def _lambda(flow: Flow, node: ast.Lambda, env: Env) -> Value:
    state = dict(env)
    for parameter in all_parameters(node.args):
        state[parameter.arg] = UNKNOWN
    flow.eval(node.body, state)
    return lambda_value(flow, node, state)


def _named_expr(flow: Flow, node: ast.NamedExpr, env: Env) -> Value:
    value = flow.eval(node.value, env)
    flow.assign(node.target, value, env)
    return value


def _joined_str(flow: Flow, node: ast.JoinedStr, env: Env) -> Value:
    for part in node.values:
        if isinstance(part, ast.FormattedValue):
            flow.eval(part.value, env)
            if part.format_spec is not None:
                _joined_str(flow, part.format_spec, env)  # type: ignore[arg-type]
    return STRING


def _await(flow: Flow, node: ast.Await, env: Env) -> Value:
    return flow.eval(node.value, env)


def _yield(flow: Flow, node: ast.Yield | ast.YieldFrom, env: Env) -> Value:
    value = flow.eval(node.value, env) if node.value is not None else NONE
    if isinstance(node, ast.YieldFrom):
        value = value.element
    function = flow.scope.function
    if function is not None:
        flow.returns.setdefault(function, []).append(value)
    return UNKNOWN


def _starred(flow: Flow, node: ast.Starred, env: Env) -> Value:
    return flow.eval(node.value, env)


# Each function takes its own node class: the key says which.
EXPRESSIONS: dict[type[ast.expr], Callable[[Flow, Any, Env], Value]] = {
    ast.Attribute: _attribute,
    ast.Subscript: _subscript,
    ast.Slice: _slice,
    ast.Call: _call,
    ast.BinOp: _bin_op,
    ast.UnaryOp: _unary_op,
    ast.BoolOp: _bool_op,
    ast.Compare: _compare,
    ast.IfExp: _if_exp,
    ast.Tuple: _tuple,
    ast.List: _list,
    ast.Set: _set,
    ast.Dict: _dict,
    ast.ListComp: _comprehension,
    ast.SetComp: _comprehension,
    ast.GeneratorExp: _comprehension,
    ast.DictComp: _comprehension,
    ast.Lambda: _lambda,
    ast.NamedExpr: _named_expr,
    ast.JoinedStr: _joined_str,
    ast.Await: _await,
    ast.Yield: _yield,
    ast.YieldFrom: _yield,
    ast.Starred: _starred,
}
