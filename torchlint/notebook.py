"""Notebooks: the code cells of a `.ipynb` file, and the strings of its JSON that hold them.

Only what changed is written: the strings of changed cells are spliced into the JSON, which otherwise stays as it is,
byte for byte.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from torchlint.text import NEWLINE, Edit, SourceError, common_affixes, spliced

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


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
        # A `\r` at the end of a cell is one newline with the `\n` that joins it to the next.
        lengths = [len(NEWLINE.findall(cell.source)) + (not cell.source.endswith("\r")) for cell in self.cells]
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
        rest: dict[str, Any] = {}
        for key, at in self._members(self._space(0), "the notebook"):
            if key == "cells":
                cells, self._end = self._cells(at)
            else:
                value, self._end = self._decode(self._text, at)
                if key in ("metadata", "nbformat"):
                    rest[key] = value
        if self._space(self._end) != len(self._text):
            raise self._error("text after the end", self._text, self._end)
        _require_format(rest.get("nbformat"), cells)
        return cells if cells and _language(rest.get("metadata")) in ("python", "ipython") else ()

    def _cells(self, at: int) -> tuple[tuple[Cell, ...], int]:
        cells = []
        for number, start in enumerate(self._items(at), 1):
            kind: Any = None
            metadata: Any = None
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
                    metadata = value if key == "metadata" else metadata
            if kind == "code" and _is_python_cell(metadata):
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


def _require_format(nbformat: Any, cells: tuple[Cell, ...] | None) -> None:
    if isinstance(nbformat, int) and nbformat < 4:
        # Before format 4, cells lay in worksheets: https://nbformat.readthedocs.io/en/latest/changelog.html
        raise SourceError(
            f"the notebook has format {nbformat}, and torchlint reads 4: convert it with "
            "`jupyter nbconvert --to notebook --inplace`"
        )
    if cells is None:
        raise SourceError("the JSON is no notebook: it has no cells")


def _is_python_cell(metadata: Any) -> bool:
    """Whether a code cell is in the kernel's language; VS Code's polyglot notebooks name another in its metadata."""
    editor = metadata.get("vscode") if isinstance(metadata, dict) else None
    language = editor.get("languageId") if isinstance(editor, dict) else None
    return language is None or language == "python"


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
    if not cell.strings:
        raise SourceError("a cell without a source cannot be given one")
    from difflib import SequenceMatcher

    strings = cell.strings
    # A list whose only string holds several lines keeps its form too.
    by_line = cell.is_list and (len(old) > 1 or "\n" not in old[0][:-1])
    new = re.findall(r"[^\n]*\n|[^\n]+", cell.source) if by_line else [cell.source]
    separator = _separator(json_text, strings)
    cell_tokens = [json_text[string.start : string.end] for string in strings]
    for tag, first, last, new_first, new_last in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        replaced, lines = strings[first:last], new[new_first:new_last]
        if len(replaced) == len(lines):
            pairs = zip(cell_tokens[first:last], lines, strict=True)
            tokens = [_edited_token(token, line, cell_tokens) for token, line in pairs]
        else:
            tokens = [_token(line, cell_tokens) for line in lines]
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


def _separator(json_text: str, strings: Sequence[JsonString]) -> str:
    """What stands between two strings of a list: as between the first two, else as the list's own line break says."""
    if len(strings) > 1:
        return json_text[strings[0].end : strings[1].start]
    start = strings[0].start
    while json_text[start - 1] in " \t\r\n":
        start -= 1
    blank = json_text[start : strings[0].start]
    return f",{blank}" if blank or '": ' not in json_text else ", "


_JSON_CHARACTER = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|[^\\]", re.DOTALL
)


def _edited_token(token: str, value: str, context: Sequence[str]) -> str:
    """The JSON string `token` with the new value, its unchanged beginning and end as they were written."""
    import json

    characters = _JSON_CHARACTER.findall(token[1:-1])
    old = json.loads(token, strict=False)
    start, end = common_affixes(old, value)
    middle = _token(value[start : len(value) - end], context)[1:-1]
    return f'"{"".join(characters[:start])}{middle}{"".join(characters[len(characters) - end :])}"'


def _token(value: str, context: Sequence[str]) -> str:
    """`value` as a JSON string that escapes characters, those outside ASCII or of HTML, where `context` does."""
    import json

    raw = any(not token.isascii() for token in context)
    escaped = any(re.search(r"\\u(?!00[0-7])", token) for token in context)
    token = json.dumps(value, ensure_ascii=escaped and not raw)
    for character, escape in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        # Colab writes them so.
        if any(escape in other for other in context):
            token = token.replace(character, escape)
    return token
