"""Edits of one expression: set, drop and move arguments, drop a method call, replace the whole."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from torchlint.fixing.splice import (
    Unfixable,
    call_tree,
    comments_in,
    libcst_border,
    parsed_expression,
    render,
    replacement,
    require_same_text,
    spares_libcst,
    unix_newlines,
)
from torchlint.source import Edit

if TYPE_CHECKING:
    from collections.abc import Callable

    import libcst as cst

    from torchlint.source import SourceFile


def set_argument(source: SourceFile, call: ast.Call, name: str, value: str) -> list[Edit]:
    """Give `call` the keyword argument `name=value`: in place of its present value, else behind the last argument."""
    keywords = [ast.keyword(k.arg, parsed_expression(value) if k.arg == name else k.value) for k in call.keywords]
    if all(keyword.arg != name for keyword in call.keywords):
        _require_no_unpacking(call)
        keywords.append(ast.keyword(name, parsed_expression(value)))
    meant = ast.Call(call.func, call.args, keywords)
    return _rewrite_call(source, call, lambda tree: _with_argument(tree, name, value), meant)


def drop_argument(source: SourceFile, call: ast.Call, argument: str | int) -> list[Edit]:
    """Take the keyword argument of that name, or the last positional one by its index, out of `call`."""
    args, keywords = list(call.args), list(call.keywords)
    if isinstance(argument, str):
        matches = [index for index, keyword in enumerate(keywords) if keyword.arg == argument]
        if not matches:
            raise Unfixable(f"the call has no argument {argument}")
        dropped: ast.expr | ast.keyword = keywords.pop(matches[0])
    else:
        _require_no_unpacking(call)
        if argument != len(args) - 1:
            raise Unfixable("dropping a positional argument would move the ones behind it")
        dropped = args.pop()
    written: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    written.sort(key=lambda part: (part.lineno, part.col_offset))
    place = written.index(dropped)
    return _rewrite_call(source, call, lambda tree: _without_argument(tree, place), ast.Call(call.func, args, keywords))


def move_argument_into(
    source: SourceFile, outer_call: ast.Call, inner_call: ast.Call, keyword: str = "device"
) -> list[Edit]:
    """`torch.zeros(n).to(device)` → `torch.zeros(n, device=device)`; `.cuda()` and `.cuda(0)` give a string.

    The caller knows that the argument of `.to` is a device, and that `inner_call` accepts the keyword.
    """
    assert isinstance(outer_call.func, ast.Attribute)
    made = outer_call.func.value
    while made is not inner_call:
        # `Variable(torch.zeros(n)).cuda()`
        if not isinstance(made, ast.Call) or len(made.args) != 1:
            raise Unfixable("the move is not called on what the factory made")
        made = made.args[0]
    return [
        *set_argument(source, inner_call, keyword, moved_device(source, outer_call, inner_call, keyword)),
        *drop_method_call(source, outer_call),
    ]


def moved_device(source: SourceFile, move: ast.Call, factory: ast.Call, keyword: str = "device") -> str:
    """The text of the device that `.to(…)` or `.cuda(…)` moves to, as `factory` can be given it."""
    _require_no_unpacking(move)
    if any(present.arg == keyword for present in factory.keywords):
        raise Unfixable(f"the factory is given {keyword}= already")
    assert isinstance(move.func, ast.Attribute)
    method, args = move.func.attr, list(move.args)
    keywords = {keyword.arg: keyword.value for keyword in move.keywords}
    # Nothing is copied any more, so that `non_blocking` has nothing left to say.
    keywords.pop("non_blocking", None)
    if method == "cuda" and len(args) == 2:
        args.pop()
    if "device" in keywords:
        args.append(keywords.pop("device"))
    if keywords or len(args) > 1 or method not in ("to", "cuda") or (method == "to" and not args):
        raise Unfixable("the move has arguments that a factory does not take")
    quote = _quote(source)
    if not args:
        return f"{quote}cuda{quote}"
    [device] = args
    if method == "to":
        return unix_newlines(source.segment(device))
    match device:
        case ast.Constant(value=None):
            return f"{quote}cuda{quote}"
        case ast.Constant(value=int(index)) if not isinstance(index, bool):
            return f"{quote}cuda:{index}{quote}"
        case ast.Constant(value=str()) | ast.JoinedStr():
            return unix_newlines(source.segment(device))
        case ast.Call(func=ast.Attribute(attr="device" | "get_rank" | "current_device") | ast.Name(id="int")):
            return unix_newlines(source.segment(device))
        case ast.Attribute(attr="device"):
            return unix_newlines(source.segment(device))
    # `.cuda(None)` means the current GPU, `device=None` the CPU: a name that may hold None has to stay.
    raise Unfixable("the device may be None, which means another place in a factory")


def _quote(source: SourceFile) -> str:
    """The quote that most one-line strings of the file begin with."""
    starts = re.findall(r"(?<=[\s(\[{,=])(['\"])(?!\1)", source.text)
    return "'" if starts.count("'") * 2 > len(starts) else '"'


def _require_no_unpacking(call: ast.Call) -> None:
    if any(isinstance(arg, ast.Starred) for arg in call.args) or any(keyword.arg is None for keyword in call.keywords):
        raise Unfixable("the call unpacks arguments that may already hold this one")


def _with_argument(call: cst.Call, name: str, value: str) -> cst.Call:
    """`call` with the keyword set; a new one takes the layout of the arguments before it."""
    import libcst as cst

    new_value = cst.parse_expression(value)
    for index, arg in enumerate(call.args):
        if arg.keyword is not None and arg.keyword.value == name:
            args = [*call.args[:index], arg.with_changes(value=new_value), *call.args[index + 1 :]]
            return call.with_changes(args=args)
    tight = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    equal = next((arg.equal for arg in reversed(call.args) if isinstance(arg.equal, cst.AssignEqual)), tight)
    argument = cst.Arg(new_value, keyword=cst.Name(name), equal=equal)
    if not call.args:
        if comments_in(render(call.whitespace_before_args)):
            raise Unfixable("the call holds nothing but a comment")
        return call.with_changes(args=[argument])
    last = call.args[-1]
    if isinstance(last.value, cst.GeneratorExp) and not last.value.lpar:
        bare = last.value.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        last = last.with_changes(value=bare)
    between = _separator(call)
    if isinstance(last.comma, cst.Comma):
        behind, after_argument = _split_whitespace(last.comma.whitespace_after, between)
        last = last.with_changes(comma=last.comma.with_changes(whitespace_after=behind))
        argument = argument.with_changes(comma=cst.Comma(whitespace_after=after_argument))
    else:
        behind, after_argument = _split_whitespace(last.whitespace_after_arg, between)
        last = last.with_changes(
            comma=cst.Comma(whitespace_after=behind), whitespace_after_arg=cst.SimpleWhitespace("")
        )
        argument = argument.with_changes(whitespace_after_arg=after_argument)
    return call.with_changes(args=[*call.args[:-1], last, argument])


def _separator(call: cst.Call) -> cst.BaseParenthesizableWhitespace:
    """The white space that stands between arguments of this call, without comments."""
    import libcst as cst

    if len(call.args) > 1:
        comma = call.args[-2].comma
        assert isinstance(comma, cst.Comma)
        model = comma.whitespace_after
    else:
        model = call.whitespace_before_args
    if isinstance(model, cst.ParenthesizedWhitespace):
        return cst.ParenthesizedWhitespace(indent=model.indent, last_line=model.last_line)
    return cst.SimpleWhitespace(" ") if len(call.args) == 1 or "\\" in render(model) else model


def _split_whitespace(
    gap: cst.BaseParenthesizableWhitespace, between: cst.BaseParenthesizableWhitespace
) -> tuple[cst.BaseParenthesizableWhitespace, cst.BaseParenthesizableWhitespace]:
    """The gap before a closing bracket as two: before an argument put there, with the gap's comments, and behind it."""
    import libcst as cst

    if not isinstance(gap, cst.ParenthesizedWhitespace):
        return between, gap
    behind = cst.ParenthesizedWhitespace(indent=gap.indent, last_line=gap.last_line)
    if not isinstance(between, cst.ParenthesizedWhitespace):
        if comments_in(render(gap)):
            return gap, cst.SimpleWhitespace("")
        return between, gap
    return gap.with_changes(indent=between.indent, last_line=between.last_line), behind


