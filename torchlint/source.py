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
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    Located = ast.expr | ast.stmt | ast.keyword | ast.arg | ast.alias | ast.ExceptHandler

_NEWLINE = re.compile(r"\r\n|\r|\n")
_NEWLINE_BYTES = re.compile(rb"\r\n|\r|\n")
# Enough for sums of some ten thousand terms, and far from the end of a main thread's 8 MiB of C stack.
_DEEP_RECURSION_LIMIT = 4_000


class SourceError(Exception):
    """A file that cannot be read as Python, with the place that says so (line and column count from 1)."""

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column


@dataclass(frozen=True, slots=True, order=True)
class Edit:
    """Replace the characters `start` to `end` of a `SourceFile.text` by `content`."""

    start: int
    end: int
    content: str


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
        sources = [_without_magics(cell.source) for cell in self.notebook.cells]
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
                errors.append(SourceError(error.message, starts[index] + error.line - 1, error.column))
                sources[index] = re.sub(r"[^\r\n]", " ", source)
        return "\n".join(sources), errors

    # Positions

    @cached_property
    def line_starts(self) -> list[int]:
        """The offset at which each line begins; lines end in `\\n`, `\\r\\n` or `\\r`, as Python's do."""
        if "\r" in self.text:
            return [0, *(newline.end() for newline in _NEWLINE.finditer(self.text))]
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


def spliced(text: str, edits: Sequence[Edit]) -> str:
    """`text` after `edits`, which are sorted. Raises ValueError where they overlap or lie outside."""
    parts: list[str] = []
    done = 0
    for edit in edits:
        if not done <= edit.start <= edit.end <= len(text):
            raise ValueError(f"{edit} overlaps the edit before it, or lies outside the text")
        parts += (text[done : edit.start], edit.content)
        done = edit.end
    parts.append(text[done:])
    return "".join(parts)


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
            lines = len(_NEWLINE.findall(text)) + 1
            raise SourceError(error.msg, min(max(error.lineno or 1, 1), lines), max(error.offset or 1, 1)) from error
        except (RecursionError, MemoryError) as error:
            raise SourceError("nested too deeply to parse") from error
        except ValueError as error:
            raise SourceError(str(error)) from error


def _parse_deep(text: str) -> ast.Module:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _DEEP_RECURSION_LIMIT))
    try:
        return ast.parse(text)
    finally:
        sys.setrecursionlimit(limit)


# Notebooks


@dataclass(frozen=True, slots=True)
class JsonString:
    """One string of a notebook's JSON: where it stands, quotes included, and what it says."""

    start: int
    end: int
    value: str


@dataclass(frozen=True, slots=True)
class Cell:
    """One code cell: its number among all cells (from 1), its source now, and the JSON strings it was read from."""

    number: int
    source: str
    strings: tuple[JsonString, ...]
    is_list: bool


@dataclass(frozen=True, slots=True)
class Notebook:
    """The code cells of a notebook, and the JSON text around them."""

    json: str
    cells: tuple[Cell, ...]
    start_lines: list[int] = field(default_factory=list, compare=False)

    def __post_init__(self) -> None:
        lengths = [len(_NEWLINE.findall(cell.source)) + 1 for cell in self.cells]
        self.start_lines.extend(accumulate(lengths[:-1], initial=1))

    @classmethod
    def from_json(cls, text: str) -> Notebook:
        """The notebook that `text` encodes. Raises SourceError where it is no JSON, or no notebook."""
        if not text.strip():
            return cls(text, ())
        try:
            return cls(text, _NotebookReader(text).cells())
        except RecursionError as error:
            raise SourceError("the notebook's JSON is nested too deeply") from error
        except ValueError as error:
            offset = min(getattr(error, "pos", 0), len(text))
            before = text[:offset]
            message = getattr(error, "msg", str(error))
            raise SourceError(
                f"the notebook is not valid JSON: {message}", before.count("\n") + 1, offset - before.rfind("\n")
            ) from error

    @property
    def text(self) -> str:
        """All code cells' sources, a newline between them."""
        return "\n".join(cell.source for cell in self.cells)

    def edited(self, edits: Sequence[Edit]) -> Notebook:
        """This notebook after sorted `edits` of its text, each of which has to lie in one cell."""
        cells = []
        start = placed = 0
        for cell in self.cells:
            end = start + len(cell.source)
            own = [
                Edit(edit.start - start, edit.end - start, edit.content)
                for edit in edits
                if start <= edit.start and edit.end <= end
            ]
            placed += len(own)
            cells.append(replace(cell, source=spliced(cell.source, own)) if own else cell)
            start = end + 1
        if placed != len(edits):
            raise ValueError("an edit reaches across two cells")
        return Notebook(self.json, tuple(cells))

    def to_json(self) -> str:
        """The JSON with the sources as they are now; everything that did not change stays as it stands."""
        edits = [edit for cell in self.cells for edit in _resplice(self.json, cell)]
        return spliced(self.json, edits)


