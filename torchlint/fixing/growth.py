"""A tensor that grows by cat in a loop becomes a list that is joined once after the loop."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from torchlint.fixing.splice import (
    FUNCTIONS,
    Unfixable,
    call_tree,
    comments_in,
    is_load,
    libcst_border,
    path_to,
    reads_free,
    render,
    replacement,
    spares_libcst,
)
from torchlint.fixing.statements import insert_after, insert_before
from torchlint.semantics.names import last_name, path_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torchlint.semantics.growth import Growth
    from torchlint.source import Edit, SourceFile

    Loop = ast.For | ast.AsyncFor | ast.While

_TRIES: tuple[type[ast.AST], ...] = (ast.Try, *([ast.TryStar] if hasattr(ast, "TryStar") else []))


def list_then_cat(source: SourceFile, growth: Growth) -> list[Edit]:
    """Gather in a list what the loop concatenates, and concatenate once after the loop.

    `x = torch.cat((x, y))` becomes `x_pieces.append(y)`; before the loop stands `x_pieces = [x]` (`[]` where the first
    iteration makes x), after it `x = torch.cat(x_pieces)`. The caller knows that `growth.start` is what x holds when
    the loop begins, and that the loop needs x for nothing but the growth.
    """
    place = growth.statement if growth.first is None or isinstance(growth.first, ast.IfExp) else growth.first
    call, first = growth.call, growth.first
    others, prepended = _other_operands(growth)
    _require_first_value(growth, others)
    _require_only_growth(growth)
    _require_nobody_looks(source, growth, place)
    _require_unshared(growth, others)
    if source.segment(place).startswith("elif") or comments_in(source.segment(place)):
        raise Unfixable("the statement that grows the value cannot be replaced as a whole")

    pieces = _fresh_name(source, growth.path)
    start = growth.start
    after = f"{growth.path} = {_joined(source, call, pieces, prepended)}"
    if first is not None:
        after += f" if {pieces} else {source.segment(start) if _is_blank(start) and start else growth.path}"
    elif not _joins_one_piece(call, start):
        after += f" if len({pieces}) > 1 else {growth.path}"
    texts = [_element_text(source, call, other) for other in others]
    grow = f"{pieces}.append({texts[0]})" if len(texts) == 1 else f"{pieces}.extend(({', '.join(texts)}))"
    return [
        *insert_before(source, growth.loop, f"{pieces} = [{growth.path if first is None else ''}]"),
        *replacement(source, *source.span(place), grow),
        *insert_after(source, growth.loop, after),
    ]


def _other_operands(growth: Growth) -> tuple[list[ast.expr], bool]:
    """What is joined to the old value, and whether it goes before it."""
    name = last_name(growth.call.func)
    if name not in ("cat", "concat", "concatenate", "hstack", "vstack", "row_stack", "dstack"):
        # Each stack of a stack adds a dimension.
        raise Unfixable(f"repeated {name} is not one {name}")
    operands = growth.call.args[0] if growth.call.args else None
    if not isinstance(operands, ast.Tuple | ast.List) or any(isinstance(o, ast.Starred) for o in operands.elts):
        raise Unfixable("the operands are not written out")
    if any(keyword.arg not in ("dim", "axis") for keyword in growth.call.keywords) or len(growth.call.args) > 2:
        raise Unfixable("the join has other arguments")
    *before, last = operands.elts
    if path_of(operands.elts[0]) == growth.path:
        return operands.elts[1:], False
    if path_of(last) == growth.path and len(before) == 1:
        return before, True
    raise Unfixable("the old value stands between the others")


def _require_first_value(growth: Growth, others: list[ast.expr]) -> None:
    """Raises Unfixable where another branch than the join does not simply give the first piece, once."""
    first, start = growth.first, growth.start
    if first is None:
        if start is None or _is_blank(start):
            raise Unfixable("the value before the loop is no tensor in view")
        return
    if last_name(growth.call.func) not in ("cat", "concat", "concatenate"):
        raise Unfixable("one piece alone would change its shape")
    branches: list[Sequence[ast.AST]] = (
        [first.body, first.orelse] if isinstance(first, ast.If) else [[first.body], [first.orelse]]
    )
    joined = growth.statement if isinstance(first, ast.If) else growth.call
    makes_first = [branch for branch in branches if list(branch) != [joined]]
    if len(makes_first) != 1 or len(makes_first[0]) != 1 or len(others) != 1:
        raise Unfixable("the first value is made in another way")
    [value] = makes_first[0]
    if isinstance(value, ast.Assign):
        value = value.value if [path_of(target) for target in value.targets] == [growth.path] else value
    if ast.dump(value) != ast.dump(others[0]):
        raise Unfixable("the first value differs from what is joined later")
    if not _asks_for_first(first.test, growth, when_true=makes_first[0] is branches[0]):
        raise Unfixable("the test does not show which iteration is the first")


def _asks_for_first(test: ast.expr, growth: Growth, when_true: bool) -> bool:
    """Whether a test tells the first iteration from the others: by the start value, or by the loop's own counter."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _asks_for_first(test.operand, growth, not when_true)
    start = growth.start
    none = isinstance(start, ast.Constant) and start.value is None
    empty_list = isinstance(start, ast.List | ast.Tuple) and not start.elts
    if path_of(test) == growth.path:
        return not when_true and empty_list
    if isinstance(test, ast.Call):
        return not when_true and empty_list and _is_length(test, growth.path)
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1):
        return False
    operator, left, right = test.ops[0], test.left, test.comparators[0]
    zero = isinstance(right, ast.Constant) and right.value == 0 and not isinstance(right.value, bool)
    equal = isinstance(operator, ast.Eq) and when_true
    positive = isinstance(operator, ast.NotEq | ast.Gt) and not when_true
    if path_of(left) == growth.path:
        is_none = isinstance(right, ast.Constant) and right.value is None
        same = isinstance(operator, ast.Is | ast.Eq) if when_true else isinstance(operator, ast.IsNot | ast.NotEq)
        same_list = isinstance(right, ast.List) and not right.elts and empty_list and not isinstance(operator, ast.Is)
        return same and ((is_none and none) or same_list)
    if isinstance(left, ast.Call) and _is_length(left, growth.path):
        return zero and (equal or positive) and empty_list
    return zero and (equal or positive) and _counts_from_zero(left, growth) and (start is None or _is_blank(start))