def _without_argument(call: cst.Call, place: int) -> cst.Call:
    """`call` without the argument at `place`, and without the layout that served it alone."""
    import libcst as cst

    args = list(call.args)
    dropped = args.pop(place)
    behind = dropped.comma.whitespace_after if isinstance(dropped.comma, cst.Comma) else dropped.whitespace_after_arg
    before = call.whitespace_before_args
    if place:
        previous_comma = args[place - 1].comma
        assert isinstance(previous_comma, cst.Comma)
        before = previous_comma.whitespace_after
    above = before.empty_lines if isinstance(before, cst.ParenthesizedWhitespace) else ()
    if any(line.comment for line in above) or comments_in(render(behind)):
        raise Unfixable("the argument has a comment of its own")
    if not args:
        return call.with_changes(args=[], whitespace_before_args=cst.SimpleWhitespace(""))
    if place == len(args):
        gap = _joined_whitespace(before, behind)
        if isinstance(dropped.comma, cst.Comma):
            args[-1] = args[-1].with_changes(comma=dropped.comma.with_changes(whitespace_after=gap))
        else:
            args[-1] = args[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT, whitespace_after_arg=gap)
    return call.with_changes(args=args)


def _joined_whitespace(
    before: cst.BaseParenthesizableWhitespace, behind: cst.BaseParenthesizableWhitespace
) -> cst.BaseParenthesizableWhitespace:
    """What stands where something between two gaps was: the first gap's comments, the second one's last line."""
    import libcst as cst

    if not isinstance(before, cst.ParenthesizedWhitespace):
        return behind
    if isinstance(behind, cst.ParenthesizedWhitespace):
        return before.with_changes(indent=behind.indent, last_line=behind.last_line)
    return before if comments_in(render(before)) else behind