class _NotebookReader:
    """Reads the few parts of a notebook's JSON that matter here, and remembers where they stand.

    The standard decoder reads everything else; it raises json.JSONDecodeError, a ValueError, with the position.
    """

    def __init__(self, text: str) -> None:
        import json

        self._text = text
        self._decode = json.JSONDecoder().raw_decode
        self._error = json.JSONDecodeError

    def cells(self) -> tuple[Cell, ...]:
        cells: tuple[Cell, ...] | None = None
        metadata: Any = None
        end = self._space(0)
        for key, at in self._members(end, "the notebook"):
            if key == "cells":
                cells, end = self._cells(at)
            else:
                value, end = self._decode(self._text, at)
                metadata = value if key == "metadata" else metadata
            self._end = end
        if self._space(self._end) != len(self._text):
            raise self._error("text after the end", self._text, self._end)
        if cells is None:
            raise SourceError("the notebook has no cells (its format is older than 4, or it is none)")
        return cells if _language(metadata) in ("python", "ipython") else ()

    def _cells(self, at: int) -> tuple[tuple[Cell, ...], int]:
        cells = []
        for number, start in enumerate(self._items(at), 1):
            kind: Any = None
            strings: tuple[JsonString, ...] = ()
            is_list = False
            for key, value_at in self._members(start, "a cell"):
                if key == "source":
                    is_list = self._text[value_at] == "["
                    strings = (
                        tuple(map(self._located, self._items(value_at))) if is_list else (self._located(value_at),)
                    )
                    self._end = self._end if is_list else strings[0].end
                else:
                    value, self._end = self._decode(self._text, value_at)
                    kind = value if key == "cell_type" else kind
            if kind == "code":
                cells.append(Cell(number, "".join(string.value for string in strings), strings, is_list))
        return tuple(cells), self._end

    def _located(self, at: int) -> JsonString:
        self._expect('"', at, "a cell's source has to be text")
        value, self._end = self._decode(self._text, at)
        return JsonString(at, self._end, value)

    def _members(self, at: int, what: str) -> Iterator[tuple[str, int]]:
        """Each key of the object at `at`, with its value's place; the caller sets `_end` to where the value ends."""
        self._expect("{", at, f"{what} has to be an object")
        for key_at in self._elements(at, "}"):
            self._expect('"', key_at, "a key has to be a string")
            key, end = self._decode(self._text, key_at)
            colon = self._space(end)
            self._expect(":", colon, "expected a colon")
            yield key, self._space(colon + 1)

    def _items(self, at: int) -> Iterator[int]:
        """The place of each item of the array at `at`; the caller sets `_end` to where the item ends."""
        self._expect("[", at, "expected a list")
        return self._elements(at, "]")

    def _elements(self, at: int, closing: str) -> Iterator[int]:
        at = self._space(at + 1)
        if self._text[at : at + 1] == closing:
            self._end = at + 1
            return
        while True:
            yield at
            at = self._space(self._end)
            if self._text[at : at + 1] == closing:
                self._end = at + 1
                return
            self._expect(",", at, "expected a comma")
            at = self._space(at + 1)

    def _expect(self, character: str, at: int, message: str) -> None:
        if self._text[at : at + 1] != character:
            raise self._error(message, self._text, at)

    def _space(self, at: int) -> int:
        """The place of the first character from `at` that is no white space."""
        while self._text[at : at + 1] in (" ", "\n", "\r", "\t"):
            at += 1
        return at


def _language(metadata: Any) -> str:
    """The language that a notebook's metadata names, in lower case; Python where they name none."""
    if isinstance(metadata, dict):
        for table, key in (("language_info", "name"), ("kernelspec", "language")):
            entry = metadata.get(table)
            if isinstance(entry, dict) and isinstance(entry.get(key), str):
                return str(entry[key]).lower()
    return "python"


def _resplice(json_text: str, cell: Cell) -> Iterator[Edit]:
    """The edits of the notebook's JSON that give a cell its present source, none where it did not change."""
    old = [string.value for string in cell.strings]
    if "".join(old) == cell.source:
        return
    new = re.findall(r"[^\n]*\n|[^\n]+", cell.source) if cell.is_list else [cell.source]
    if not cell.strings:
        raise SourceError("a cell without a source cannot be given one")
    from difflib import SequenceMatcher

    strings = cell.strings
    separator = json_text[strings[0].end : strings[1].start] if len(strings) > 1 else ",\n    "
    for tag, first, last, new_first, new_last in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        replaced, lines = strings[first:last], new[new_first:new_last]
        context = [json_text[string.start : string.end] for string in replaced or strings]
        if len(replaced) == len(lines):
            tokens = [_edited_token(token, line) for token, line in zip(context, lines, strict=True)]
        else:
            tokens = [_token(line, context) for line in lines]
        content = separator.join(tokens)
        if replaced and lines:
            yield Edit(replaced[0].start, replaced[-1].end, content)
        elif replaced:
            # Delete one separator too: the one behind, or, behind the last string, the one before.
            start = strings[first - 1].end if last == len(strings) and first else replaced[0].start
            yield Edit(start, strings[last].start if last < len(strings) else replaced[-1].end, "")
        elif first < len(strings):
            yield Edit(strings[first].start, strings[first].start, content + separator)
        else:
            yield Edit(strings[-1].end, strings[-1].end, separator + content)


