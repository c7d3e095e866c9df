"""Places in a text, between characters and the units in which a client counts (UTF-8, UTF-16 or UTF-32)."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property
from typing import TYPE_CHECKING

from lsprotocol import types

from torchlint.source import Edit, common_affixes, spliced
from torchlint.text import NEWLINE

if TYPE_CHECKING:
    from collections.abc import Iterator


class Text:
    r"""A text as the client sees it: lines end in `\n`, `\r\n` or `\r`, columns count units of `encoding`.

    Places beyond the end of a line or of the text mean that end, as the protocol asks.
    """

    def __init__(self, content: str, encoding: str = types.PositionEncodingKind.Utf16) -> None:
        self.content = content
        self.encoding = encoding

    @cached_property
    def starts(self) -> list[int]:
        """The offset at which each line begins."""
        return [0, *(newline.end() for newline in NEWLINE.finditer(self.content))]

    def line(self, index: int) -> str:
        """Line `index`, counted from 0, without its newline; "" behind the end."""
        if index >= len(self.starts):
            return ""
        end = self.starts[index + 1] if index + 1 < len(self.starts) else len(self.content)
        return self.content[self.starts[index] : end].rstrip("\r\n")

    def offset(self, place: types.Position) -> int:
        """The character offset of a client's position."""
        if place.line >= len(self.starts):
            return len(self.content)
        line = self.line(max(place.line, 0))
        return self.starts[max(place.line, 0)] + _characters(line, place.character, self.encoding)

    def place(self, line: int, column: int) -> types.Position:
        """The client's position of the character `column` of a line, both from 0."""
        text = self.line(line)[:column]
        return types.Position(line, len(text) if text.isascii() else sum(_width(c, self.encoding) for c in text))

    def position(self, offset: int) -> types.Position:
        """The client's position of a character offset."""
        line = bisect_right(self.starts, offset) - 1
        return self.place(line, offset - self.starts[line])

    def span(self, start: int, end: int) -> types.Range:
        """The client's range of two character offsets."""
        return types.Range(self.position(start), self.position(end))

    def changed(self, span: types.Range, content: str) -> Text:
        """This text with another content in place of a range."""
        start, end = self.offset(span.start), self.offset(span.end)
        return Text(spliced(self.content, [Edit(min(start, end), max(start, end), content)]), self.encoding)

    def edits_to(self, new: str) -> list[types.TextEdit]:
        """The edits, line by line, that make this text another one: a cursor elsewhere in it stays where it is."""
        return [types.TextEdit(self.span(edit.start, edit.end), edit.content) for edit in _edits(self.content, new)]


def _characters(line: str, units: int, encoding: str) -> int:
    """How many characters the first `units` units of a line are; inside of a character, those before it."""
    if units >= len(line) * 4 or line.isascii():
        return min(max(units, 0), len(line))
    count = 0
    for character in line:
        units -= _width(character, encoding)
        if units < 0:
            break
        count += 1
    return count


def _width(character: str, encoding: str) -> int:
    """The units of one character."""
    if encoding == types.PositionEncodingKind.Utf8:
        return len(character.encode("utf-8", "surrogatepass"))
    if encoding == types.PositionEncodingKind.Utf32:
        return 1
    return 2 if ord(character) > 0xFFFF else 1


def _edits(old: str, new: str) -> Iterator[Edit]:
    """Where two texts differ: by lines, and within these by characters at both ends."""
    from difflib import SequenceMatcher

    before, after = _lines(old), _lines(new)
    head = _common(before, after)
    tail = _common(before[head:][::-1], after[head:][::-1])
    middle, replacement = before[head : len(before) - tail], after[head : len(after) - tail]
    start = sum(map(len, before[:head]))
    offsets = [start]
    for line in middle:
        offsets.append(offsets[-1] + len(line))
    for tag, first, last, new_first, new_last in SequenceMatcher(None, middle, replacement, False).get_opcodes():
        if tag != "equal":
            was, content = old[offsets[first] : offsets[last]], "".join(replacement[new_first:new_last])
            left, right = common_affixes(was, content)
            # No place of the protocol lies within a newline.
            left -= was[left - 1 : left + 1] == "\r\n" and left > 0
            right -= was[len(was) - right - 1 : len(was) - right + 1] == "\r\n" and right > 0
            yield Edit(offsets[first] + left, offsets[last] - right, content[left : len(content) - right])


def _lines(text: str) -> list[str]:
    return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text)


def _common(first: list[str], second: list[str]) -> int:
    """How many lines two lists have in common at their beginnings."""
    for index, (a, b) in enumerate(zip(first, second, strict=False)):
        if a != b:
            return index
    return min(len(first), len(second))
