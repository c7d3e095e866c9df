"""Source files: from bytes to Python text and back, byte for byte wherever nothing was changed.

A `SourceFile` knows its encoding, byte order mark and newlines, and turns the parser's positions (lines and UTF-8 byte
columns) into offsets in its text. A notebook is read as one Python text, its code cells joined by newlines, with a map
back to the cells and to the strings of the JSON that hold them.
"""

from __future__ import annotations

import ast
import codecs
import re
import sys
import warnings
from bisect import bisect_right
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

from torchlint.magics import blanked, undressed, without_magics
from torchlint.notebook import Notebook
from torchlint.text import NEWLINE, Edit, SourceError, common_affixes, spliced

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    Located = ast.expr | ast.stmt | ast.keyword | ast.arg | ast.alias | ast.ExceptHandler

__all__ = ["Edit", "SourceError", "SourceFile", "common_affixes", "spliced"]

_NEWLINE_BYTES = re.compile(rb"\r\n|\r|\n")
# Enough for sums of some ten thousand terms, and far from the end of a main thread's 8 MiB of C stack.
_DEEP_RECURSION_LIMIT = 4_000


class SourceFile:
    """One file's Python text, as it stands on the disk (`raw`) or as it was edited since; not changed once made.

    `text` keeps the newlines exactly as they are in the file; a byte order mark is not part of it.
    """

    def __init__(self, path: Path, raw: bytes, text: str, encoding: str, bom: bool, notebook: Notebook | None) -> None:
        self.path = path
        self.raw = raw
        self.text = text
        self.encoding = encoding
        self.bom = bom
        self.notebook = notebook

    @classmethod
    def read(cls, path: Path) -> SourceFile:
        """The file at `path`. Raises OSError where it cannot be read and SourceError where it is no Python text."""
        return cls.from_bytes(path, path.read_bytes())

    @classmethod
    def from_bytes(cls, path: Path, data: bytes) -> SourceFile:
        """The file whose content is `data`; `path` tells a notebook by its suffix `.ipynb`."""
        bom = data.startswith(codecs.BOM_UTF8)
        body = data[3:] if bom else data
        if path.suffix == ".ipynb":
            notebook = Notebook.from_json(_decode(body, "utf-8"))
            return cls(path, data, notebook.text, "utf-8", bom, notebook)
        encoding = _declared_encoding(data) if b"coding" in body[:4096] else "utf-8"
        if b"\0" in body:
            before = body[: body.index(b"\0")]
            raise SourceError("the file holds a NUL byte", *_place_in_bytes(before))
        text = _decode(body, encoding)
        return cls(path, data, text, encoding, bom, None)

    @classmethod
    def from_text(cls, path: Path, text: str) -> SourceFile:
        """The file whose content, decoded, is `text` (an editor's buffer, standard input)."""
        try:
            return cls.from_bytes(path, text.encode("utf-8"))
        except UnicodeEncodeError as error:
            raise SourceError("the text holds a lone surrogate") from error
        except SourceError:
            # A coding comment speaks of the bytes on the disk, which are not what we were given.
            if path.suffix == ".ipynb" or "\0" in text:
                raise
        return cls(path, text.encode("utf-8"), text.removeprefix("\ufeff"), "utf-8", text.startswith("\ufeff"), None)

    def __repr__(self) -> str:
        return f"SourceFile({str(self.path)!r}, {len(self.text)} characters)"

    # Parsing

    @cached_property
    def python(self) -> str:
        """The text as the parser sees it, of the same length: a notebook's magics and broken cells are blanked out."""
        return self._parsed_notebook[0] if self.notebook else self.text

    @cached_property
    def cell_errors(self) -> list[SourceError]:
        """What is wrong with each of a notebook's cells that cannot be parsed; `parse` leaves those cells out."""
        return self._parsed_notebook[1] if self.notebook else []

    def parse(self) -> ast.Module:
        """A fresh syntax tree. Raises SourceError where the text is not Python, or is nested too deeply to parse."""
        return _parse(self.python)

    @cached_property
    def _parsed_notebook(self) -> tuple[str, list[SourceError]]:
        assert self.notebook is not None
        sources = [without_magics(cell.source) for cell in self.notebook.cells]
        joined = "\n".join(sources)
        starts = self.notebook.start_lines
        try:
            # No statement may run on from one cell into the next.
            tree = _parse(joined)
            if all(bisect_right(starts, s.lineno) == bisect_right(starts, s.end_lineno or 0) for s in tree.body):
                return joined, []
        except SourceError:
            pass
        errors = []
        for index, source in enumerate(sources):
            try:
                _parse(source)
            except SourceError as error:
                if not _parses(undressed(source)):
                    errors.append(SourceError(error.message, starts[index] + error.line - 1, error.column))
                sources[index] = blanked(source)
        return "\n".join(sources), errors

    # Positions

    @cached_property
    def line_starts(self) -> list[int]:
        """The offset at which each line begins; lines end in `\\n`, `\\r\\n` or `\\r`, as Python's do."""
        if "\r" in self.text:
            return [0, *(newline.end() for newline in NEWLINE.finditer(self.text))]
        lengths = [len(line) + 1 for line in self.text.split("\n")]
        lengths.pop()
        return list(accumulate(lengths, initial=0))

    def offset(self, line: int, column: int) -> int:
        """The character offset of an `ast` position: `line` counts from 1, `column` counts UTF-8 bytes from 0."""
        start = self.line_starts[line - 1]
        before = self.text[start : start + column]
        if before.isascii():
            return start + column
        return start + len(before.encode("utf-8", "surrogatepass")[:column].decode("utf-8", "surrogatepass"))

    def position(self, offset: int) -> tuple[int, int]:
        """The line and the column, both from 1 and in characters, of a character offset."""
        line = bisect_right(self.line_starts, offset)
        return line, offset - self.line_starts[line - 1] + 1

    def span(
        self, node: ast.expr | ast.stmt | ast.keyword | ast.arg | ast.alias | ast.ExceptHandler
    ) -> tuple[int, int]:
        """The character offsets at which a node begins and ends (decorators are not part of a function's span)."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset)

    def segment(self, node: Located) -> str:
        """The text of a node."""
        start, end = self.span(node)
        return self.text[start:end]

    def line(self, number: int) -> str:
        """Line `number`, counted from 1, without its newline."""
        starts = self.line_starts
        end = starts[number] if number < len(starts) else len(self.text)
        line = self.text[starts[number - 1] : end]
        return line[:-2] if line.endswith("\r\n") else line[:-1] if line.endswith(("\n", "\r")) else line

    @cached_property
    def newline(self) -> str:
        """The newline that most lines end in; `\\n` where there is none."""
        windows = self.text.count("\r\n")
        counts = {"\n": self.text.count("\n") - windows, "\r\n": windows, "\r": self.text.count("\r") - windows}
        return max(counts, key=counts.__getitem__)

    def cell_position(self, line: int) -> tuple[int, int]:
        """For a notebook: the cell of a line, counting all its cells from 1, and the row in that cell, from 1."""
        assert self.notebook is not None
        index = bisect_right(self.notebook.start_lines, line) - 1
        return self.notebook.cells[index].number, line - self.notebook.start_lines[index] + 1

    def place(self, line: int) -> tuple[int, int]:
        """The cell of a line, 0 where this is no notebook, and its row in the cell or file."""
        return self.cell_position(line) if self.notebook and self.notebook.cells else (0, line)

    def is_last_line(self, line: int) -> bool:
        """Whether a line is the last of the file, or of its cell: what follows does not belong to the same code."""
        return line >= len(self.line_starts) or (self.notebook is not None and self.cell_position(line + 1)[1] == 1)

    # Writing

    def edited(self, edits: Iterable[Edit]) -> SourceFile:
        """This file after `edits`, in any order. Raises ValueError where they overlap, or reach across two cells."""
        edits = sorted(edits)
        if self.notebook is None:
            return SourceFile(self.path, self.raw, spliced(self.text, edits), self.encoding, self.bom, None)
        notebook = self.notebook.edited(edits)
        return SourceFile(self.path, self.raw, notebook.text, self.encoding, self.bom, notebook)

    def encode(self) -> bytes:
        """The whole file's bytes, with this text. Raises SourceError where its encoding cannot express them."""
        body = self.notebook.to_json() if self.notebook else self.text
        try:
            return (codecs.BOM_UTF8 if self.bom else b"") + body.encode(self.encoding)
        except UnicodeError as error:
            raise SourceError(f"the fixed text cannot be written as {self.encoding}") from error


