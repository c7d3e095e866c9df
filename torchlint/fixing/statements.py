"""Edits of whole lines: decorate a function, insert statements, wrap statements in `with`."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from torchlint.fixing.expressions import moved_device, set_argument
from torchlint.fixing.splice import (
    BLOCKS,
    Unfixable,
    comments_in,
    dump_all,
    libcst_border,
    parsed_expression,
    path_to,
    render,
    replacement,
    spares_libcst,
    unix_newlines,
)
from torchlint.source import Edit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torchlint.source import SourceFile

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def decorate(source: SourceFile, function: Definition, decorator: str) -> list[Edit]:
    """Put the line `@decorator` right above a `def`, behind the decorators that it has."""
    place = source.offset(function.lineno, function.col_offset)
    if spares_libcst(decorator):
        return _line_before(source, place, f"@{decorator}")
    with libcst_border():
        import libcst as cst

        line = render(cst.Decorator(cst.parse_expression(decorator))).strip()
    return _line_before(source, place, line)


def insert_before(source: SourceFile, statement: ast.stmt, code: str) -> list[Edit]:
    """Put the statements `code` on lines of their own before `statement`, at its indentation."""
    return _line_before(source, _statement_start(source, statement), _statements(code))


def insert_after(source: SourceFile, statement: ast.stmt, code: str) -> list[Edit]:
    """Put the statements `code` on lines of their own behind `statement`, at its indentation.

    Comments that follow a block at its own, deeper indentation stay with the block.
    """
    indentation = _indentation(source, _statement_start(source, statement))
    end = _line_end(source, source.span(statement)[1])
    if hasattr(statement, "body"):
        end = _block_end(source, end, indentation)
    newline = source.newline
    lines = "".join(newline + indentation + line if line else newline for line in _statements(code).split("\n"))
    return [Edit(end, end, lines)]


def drop_statement(source: SourceFile, statement: ast.stmt) -> list[Edit]:
    """Delete the lines of a statement. The caller knows that another one is left in its block."""
    if _comment_behind(source, statement):
        raise Unfixable("a comment would be lost")
    return _drop_lines(source, statement)


def move_into_statement(
    source: SourceFile, move: ast.Call, factory: ast.Call, move_statement: ast.Assign
) -> list[Edit]:
    """`x = torch.zeros(n)` … `x = x.to(device)` → `x = torch.zeros(n, device=device)`.

    A comment behind the move goes behind the creation, or stays on a line of its own where one is there already. The
    caller knows that nothing between the two uses x, and that both are of one block.
    """
    if move_statement.value is not move:
        raise Unfixable("the statement does more than to move")
    device = moved_device(source, move, factory)
    creation = _creation_before(source, factory, move_statement, parsed_expression(device))
    edits = set_argument(source, factory, "device", device)
    comment = _comment_behind(source, move_statement)
    if not comment:
        return [*edits, *_drop_lines(source, move_statement)]
    if _comment_behind(source, creation):
        start, end = source.span(move_statement)
        _indentation(source, start)
        if comments_in(source.text[start:end]):
            raise Unfixable("a comment would be lost")
        return [*edits, Edit(start, source.text.index("#", end), "")]
    behind = _line_end(source, source.span(creation)[1])
    return [*edits, Edit(behind, behind, f"  {comment}"), *_drop_lines(source, move_statement)]


def _comment_behind(source: SourceFile, statement: ast.stmt) -> str:
    """The comment that follows a statement on its last line."""
    end = source.span(statement)[1]
    return source.text[end : _line_end(source, end)].strip()


def _drop_lines(source: SourceFile, statement: ast.stmt) -> list[Edit]:
    """The deletion of a statement's lines, with what stands behind it. Raises Unfixable where it holds a comment."""
    start, end = source.span(statement)
    if comments_in(source.text[start:end]):
        raise Unfixable("a comment would be lost")
    start = _statement_start(source, statement)
    start -= len(_indentation(source, start))
    end = _line_end(source, end)
    number = source.position(end)[0]
    if not source.is_last_line(number):
        return [Edit(start, source.line_starts[number], "")]
    # The last line of a cell, or of a file without a final newline: the newline before the statement goes instead.
    first = source.position(start)[0]
    if source.place(first)[1] > 1:
        start = source.line_starts[first - 2] + len(source.line(first - 1))
    return [Edit(start, end, "")]


def _creation_before(source: SourceFile, first: ast.expr, last: ast.stmt, value: ast.expr) -> ast.stmt:
    """The statement of `first`, in the block of `last`. Raises Unfixable where one from it on to `last` may change
    what `value` reads.
    """
    *_, parent, found = path_to(source.parse(), last)
    blocks = [block for block in (getattr(parent, name, None) for name in BLOCKS) if isinstance(block, list)]
    block = next(block for block in blocks if found in block)
    before: list[ast.stmt] = [
        s for s in block[: block.index(found)] if (s.end_lineno, s.end_col_offset) > (first.lineno, first.col_offset)
    ]
    if not before or before[0].lineno > first.lineno:
        raise Unfixable("creation and move are not in one block")
    read = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
    fixed = all(isinstance(node, ast.Name | ast.Constant | ast.expr_context) for node in ast.walk(value))
    for node in (node for statement in before[1:] for node in ast.walk(statement)):
        if isinstance(node, ast.Name) and node.id in read and not isinstance(node.ctx, ast.Load):
            raise Unfixable("the device is known only after the creation")
        if not fixed and (isinstance(node, ast.Call) or isinstance(getattr(node, "ctx", None), ast.Store)):
            raise Unfixable("the device may be known only after the creation")
    return before[0]


