"""Where reports are written: lines of styled text, on a terminal by rich, else plain.

What comes from files (names, source lines, messages that quote them) passes `visible` first: a terminal must never
interpret it.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console

Span = tuple[str, str]

# Control characters, invisible and direction-changing ones, halves of surrogate pairs and what is no character; and the
# openings of `##[…]` and `##vso[…]`, which the logs of CI services take for commands anywhere on a line.
_UNSAFE = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufffe\uffff\ud800-\udfff]"
    "|(?<=#)#(?=\\[|vso\\[)",
    re.IGNORECASE,
)


def visible(text: str) -> str:
    """The text with all escaped that a terminal or a CI log could take for a command; tabs become four blanks."""
    return _UNSAFE.sub(lambda found: _escape(found.group()), text).replace("\t", "    ")


def _escape(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"


def display_path(path: str) -> str:
    """A path as people type it: relative where it lies below the current folder."""
    prefix = os.getcwd().rstrip(os.sep) + os.sep
    shown = visible(path[len(prefix) :] if path.startswith(prefix) else path)
    # A line that begins with two colons is a command to GitHub Actions.
    return f"./{shown}" if shown.lstrip().startswith("::") else shown


class Output:
    """Writes lines of `(text, style)` spans to a stream; styles are rich's, and count only with `color`."""

    def __init__(self, stream: TextIO, color: bool) -> None:
        self.stream = stream
        self.color = color
        self._console: Console | None = None

    def line(self, *spans: Span) -> None:
        """Write one line. The texts must be `visible` already."""
        if not self.color:
            self.stream.write("".join(text for text, _ in spans) + "\n")
            return
        from rich.text import Text

        self.console.print(Text.assemble(*spans), soft_wrap=True)

    @property
    def console(self) -> Console:
        """The rich console behind a colored output."""
        if self._console is None:
            from rich.console import Console

            self._console = Console(file=self.stream, force_terminal=True, markup=False, highlight=False, emoji=False)
        return self._console
