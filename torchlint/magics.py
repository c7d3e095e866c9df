"""What IPython accepts in a cell and Python does not: magics, shell lines, help, other escapes.

Facts from IPython's `core/inputtransformer2.py`: a line that begins with one of its escape characters is a command, and
so is what follows the first `=` of a statement when it is `%name` or `!…`; a statement that ends in `?` asks for help;
`%%` at the start of a cell hands the whole cell to a magic. A backslash continues a command on the next line.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Cell magics that run their body as Python.
_PYTHON_CELL_MAGICS = frozenset(
    {"capture", "time", "timeit", "prun", "debug", "python", "python3"}  # IPython's own
    | {"memit", "snakeviz", "pyinstrument", "scalene", "ipytest", "wandb"}
)
_CELL_MAGIC = re.compile(r"[ \t]*%%(?P<name>\S*)")
_COMMAND = re.compile(r"(?P<indent>[ \t]*)[%!?,;/]")
_ASSIGNED = re.compile(r"[ \t]*(?=%\w|!)")
_ANY_ESCAPE = re.compile(r"[%!?]|^[ \t]*[,;/]", re.MULTILINE)
_CODE_PART = re.compile(
    r"""(?P<triple>\"{3}|'{3})|(?P<string>"(?:\\.|[^"\\\n\r])*"?|'(?:\\.|[^'\\\n\r])*'?)|(?P<comment>\#.*)"""
    r"""|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<assign>(?<![=!<>+\-*/%&|^@:])=(?!=))""",
    re.DOTALL,
)
_PROMPT = re.compile(r"(?:>>>|\.\.\.)(?: |$)|In \[\d+\]: |\s*\.{3,}: ?")


def without_magics(source: str) -> str:
    """A cell's source with its magics replaced by harmless Python of the same length; a cell in another language is
    blank.
    """
    if not _ANY_ESCAPE.search(source):
        return source
    lines = re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", source)
    body = _body_start(lines)
    if body is None:
        return blanked(source)
    head = [_filled(line, "") if _CELL_MAGIC.match(line) else line for line in lines[:body]]
    return "".join([*head, *_without_commands(lines[body:])])


def blanked(source: str) -> str:
    """Blanks in place of everything but the newlines."""
    return re.sub(r"[^\r\n]", " ", source)


def undressed(source: str) -> str:
    """The source without the indentation or the prompts before its lines, as IPython runs it."""
    lines = re.sub(r"\A(?:[ \t]*[\r\n])+", "", source).split("\n")
    prefix = lines[0][: len(lines[0]) - len(lines[0].lstrip(" \t"))]
    lines = [line.removeprefix(prefix) for line in lines]
    if _PROMPT.match(lines[0]):
        lines = [_PROMPT.sub("", line, count=1) if _PROMPT.match(line) else line for line in lines]
    return "\n".join(lines)


def _body_start(lines: list[str]) -> int | None:
    """The index of the first line below a cell's `%%` lines (which may be nested); None where its body is no Python."""
    body = 0
    for index, line in enumerate(lines):
        if magic := _CELL_MAGIC.match(line):
            if magic["name"] not in _PYTHON_CELL_MAGICS:
                return None
            body = index + 1
        elif line.strip() and not line.lstrip().startswith("#"):
            break
    return body


def _without_commands(lines: list[str]) -> Iterator[str]:
    scanner = _LineScanner()
    continued = False
    for line in lines:
        statement = line.rstrip("\r\n")
        stand_in = "" if continued else _stand_in(statement) if scanner.at_statement else None
        if stand_in is None:
            scanner.feed(line)
            yield line
        else:
            continued = statement.endswith("\\")
            yield _filled(line, stand_in)


def _stand_in(statement: str) -> str | None:
    """Python to stand for a line that begins a statement, None where the line is Python itself."""
    if command := _COMMAND.match(statement):
        return command["indent"] + "0"
    depth = 0
    code = 0
    assigned = False
    for part in _CODE_PART.finditer(statement):
        if part["triple"]:
            return None
        if part["comment"]:
            statement = statement[: part.start()]
            break
        depth += bool(part["open"]) - bool(part["close"])
        code = part.end() if part["string"] else code
        if part["assign"] and depth == 0 and not assigned:
            assigned = True
            if magic := _ASSIGNED.match(statement, part.end()):
                # An ellipsis is a value of which nothing is known.
                return statement[: magic.end()] + ("..." if len(statement) - magic.end() > 2 else '""')
    if statement[code:].rstrip().endswith("?"):
        return statement[: len(statement) - len(statement.lstrip())] + "0"
    return None


def _filled(line: str, content: str) -> str:
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
            elif part["comment"]:
                return
        self._backslash = body.endswith("\\")
