"""The smallest things that are said about a text: an edit of it, and an error at a place in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# Python's newlines; `str.splitlines` knows others too.
NEWLINE = re.compile(r"\r\n|\r|\n")


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