_JSON_CHARACTER = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|[^\\]", re.DOTALL
)


def _edited_token(token: str, value: str) -> str:
    """The JSON string `token` with the new value, its unchanged beginning and end as they were written."""
    import json

    characters = _JSON_CHARACTER.findall(token[1:-1])
    old = json.loads(token, strict=False)
    start, end = common_affixes(old, value)
    middle = _token(value[start : len(value) - end], [token])[1:-1]
    return f'"{"".join(characters[:start])}{middle}{"".join(characters[len(characters) - end :])}"'


def _token(value: str, context: Sequence[str]) -> str:
    """`value` as a JSON string that writes characters outside ASCII as the strings of `context` do."""
    import json

    raw = any(not token.isascii() for token in context)
    escaped = any(re.search(r"\\u(?!00[0-7])", token) for token in context)
    return json.dumps(value, ensure_ascii=escaped and not raw)


def common_affixes(old: str, new: str) -> tuple[int, int]:
    """How many characters two texts share at their beginnings, and then at their ends, without overlap."""
    shortest = min(len(old), len(new))
    start = 0
    while start < shortest and old[start] == new[start]:
        start += 1
    end = 0
    while end < shortest - start and old[-1 - end] == new[-1 - end]:
        end += 1
    return start, end


# Magics: what IPython accepts in a cell and Python does not

# Cell magics whose body is Python that runs in the notebook.
_PYTHON_CELL_MAGICS = frozenset(
    {"capture", "time", "timeit", "prun", "python", "python3", "debug", "snakeviz", "memit"}
)
_CELL_MAGIC = re.compile(r"\s*%%(\w+)")
_LINE_MAGIC = re.compile(r"(?P<target>[ \t]*(?:[\w.,\[\]\"'() \t]+=(?!=)[ \t]*)?)(?P<magic>[%!?]\S?.*)\Z", re.DOTALL)
_HELP = re.compile(r"[ \t]*[\w.*\[\]\"'()%]+\?\??[ \t]*(?:#.*)?\Z")
_CODE_PART = re.compile(
    r"""(?P<triple>\"{3}|'{3})|"(?:\\.|[^"\\\n\r])*"?|'(?:\\.|[^'\\\n\r])*'?|\#.*|(?P<open>[(\[{])|(?P<close>[)\]}])""",
    re.DOTALL,
)


def _without_magics(source: str) -> str:
    """A cell's source with its magics replaced by harmless Python of the same length."""
    if not re.search(r"[%!?]", source):
        return source
    lines = re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", source)
    cell_magic = _CELL_MAGIC.match(source)
    if cell_magic:
        if cell_magic[1] not in _PYTHON_CELL_MAGICS:
            return re.sub(r"[^\r\n]", " ", source)
        opening = source[: cell_magic.end()].lstrip("\r\n \t")
        magic_line = next(index for index, line in enumerate(lines) if line.lstrip().startswith(opening[:2]))
        lines[magic_line] = _blank(lines[magic_line], "")
    scanner = _LineScanner()
    continued = False
    for index, line in enumerate(lines):
        body = line.rstrip("\r\n")
        if continued:
            continued = body.endswith("\\")
            lines[index] = _blank(line, "")
        elif not scanner.at_statement:
            scanner.feed(line)
        elif magic := _LINE_MAGIC.match(body):
            continued = body.endswith("\\")
            lines[index] = _blank(line, magic["target"] + "0")
        elif _HELP.match(body):
            indent = body[: len(body) - len(body.lstrip())]
            lines[index] = _blank(line, indent + "0")
        else:
            scanner.feed(line)
    return "".join(lines)


def _blank(line: str, content: str) -> str:
    """`content`, filled up with blanks to the length of `line`, and its newline."""
    body = line.rstrip("\r\n")
    return content.ljust(len(body)) + line[len(body) :]


class _LineScanner:
    """Follows brackets, strings and backslashes through the lines of a cell, to know where statements can begin."""

    def __init__(self) -> None:
        self._depth = 0
        self._quote = ""
        self._backslash = False

    @property
    def at_statement(self) -> bool:
        """Whether the next line begins a statement."""
        return not (self._depth or self._quote or self._backslash)

    def feed(self, line: str) -> None:
        """Read one line, with its newline."""
        body = line.rstrip("\r\n")
        self._backslash = False
        at = 0
        while at < len(body):
            if self._quote:
                close = re.compile(rf"(?:\\.|[^\\])*?{self._quote}", re.DOTALL).match(body, at)
                if close is None:
                    return
                self._quote, at = "", close.end()
                continue
            part = _CODE_PART.search(body, at)
            if part is None:
                break
            at = part.end()
            if part["triple"]:
                self._quote = part["triple"]
            elif part["open"]:
                self._depth += 1
            elif part["close"]:
                self._depth = max(0, self._depth - 1)
            elif part[0].startswith("#"):
                return
        self._backslash = body.endswith("\\")
