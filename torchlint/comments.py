"""Where the comments and the string literals of a text are, found in one pass over the characters.

The standard tokenizer answers the same question, several times slower, and stops at the first line that
is no Python (a notebook's magic). Nested f-strings, their format specs and comments inside their fields are understood.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache

_STRING_START = r"(?:(?<!\w)(?P<prefix>[A-Za-z]{1,2}))?(?P<quote>\"\"\"|'''|\"|')"
_CODE = re.compile(rf"(?P<comment>\#[^\r\n]*)|{_STRING_START}")
_FIELD = re.compile(rf"(?P<comment>\#[^\r\n]*)|{_STRING_START}|(?P<open>[\[({{])|(?P<close>[\])}}])|(?P<colon>:)")


@dataclass(frozen=True, slots=True)
class Spans:
    """Character ranges `(start, end)` in source order. A comment begins at its `#` and ends before the newline."""

    comments: list[tuple[int, int]] = field(default_factory=list)
    strings: list[tuple[int, int]] = field(default_factory=list)


def find_spans(text: str) -> Spans:
    """The comments and outermost string literals of `text`, which should be Python but may be broken."""
    spans = Spans()
    position = 0
    while token := _CODE.search(text, position):
        if token["comment"]:
            spans.comments.append(token.span())
            position = token.end()
        else:
            position = _string_end(text, token, spans)
            spans.strings.append((token.start(), position))
    spans.comments.sort()
    return spans


def _string_end(text: str, token: re.Match[str], spans: Spans) -> int:
    prefix, quote = (token["prefix"] or "").lower(), token["quote"]
    if "f" in prefix or "t" in prefix:
        return _formatted_end(text, token.end(), quote, "r" in prefix, spans)
    ending = _plain_ending(quote).match(text, token.end())
    return ending.end() if ending else len(text)


@cache
def _plain_ending(quote: str) -> re.Pattern[str]:
    """What remains of a string literal after its opening quote; an unterminated one ends with its line or the text."""
    if len(quote) == 1:
        return re.compile(rf"(?:[^\\\r\n{quote}]|\\(?:\r\n|[\s\S])?)*{quote}?")
    mark = quote[0]
    return re.compile(rf"[^\\{mark}]*(?:(?:\\[\s\S]|\\\Z|{mark}(?!{mark}{mark}))[^\\{mark}]*)*(?:{quote}|\Z)")


@cache
def _formatted_piece(quote: str, raw: bool) -> re.Pattern[str]:
    """The next thing that matters in the literal part of an f-string."""
    named_escape = "" if raw else r"\\N\{[^}]*\}|"
    end = quote if len(quote) == 3 else rf"{quote}|[\r\n]"
    return re.compile(rf"{named_escape}\\(?:\r\n|[^{{}}])|\{{\{{|\}}\}}|(?P<field>\{{)|(?P<end>{end})")


def _formatted_end(text: str, position: int, quote: str, raw: bool, spans: Spans) -> int:
    piece_pattern = _formatted_piece(quote, raw)
    while piece := piece_pattern.search(text, position):
        if piece["end"]:
            return piece.end() if piece["end"] == quote else piece.start()
        position = _field_end(text, piece.end(), spans) if piece["field"] else piece.end()
    return len(text)


def _field_end(text: str, position: int, spans: Spans) -> int:
    """The offset behind the `}` of a replacement field whose inside starts at `position`."""
    depth = 0
    while token := _FIELD.search(text, position):
        position = token.end()
        if token["comment"]:
            spans.comments.append(token.span())
        elif token["open"]:
            depth += 1
        elif token["close"]:
            depth -= 1
            if depth < 0:
                return position
        elif token["colon"]:
            if depth == 0:
                return _format_spec_end(text, position, spans)
        else:
            position = _string_end(text, token, spans)
    return len(text)


_SPEC = re.compile(r"[{}\r\n]")


def _format_spec_end(text: str, position: int, spans: Spans) -> int:
    while piece := _SPEC.search(text, position):
        position = piece.end()
        if piece.group() != "{":
            return position if piece.group() == "}" else piece.start()
        position = _field_end(text, position, spans)
    return len(text)