def _declared_encoding(data: bytes) -> str:
    """The encoding that a coding comment in the first two lines declares (PEP 263), else UTF-8."""
    import tokenize

    head = [line + b"\n" for line in _NEWLINE_BYTES.split(data[:4096], maxsplit=2)[:2]]
    if b"coding" not in b"".join(head):
        return "utf-8"
    try:
        encoding, _ = tokenize.detect_encoding(iter(head).__next__)
    except SyntaxError as error:
        raise SourceError(str(error.msg)) from error
    return "utf-8" if encoding == "utf-8-sig" else encoding


def _decode(body: bytes, encoding: str) -> str:
    try:
        text = body.decode(encoding)
    except UnicodeDecodeError as error:
        raise SourceError(
            f"the file is not {encoding}: {error.reason}", *_place_in_bytes(body[: error.start])
        ) from error
    except LookupError as error:
        raise SourceError(f"unknown encoding {encoding}") from error
    except Exception as error:
        # A codec that maps bytes to bytes, or that is broken: the coding comment is somebody's joke.
        raise SourceError(f"the encoding {encoding} holds no text") from error
    if encoding != "utf-8" and text.encode(encoding, "replace") != body:
        raise SourceError(f"the file does not survive decoding and encoding as {encoding}")
    return text


def _place_in_bytes(before: bytes) -> tuple[int, int]:
    """The line and column, from 1, at which the bytes after `before` stand."""
    lines = _NEWLINE_BYTES.split(before)
    return len(lines), len(lines[-1].decode("utf-8", "replace")) + 1


def _parse(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            try:
                return ast.parse(text)
            except RecursionError:
                return _parse_deep(text)
        except SyntaxError as error:
            lines = len(NEWLINE.findall(text)) + 1
            raise SourceError(error.msg, min(max(error.lineno or 1, 1), lines), max(error.offset or 1, 1)) from error
        except (RecursionError, MemoryError) as error:
            raise SourceError("nested too deeply to parse") from error
        except ValueError as error:
            raise SourceError(str(error)) from error


def _parses(text: str) -> bool:
    try:
        _parse(text)
    except SourceError:
        return False
    return True


def _parse_deep(text: str) -> ast.Module:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _DEEP_RECURSION_LIMIT))
    try:
        return ast.parse(text)
    finally:
        sys.setrecursionlimit(limit)
