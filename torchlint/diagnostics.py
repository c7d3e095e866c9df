"""What leaves the engine: findings as plain records, the same in a report, in the cache and between processes.

Rows and columns are 1-based and columns count characters. In a notebook, rows count inside the cell that `cell` names.
"""

from __future__ import annotations

import msgspec

DOCUMENTATION = "https://torchlint.readthedocs.io/rules/"


def is_builtin(code: str) -> bool:
    """Whether a code is one of torchlint's own: custom rules have other letters."""
    return code.startswith("TL") and code[2:].isdigit()


class Location(msgspec.Struct, frozen=True, array_like=True, order=True):
    """A place in a file; both numbers start at 1."""

    row: int
    column: int


class EditRecord(msgspec.Struct, frozen=True, array_like=True):
    """One replacement: the text between the two places, in a notebook those of `cell`, becomes `content`."""

    content: str
    location: Location
    end_location: Location
    cell: int = 0


class FixRecord(msgspec.Struct, frozen=True, array_like=True):
    """A repair as reports show it: `applicability` is "safe" or "unsafe"; `edits` is None where none were asked for."""

    applicability: str
    message: str
    reason: str = ""
    edits: tuple[EditRecord, ...] | None = None

    @property
    def is_safe(self) -> bool:
        return self.applicability == "safe"


class Excerpt(msgspec.Struct, frozen=True, array_like=True):
    """Source lines around a finding, the first of them at row `row`."""

    row: int
    lines: tuple[str, ...]


class Diagnostic(msgspec.Struct, frozen=True, array_like=True):
    """One finding in one file. `level` is "warning" or "info"; `cell` is 0 outside notebooks."""

    code: str
    name: str
    message: str
    level: str
    location: Location
    end_location: Location
    cell: int
    excerpt: Excerpt
    fix: FixRecord | None = None

    @property
    def order(self) -> tuple[int, Location, str, Location, str]:
        """The place in a file's report: cell, line, column, code."""
        return self.cell, self.location, self.code, self.end_location, self.message

    @property
    def url(self) -> str:
        """The rule's documentation page; "" for a custom rule, which has none there."""
        return f"{DOCUMENTATION}{self.code.lower()}/" if is_builtin(self.code) else ""


class FileReport(msgspec.Struct, frozen=True, array_like=True):
    """All that one run has to say about one file.

    path: the absolute path.
    findings: what is left to report, in order.
    errors: messages about what torchlint failed to do (a rule that raised, a file that cannot be written).
    warnings: messages about fixes that were not made because their result did not pass verification.
    unreadable: why the file could not be read, or "".
    fixed: how often each code was repaired.
    diff: the unified diff of those repairs where one was asked for.
    fixed_source: the repaired file where nothing was to be written (standard input).
    """

    path: str
    findings: tuple[Diagnostic, ...] = ()
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    unreadable: str = ""
    fixed: dict[str, int] = {}
    diff: str = ""
    fixed_source: bytes | None = None