def _is_length(call: ast.Call, path: str) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "len" and [path_of(arg) for arg in call.args] == [path]


def _counts_from_zero(counter: ast.expr, growth: Growth) -> bool:
    """Whether `counter` is the growing loop's own, of `enumerate(…)`, `range(n)` or `range(0, n)`, and not rebound."""
    loop = growth.loop
    if not isinstance(counter, ast.Name) or not isinstance(loop, ast.For) or not isinstance(loop.iter, ast.Call):
        return False
    stores = [n for n in ast.walk(loop) if isinstance(n, ast.Name) and n.id == counter.id and not is_load(n)]
    name, args, target = last_name(loop.iter.func), loop.iter.args, loop.target
    if name == "enumerate":
        target = target.elts[0] if isinstance(target, ast.Tuple) else target
        return len(args) == 1 and not loop.iter.keywords and stores == [target]
    from_zero = len(args) == 1 or (len(args) > 1 and isinstance(args[0], ast.Constant) and args[0].value == 0)
    return name in ("range", "trange") and from_zero and stores == [target]


def _is_blank(start: ast.expr | None) -> bool:
    """Whether a start value is None or an empty list, nothing that could be joined."""
    if isinstance(start, ast.Constant):
        return start.value is None
    return isinstance(start, ast.List | ast.Tuple) and not start.elts