def wrap_in_with(source: SourceFile, statements: Sequence[ast.stmt], context: str) -> list[Edit]:
    """Indent consecutive `statements` of one block under `with context:`. Strings of several lines stay as they are."""
    first, last = statements[0], statements[-1]
    start = _statement_start(source, first)
    indentation = _indentation(source, start)
    start -= len(indentation)
    end = _line_end(source, source.span(last)[1])
    if hasattr(last, "body"):
        end = _block_end(source, end, indentation)
    old = unix_newlines(source.text[start:end])
    with libcst_border():
        import libcst as cst

        header = "if 1:\n" if indentation else ""
        module = cst.parse_module(f"{header}{old}\n")
        if module.code != f"{header}{old}\n":
            raise Unfixable("libcst does not give the statements back as they are")
        block = module.body[0] if header else module
        assert isinstance(block, cst.If | cst.Module)
        body = block.body if header else cst.IndentedBlock(module.body, footer=module.footer)
        assert isinstance(body, cst.IndentedBlock)
        if not header and module.header:
            raise Unfixable("a comment stands before the first statement")
        inner = body.with_changes(indent=_indentation_unit(source, indentation))
        wrapped = cst.With([cst.WithItem(cst.parse_expression(context))], inner)
        if header:
            outer = cst.IndentedBlock([wrapped], indent=body.indent)
            module = module.with_changes(body=[block.with_changes(body=outer)])
        else:
            module = module.with_changes(body=[wrapped], footer=[])
        new = module.code[len(header) :].removesuffix("\n")
        meant = ast.parse(f"{header}{old}\n").body
        meant = meant[0].body if header and isinstance(meant[0], ast.If) else meant
        found = ast.parse(f"{header}{new}\n").body
        found = found[0].body if header and isinstance(found[0], ast.If) else found
        if len(found) != 1 or not isinstance(found[0], ast.With) or dump_all(found[0].body) != dump_all(meant):
            raise Unfixable("the statements would change when they are indented")
    if len(meant) != len(statements) or dump_all(meant) != dump_all(statements):
        raise Unfixable("the statements do not stand on lines of their own")
    # libcst indents blank lines of a module's own block too.
    with_line, *lines = new.split("\n")
    lines = [line if line.strip() else old_line for line, old_line in zip(lines, old.split("\n"), strict=True)]
    return replacement(source, start, end, "\n".join([with_line, *lines]))


def _statement_start(source: SourceFile, statement: ast.stmt) -> int:
    """Where a statement begins, its decorators included."""
    if isinstance(statement, Definition) and statement.decorator_list:
        return source.text.rindex("@", 0, source.span(statement.decorator_list[0])[0])
    start = source.offset(statement.lineno, statement.col_offset)
    if isinstance(statement, ast.If) and source.text.startswith("elif", start):
        raise Unfixable("the statement is a branch of another one")
    return start


def _statements(code: str) -> str:
    """`code` as libcst renders it, without its last newline. Raises Unfixable where it is no Python."""
    if spares_libcst(code):
        return code
    with libcst_border():
        import libcst as cst

        return cst.parse_module(code).code.removesuffix("\n")


def _line_before(source: SourceFile, offset: int, code: str) -> list[Edit]:
    indentation = _indentation(source, offset)
    lines = "".join(line + source.newline + indentation if line else source.newline for line in code.split("\n"))
    return [Edit(offset, offset, lines)]


def _indentation(source: SourceFile, offset: int) -> str:
    """The white space before the statement at `offset`. Raises Unfixable where it does not begin its line."""
    line, column = source.position(offset)
    indentation = source.line(line)[: column - 1]
    if indentation.strip() or (line > 1 and source.line(line - 1).endswith("\\")):
        raise Unfixable("the statement does not begin its line")
    return indentation


def _line_end(source: SourceFile, offset: int) -> int:
    """Where the line of a statement that ends at `offset` ends, comments included, before its newline."""
    number, column = source.position(offset)
    line = source.line(number)
    rest = line[column - 1 :].strip()
    if rest and not rest.startswith("#"):
        raise Unfixable("another statement follows on the line")
    return source.line_starts[number - 1] + len(line)


def _block_end(source: SourceFile, end: int, indentation: str) -> int:
    """`end`, moved behind the comments on the lines below that are indented deeper than the block's own statement."""
    number = source.position(end)[0] + 1
    while number <= len(source.line_starts):
        line = source.line(number)
        deeper = line.startswith(indentation) and line[len(indentation) :].lstrip(" \t") != line[len(indentation) :]
        if line.strip() and not (deeper and line.lstrip().startswith("#")):
            break
        if source.is_last_line(number - 1):
            break
        if line.strip():
            end = source.line_starts[number - 1] + len(line)
        number += 1
    return end


def _indentation_unit(source: SourceFile, indentation: str) -> str:
    """One step of the file's indentation."""
    if "\t" in indentation:
        return "\t"
    found = re.search(r":[ \t]*(?:#.*)?(?:\r\n|\r|\n)(?P<unit>\t|[ ]+)(?=\S)", source.text)
    return found["unit"] if found and len(found["unit"]) <= 8 else "    "
