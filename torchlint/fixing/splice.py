"""The border between the original text, syntax trees and libcst: what every edit here is made with.

libcst is not byte-exact and raises odd errors on odd input, so that nothing of it is trusted: a tree has to give its
text back before it is changed, and only the characters that changed are taken from what it renders. It is imported when
the first edit is built, never before.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from torchlint.comments import find_spans
from torchlint.source import Edit, SourceFile, common_affixes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import libcst as cst


BLOCKS = ("body", "orelse", "finalbody")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)

_probing: ContextVar[bool] = ContextVar("probing", default=False)


class Unfixable(Exception):  # noqa: N818  (it is an answer, not a fault)
    """The text does not allow this edit; the message says why."""


def can_build(build: Callable[[], Sequence[Edit] | None]) -> bool:
    """Whether an edit can be built, found out without libcst where that is possible: importing it takes longer than
    checking a small project.
    """
    token = _probing.set(True)
    try:
        return bool(build())
    except Exception:
        return False
    finally:
        _probing.reset(token)


def spares_libcst(code: str) -> bool:
    """Whether only the answer of `can_build` is wanted, and libcst would not change it: what it is given is our own,
    or holds no comment, which is all that stops the edits of an expression.
    """
    return _probing.get() and not comments_in(code)


@contextmanager
def libcst_border() -> Iterator[None]:
    """Turns whatever libcst raises on odd input (RecursionError, TypeError, a panic of its parser) into Unfixable."""
    try:
        yield
    except Unfixable:
        raise
    except Exception as error:
        raise Unfixable(f"libcst cannot edit this: {type(error).__name__}") from error
    except BaseException as error:
        if type(error).__name__ == "PanicException":
            raise Unfixable("libcst's parser failed") from error
        raise


def call_tree(source: SourceFile, call: ast.Call) -> cst.Call:
    """The libcst tree of a call, which renders as the call's text with newlines that are `\\n`."""
    import libcst as cst

    require_same_text(source, call)
    text = unix_newlines(source.segment(call))
    # The parentheses allow a chain that runs over several lines inside brackets further out.
    tree = cst.parse_expression(f"({text})")
    tree = tree.with_changes(lpar=tree.lpar[1:], rpar=tree.rpar[:-1])
    if not isinstance(tree, cst.Call) or render(tree) != text:
        raise Unfixable("libcst does not give the text back as it is")
    return tree


def render(node: cst.CSTNode) -> str:
    import libcst as cst

    return cst.Module([]).code_for_node(node)


def parsed_expression(text: str) -> ast.expr:
    """The expression that `text` is. Raises Unfixable where it is none."""
    try:
        return ast.parse(f"({text}\n)", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Unfixable("the text is no expression") from error


def require_same_text(source: SourceFile, node: ast.expr) -> None:
    """Raises Unfixable where the text at a node is not the node (Python before 3.12 misplaces those in f-strings)."""
    with libcst_border():
        if ast.dump(parsed_expression(source.segment(node))) != ast.dump(node):
            raise Unfixable("the place of the expression in the text is not known")


def path_to(tree: ast.Module, node: ast.expr | ast.stmt) -> list[ast.AST]:
    """The nodes from a fresh tree of the same text down to the one that stands where `node` stands."""
    place = (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)
    path: list[ast.AST] = [tree]
    while True:
        for child in ast.iter_child_nodes(path[-1]):
            if not hasattr(child, "lineno"):
                # Match cases and comprehensions have no place of their own.
                inner = [found for found in ast.iter_child_nodes(child) if _holds(found, place)]
                if inner:
                    path += [child, inner[0]]
                    break
            elif _holds(child, place):
                path.append(child)
                break
        else:
            raise Unfixable("the place of the code in the file is not known")
        if type(path[-1]) is type(node) and _place(path[-1]) == place:
            return path


def _place(node: ast.AST) -> tuple[int, int, int, int]:
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset  # type: ignore[attr-defined]


def _holds(node: ast.AST, place: tuple[int, int, int | None, int | None]) -> bool:
    if not hasattr(node, "lineno"):
        return False
    line, column, end_line, end_column = _place(node)
    return (line, column) <= place[:2] and (place[2] or 0, place[3] or 0) <= (end_line, end_column)


def reads_free(function: ast.AST, name: str) -> bool:
    """Whether a function mentions a name that it does not bind itself."""
    mentions = [node for node in ast.walk(function) if isinstance(node, ast.Name) and node.id == name]
    bound = any(not is_load(node) for node in mentions) or any(
        isinstance(node, ast.arg) and node.arg == name for node in ast.walk(function)
    )
    return bool(mentions) and not bound


def is_load(node: ast.Name) -> bool:
    """Whether a name is read, not bound or deleted."""
    return isinstance(node.ctx, ast.Load)


def dump_all(statements: Sequence[ast.stmt]) -> list[str]:
    return [ast.dump(statement) for statement in statements]


def unix_newlines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def comments_in(text: str) -> Counter[str]:
    return Counter(text[start:end] for start, end in find_spans(text).comments)


def replacement(source: SourceFile, start: int, end: int, new: str) -> list[Edit]:
    """The one smallest edit that makes the text from `start` to `end` read `new`, whose newlines are `\\n`.

    Raises Unfixable where a comment would be lost. Newlines that stay keep their form, new ones take the file's.
    """
    if source.place(source.position(start)[0])[0] != source.place(source.position(end)[0])[0]:
        raise Unfixable("the code stands in two cells")
    old = unix_newlines(source.text[start:end])
    if comments_in(old) - comments_in(new):
        raise Unfixable("a comment would be lost")
    if old == new:
        return []
    before, behind = common_affixes(old, new)
    # Where each character of `old` stands in the text, and where the text ends.
    places = [start + match.start() for match in re.finditer(r"\r\n|[\s\S]", source.text[start:end])] + [end]
    content = new[before : len(new) - behind]
    return [Edit(places[before], places[len(old) - behind], content.replace("\n", source.newline))]