def _require_only_growth(growth: Growth) -> None:
    """Raises Unfixable where the loop mentions the value, or the object it is an attribute of, anywhere else."""
    path, root = growth.path, growth.path.split(".")[0]
    if not all(part.isidentifier() for part in path.split(".")):
        raise Unfixable("the value is kept in a container")
    allowed = {id(growth.statement.targets[0]), *map(id, getattr(growth.call.args[0], "elts", ()))}
    if growth.first is not None:
        allowed |= {id(node) for node in ast.walk(growth.first.test)}
        branches = [*growth.first.body, *growth.first.orelse] if isinstance(growth.first, ast.If) else []
        allowed |= {id(target) for branch in branches if isinstance(branch, ast.Assign) for target in branch.targets}
    inside_path = {id(n.value) for n in ast.walk(growth.loop) if isinstance(n, ast.Attribute)}
    operands = [operand for operand in getattr(growth.call.args[0], "elts", ()) if path_of(operand) == path]
    if len(operands) != 1:
        raise Unfixable("the value is joined to itself")
    for node in ast.walk(growth.loop):
        if isinstance(node, ast.Name | ast.Attribute) and path_of(node) == path and id(node) not in allowed:
            raise Unfixable("the loop uses the grown value")
        if "." in path and isinstance(node, ast.Name) and node.id == root and id(node) not in inside_path:
            raise Unfixable(f"the loop hands {root} on")
        if "." in path and isinstance(node, ast.Return | ast.Raise | ast.Yield | ast.YieldFrom | ast.Await):
            raise Unfixable("the loop may be left, or looked into from outside, before the value is complete")
        if isinstance(node, ast.Name) and node.id == root and isinstance(node.ctx, ast.Del | ast.Store) and "." in path:
            raise Unfixable(f"the loop binds {root}")


def _require_nobody_looks(source: SourceFile, growth: Growth, place: ast.stmt) -> None:
    """Raises Unfixable where other code may see the value before the loop is done, or the loop may not be done."""
    tree = source.parse()
    path = path_to(tree, place)
    loop_index = next(i for i, node in enumerate(path) if _same_place(node, growth.loop))
    for node in path[loop_index + 1 :]:
        if isinstance(node, (*FUNCTIONS, *_TRIES, ast.ClassDef)):
            raise Unfixable("the value grows inside a function or a try block of the loop")
        if isinstance(node, ast.With | ast.AsyncWith):
            _require_harmless_context(node, growth)
    scope_index = max(
        i for i, node in enumerate(path[:loop_index]) if isinstance(node, (*FUNCTIONS, ast.Module, ast.ClassDef))
    )
    scope, root = path[scope_index], growth.path.split(".")[0]
    for holder, inner in zip(path[scope_index + 1 : loop_index], path[scope_index + 2 :], strict=False):
        if _swallows(holder, inner) and _used_behind(scope, growth, holder):
            raise Unfixable("an exception in the loop is caught, and the value used afterwards")
    own_functions = {id(node) for node in path}
    for node in ast.walk(scope):
        if isinstance(node, ast.Global | ast.Nonlocal) and root in node.names:
            raise Unfixable(f"{root} is shared between functions")
        if (
            isinstance(node, FUNCTIONS)
            and id(node) not in own_functions
            and "." not in growth.path
            and reads_free(node, root)
        ):
            raise Unfixable(f"another function reads {root}")


def _swallows(holder: ast.AST, inner: ast.AST) -> bool:
    """Whether a statement around the loop may end exceptions that the loop raises."""
    if isinstance(holder, ast.With | ast.AsyncWith):
        return any(re.search("suppress|raises|assert", ast.unparse(item)) for item in holder.items)
    return isinstance(holder, _TRIES) and any(statement is inner for statement in getattr(holder, "body", ()))


def _used_behind(scope: ast.AST, growth: Growth, holder: ast.AST) -> bool:
    """Whether the value is used behind the part of `holder` that the loop is in."""
    last = holder.body[-1]  # type: ignore[attr-defined]
    return "." in growth.path or any(
        isinstance(node, ast.Name)
        and node.id == growth.path
        and (node.lineno, node.col_offset) > (last.end_lineno, last.end_col_offset)
        for node in ast.walk(scope)
    )


def _same_place(node: ast.AST, other: ast.stmt) -> bool:
    return isinstance(node, type(other)) and (node.lineno, node.col_offset) == (other.lineno, other.col_offset)


def _require_harmless_context(block: ast.With | ast.AsyncWith, growth: Growth) -> None:
    """Raises Unfixable where a join outside a `with` of the loop may differ from one inside it."""
    context = " ".join(ast.unparse(item.context_expr) for item in block.items)
    if re.search(r"stream|suppress|raises|default_dtype", context, re.IGNORECASE):
        raise Unfixable("the context in which the value grows matters")
    if re.search(r"no_grad|inference_mode|grad_enabled", context):
        bound = {n.id for s in block.body for n in ast.walk(s) if isinstance(n, ast.Name) and not is_load(n)}
        for other in getattr(growth.call.args[0], "elts", ()):
            names = {n.id for n in ast.walk(other) if isinstance(n, ast.Name)}
            made_inside = isinstance(other, ast.Call) and not names - bound - {"torch"}
            if path_of(other) != growth.path and not (
                names <= bound or made_inside or ".detach()" in ast.unparse(other)
            ):
                raise Unfixable("a piece made outside the block without gradients may carry a graph")