# Expressions


def replace_expression(source: SourceFile, node: ast.expr, new_text: str) -> list[Edit]:
    """Put `new_text` in the place of `node`, in parentheses where the place may need them."""
    start, end = source.span(node)
    require_same_text(source, node)
    if not spares_libcst(new_text):
        with libcst_border():
            import libcst as cst

            new_text = render(cst.parse_expression(new_text))
    new = parsed_expression(new_text)
    if _binding_strength(new) < _binding_strength(node) and not _is_enclosed(source.text, start, end, new):
        new_text = f"({new_text})"
    return replacement(source, start, end, new_text)


def drop_method_call(source: SourceFile, call: ast.Call) -> list[Edit]:
    """`f(x).to(d)` → `f(x)`."""
    function = call.func
    if not isinstance(function, ast.Attribute):
        raise Unfixable("the call is not a method's")

    def change(tree: cst.Call) -> cst.BaseExpression:
        import libcst as cst

        assert isinstance(tree.func, cst.Attribute)
        return tree.func.value

    return _rewrite_call(source, call, change, function.value)


_STRENGTHS: tuple[tuple[type[ast.AST], ...], ...] = (
    (ast.Tuple, ast.Starred, ast.Yield, ast.YieldFrom, ast.NamedExpr),
    (ast.Lambda,),
    (ast.IfExp,),
)
_BOOLEAN_STRENGTHS: dict[type[ast.AST], int] = {ast.Or: 3, ast.And: 4, ast.Not: 5}
_COMPARE_STRENGTH = 6
_BINARY_STRENGTHS: dict[type[ast.AST], int] = {ast.BitOr: 7, ast.BitXor: 8, ast.BitAnd: 9, ast.LShift: 10}
_BINARY_STRENGTHS |= {ast.RShift: 10, ast.Add: 11, ast.Sub: 11, ast.Mult: 12, ast.MatMult: 12, ast.Div: 12}
_BINARY_STRENGTHS |= {ast.FloorDiv: 12, ast.Mod: 12, ast.Pow: 14}
_UNARY_STRENGTH, _AWAIT_STRENGTH, _PRIMARY_STRENGTH = 13, 15, 16


def _binding_strength(node: ast.expr) -> int:
    """How tightly an expression holds together without parentheses, from a tuple (0) to a name or call (16)."""
    match node:
        case ast.Tuple():
            return 0
        case ast.BoolOp(op=operator):
            return _BOOLEAN_STRENGTHS[type(operator)]
        case ast.UnaryOp(op=ast.Not()):
            return _BOOLEAN_STRENGTHS[ast.Not]
        case ast.UnaryOp():
            return _UNARY_STRENGTH
        case ast.Compare():
            return _COMPARE_STRENGTH
        case ast.BinOp(op=operator):
            return _BINARY_STRENGTHS[type(operator)]
        case ast.Await():
            return _AWAIT_STRENGTH
        case ast.Constant(value=int()):
            # `1.real` is no attribute access.
            return _AWAIT_STRENGTH
    for strength, types in enumerate(_STRENGTHS):
        if isinstance(node, types):
            return strength
    return _PRIMARY_STRENGTH


def _is_enclosed(text: str, start: int, end: int, new: ast.expr) -> bool:
    """Whether brackets or commas stand around a place, so that all but the loosest expressions fit there."""
    before, behind = text[:start].rstrip(" \t"), text[end : end + 80].lstrip(" \t")
    return before.endswith(("(", "[", ",")) and behind.startswith((")", "]", ",")) and _binding_strength(new) >= 2


def _rewrite_call(
    source: SourceFile, call: ast.Call, change: Callable[[cst.Call], cst.BaseExpression], meant: ast.expr
) -> list[Edit]:
    """The edits that turn `call` into what `change` makes of its libcst tree, which has to read as `meant`."""
    start, end = source.span(call)
    if spares_libcst(source.text[start:end]):
        require_same_text(source, call)
        return [Edit(start, end, "")]
    with libcst_border():
        new = render(change(call_tree(source, call)))
        if ast.dump(parsed_expression(new)) != ast.dump(meant):
            raise Unfixable("the result would not be what was meant")
    return replacement(source, start, end, new)