# What makes a new tensor, whoever changes its operands afterwards.
_COPIES = frozenset(
    """
    tensor clone zeros ones empty full eye arange linspace rand randn randint randperm normal zeros_like ones_like
    full_like rand_like randn_like cat concat concatenate stack hstack vstack sum mean std var prod norm argmax argmin
    softmax log_softmax sigmoid tanh relu exp log sqrt abs add sub mul div matmul mm bmm einsum logsumexp sign round
    item tolist repeat where gather index_select masked_select nonzero one_hot cross_entropy mse_loss
    """.split()
)


def _require_unshared(growth: Growth, others: list[ast.expr]) -> None:
    """Raises Unfixable where the loop may change a gathered piece in place: cat copied it, a list does not."""
    bindings = _bindings_in(growth.loop)
    shared: dict[str, None] = {}
    waiting = list(others)
    while waiting:
        for path in _shared_paths(waiting.pop()):
            if path not in shared:
                shared[path] = None
                waiting += [value for target, value in bindings if target == path]
    for changed, node in _changes_in(growth.loop):
        if any(_overlap(changed, path) for path in shared) and not _is_fresh(changed, node, growth, bindings):
            raise Unfixable(f"the loop changes {changed} in place, of which a list would hold the same memory")


def _shared_paths(value: ast.expr) -> Iterator[str]:
    """The places whose memory a value may share."""
    match value:
        case ast.Name() | ast.Attribute() if (path := path_of(value)) is not None:
            yield path
        case (
            ast.Attribute(value=inner) | ast.Subscript(value=inner) | ast.Starred(value=inner) | ast.Await(value=inner)
        ):
            yield from _shared_paths(inner)
        case ast.NamedExpr(value=inner):
            yield from _shared_paths(inner)
        case ast.IfExp(body=body, orelse=orelse):
            yield from _shared_paths(body)
            yield from _shared_paths(orelse)
        case ast.Tuple(elts=elts) | ast.List(elts=elts):
            for element in elts:
                yield from _shared_paths(element)
        case ast.Call(func=function) if last_name(function) not in _COPIES:
            if isinstance(function, ast.Attribute):
                yield from _shared_paths(function.value)
            for argument in [*value.args, *(keyword.value for keyword in value.keywords)]:
                yield from _shared_paths(argument)


def _bindings_in(loop: Loop) -> list[tuple[str, ast.expr]]:
    """Each place that the loop binds, with what it is bound to (or taken out of)."""
    pairs: list[tuple[ast.expr, ast.expr]] = []
    for node in ast.walk(loop):
        match node:
            case ast.Assign(targets=targets, value=value):
                pairs += [(target, value) for target in targets]
            case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
                pairs.append((target, value))
            case ast.For(target=target, iter=value) | ast.AsyncFor(target=target, iter=value):
                pairs.append((target, value))
            case ast.withitem(optional_vars=ast.expr() as target, context_expr=value):
                pairs.append((target, value))
    found = []
    while pairs:
        target, value = pairs.pop()
        if isinstance(target, ast.Tuple | ast.List):
            pairs += [(element, value) for element in target.elts]
        elif isinstance(target, ast.Starred):
            pairs.append((target.value, value))
        elif (path := path_of(target)) is not None:
            found.append((path, value))
    return found


def _changes_in(loop: Loop) -> Iterator[tuple[str, ast.AST]]:
    """Each place whose memory the loop changes, with the node that does."""
    for node in ast.walk(loop):
        changed: list[ast.expr] = []
        match node:
            case ast.AugAssign(target=target):
                changed = [target.value if isinstance(target, ast.Subscript) else target]
            case ast.Subscript(value=value, ctx=ast.Store()) | ast.Attribute(value=value, attr="data", ctx=ast.Store()):
                changed = [value]
            case ast.Call(func=ast.Attribute(value=value, attr=method)) if _in_place(method):
                changed = [value]
            case ast.keyword(arg="out", value=value):
                changed = [value]
        for value in changed:
            for path in _shared_paths(value):
                yield path, node


def _in_place(method: str) -> bool:
    return (method.endswith("_") and not method.startswith("_") and method != "requires_grad_") or method == "fill"


def _is_fresh(changed: str, change: ast.AST, growth: Growth, bindings: list[tuple[str, ast.expr]]) -> bool:
    """Whether a change touches only a tensor made anew in the same iteration, before it is gathered."""
    own = [value for target, value in bindings if target == changed]
    place = (change.lineno, change.col_offset)  # type: ignore[attr-defined]
    return (
        bool(own)
        and all(isinstance(value, ast.Call) and last_name(value.func) in _COPIES for value in own)
        and all((value.lineno, value.col_offset) < place for value in own)
        and place < (growth.statement.lineno, growth.statement.col_offset)
        and not any(isinstance(n, ast.For | ast.While) and n is not growth.loop for n in ast.walk(growth.loop))
    )


def _overlap(path: str, other: str) -> bool:
    return path == other or path.startswith(other + ".") or other.startswith(path + ".")


def _fresh_name(source: SourceFile, path: str) -> str:
    """A name for the list that nothing in the file bears."""
    base = name = path.rpartition(".")[2] + "_pieces"
    number = 2
    while re.search(rf"\b{name}\b", source.text):
        name = f"{base}_{number}"
        number += 1
    return name


def _joined(source: SourceFile, call: ast.Call, pieces: str, prepended: bool) -> str:
    """The join of all pieces, on one line, with the arguments of the join in the loop."""
    if spares_libcst(source.segment(call)):
        return pieces
    with libcst_border():
        import libcst as cst

        tree = call_tree(source, call)
        operands = cst.parse_expression(f"{pieces}[::-1]" if prepended else pieces)
        args = [
            argument.with_changes(comma=cst.MaybeSentinel.DEFAULT, whitespace_after_arg=cst.SimpleWhitespace(""))
            for argument in tree.args
        ]
        args[0] = args[0].with_changes(value=operands)
        joined = cst.Call(tree.func, args)
        return render(joined)


def _joins_one_piece(call: ast.Call, start: ast.expr | None) -> bool:
    """Whether joining the start value alone gives it back, whatever its rank: zero iterations have to stay right."""
    if last_name(call.func) not in ("cat", "concat", "concatenate"):
        if last_name(call.func) == "hstack" and _rank(start) < 2:
            # hstack joins along the first dimension when the first piece has one dimension only.
            raise Unfixable("hstack depends on the rank of its first piece")
        return False
    dims = [*call.args[1:], *(keyword.value for keyword in call.keywords)]
    if not dims:
        return True
    try:
        dim = ast.literal_eval(dims[0])
    except ValueError:
        dim = None
    if not isinstance(dim, int):
        raise Unfixable("the dimension is not written out")
    return dim in (0, -1) or (dim < _rank(start) if dim > 0 else -dim <= _rank(start))


def _rank(start: ast.expr | None) -> int:
    """The number of dimensions of a factory call's result; 0 where it is not plain to see."""
    match start:
        case ast.Call(func=function, args=[ast.Tuple(elts=sizes) | ast.List(elts=sizes)]) if sizes:
            return len(sizes) if last_name(function) in ("zeros", "ones", "empty", "rand", "randn", "full") else 0
        case (
            ast.Call(func=function, args=[ast.Constant(), *_] as sizes)
            | ast.Call(func=function, args=[_, _, *_] as sizes)
        ):
            return len(sizes) if last_name(function) in ("zeros", "ones", "empty", "rand", "randn") else 0
    return 0


def _element_text(source: SourceFile, call: ast.Call, operand: ast.expr) -> str:
    """An operand's text, its own parentheses included."""
    elements = getattr(call.args[0], "elts", ())
    if spares_libcst(source.segment(call)):
        return source.segment(operand)
    with libcst_border():
        import libcst as cst

        operands = call_tree(source, call).args[0].value
        assert isinstance(operands, cst.Tuple | cst.List)
        return render(operands.elements[[id(element) for element in elements].index(id(operand))].value)
