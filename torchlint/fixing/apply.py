"""Applies fixes to a file: in passes to a fixed point, each one verified, and written in one step.

Nothing here knows a rule: what to fix comes from a callable that lints a `SourceFile`.
"""

from __future__ import annotations

import builtins
import os
import stat
import symtable
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from torchlint.comments import find_spans
from torchlint.fixing.splice import Unfixable
from torchlint.rule import Safety
from torchlint.source import Edit, SourceError, SourceFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torchlint.rule import Fix

MAX_PASSES = 10


class FixableFinding(Protocol):
    """What is asked of a finding: its code, the character offset in the text where it stands, and its fix, if any."""

    @property
    def code(self) -> str: ...
    @property
    def offset(self) -> int: ...
    @property
    def fix(self) -> Fix | None: ...


@dataclass(frozen=True, slots=True)
class Applied:
    """A fix that was made; `line` is where its finding stood in the text of its pass, from 1."""

    code: str
    line: int


@dataclass(frozen=True, slots=True)
class Failure:
    """A fix that was not made because its result did not pass verification, or because building it raised.

    `line` counts from 1, in a notebook inside the `cell` (0 elsewhere).
    """

    code: str
    line: int
    reason: str
    cell: int = 0


@dataclass(frozen=True, slots=True)
class FixResult:
    """The file after all fixes that held (the very same object where none did), and what was done."""

    source: SourceFile
    applied: list[Applied]
    failures: list[Failure]

    @property
    def text(self) -> str:
        return self.source.text


class WriteError(Exception):
    """A file that was not written; what was on the disk is still there. The message says which file and why."""


class _Rejected(Exception):  # noqa: N818
    """The result of fixes does not pass verification; the message says why."""


@dataclass(frozen=True, slots=True)
class _Repair:
    """A finding with the built edits of its fix."""

    finding: FixableFinding
    edits: list[Edit]


def fix_source(
    source: SourceFile, lint: Callable[[SourceFile], Sequence[FixableFinding]], allow_unsafe: bool = False
) -> FixResult:
    """Apply the fixes of what `lint` finds, pass after pass, until none is left that holds (or after 10 passes).

    Where fixes applied together do not verify, each is tried by itself beside those that did, and the ones that fail
    are reported and not tried again. A fix that cannot be built for this text (`Unfixable`) is passed over in silence.
    """
    applied: list[Applied] = []
    failures: dict[tuple[str, str], Failure] = {}
    findings = lint(source)
    for _ in range(MAX_PASSES):
        repairs = _without_conflicts(_repairs(source, findings, allow_unsafe, failures))
        if not repairs:
            break
        source, findings, held = _apply_verified(source, findings, repairs, lint, failures)
        applied += held
    return FixResult(source, applied, list(failures.values()))


def _repairs(
    source: SourceFile,
    findings: Sequence[FixableFinding],
    allow_unsafe: bool,
    failures: dict[tuple[str, str], Failure],
) -> Iterator[_Repair]:
    """The fixes that may be applied, built, in the order of their findings."""
    for finding in sorted(findings, key=lambda finding: (finding.offset, finding.code)):
        fix = finding.fix
        if fix is None or (fix.safety is Safety.UNSAFE and not allow_unsafe) or _key(source, finding) in failures:
            continue
        try:
            edits = list(fix.build())
        except Unfixable:
            continue
        except Exception as error:
            _fail(failures, source, finding, f"building the fix raised {type(error).__name__}: {error}")
            continue
        if edits:
            yield _Repair(finding, edits)


def _without_conflicts(repairs: Iterator[_Repair]) -> list[_Repair]:
    """The first of every group of repairs that touch one another; the others wait for the next pass."""
    chosen: list[_Repair] = []
    taken: list[Edit] = []
    for repair in repairs:
        if not any(edit.start <= other.end and other.start <= edit.end for edit in repair.edits for other in taken):
            chosen.append(repair)
            taken += repair.edits
    return chosen


def _apply_verified(
    source: SourceFile,
    findings: Sequence[FixableFinding],
    repairs: list[_Repair],
    lint: Callable[[SourceFile], Sequence[FixableFinding]],
    failures: dict[tuple[str, str], Failure],
) -> tuple[SourceFile, Sequence[FixableFinding], list[Applied]]:
    """The file after the repairs that verify, what lint finds in it then, and which repairs those are."""
    verifier = _Verifier(source, findings, lint)
    held = repairs
    try:
        after, found = verifier.apply(repairs)
    except _Rejected:
        held, after, found = [], source, findings
        for repair in repairs:
            try:
                after, found = verifier.apply([*held, repair])
                held.append(repair)
            except _Rejected as rejection:
                _fail(failures, source, repair.finding, str(rejection))
    return after, found, [Applied(r.finding.code, source.position(r.finding.offset)[0]) for r in held]


def _fail(failures: dict[tuple[str, str], Failure], source: SourceFile, finding: FixableFinding, reason: str) -> None:
    cell, line = source.place(source.position(finding.offset)[0])
    failures.setdefault(_key(source, finding), Failure(finding.code, line, reason, cell))


def _key(source: SourceFile, finding: FixableFinding) -> tuple[str, str]:
    """What tells a finding from others while lines move: its code and the text of its line."""
    return finding.code, source.line(source.position(finding.offset)[0]).strip()


# Verification


class _Verifier:
    """Applies repairs to one text and raises `_Rejected` where the result is not as it should be."""

    def __init__(
        self,
        source: SourceFile,
        findings: Sequence[FixableFinding],
        lint: Callable[[SourceFile], Sequence[FixableFinding]],
    ) -> None:
        self._source = source
        self._findings = findings
        self._lint = lint
        self._names: _Names | None = None

    def apply(self, repairs: list[_Repair]) -> tuple[SourceFile, Sequence[FixableFinding]]:
        edits = sorted(edit for repair in repairs for edit in repair.edits)
        after = self._edited(edits)
        self._require_comments(after, edits)
        self._require_names(after)
        found = self._lint(after)
        self._require_progress(after, found, edits, repairs)
        return after, found

    def _edited(self, edits: list[Edit]) -> SourceFile:
        """The edited file, which parses and survives being written and read."""
        try:
            after = self._source.edited(edits)
            after.parse()
            written = SourceFile.from_bytes(after.path, after.encode())
        except (SourceError, ValueError) as error:
            raise _Rejected(f"the result is no valid file: {error}") from error
        if written.text != after.text or len(after.cell_errors) > len(self._source.cell_errors):
            raise _Rejected("the result does not read as it was meant")
        return after

    def _require_comments(self, after: SourceFile, edits: list[Edit]) -> None:
        """Every comment has to be there still, but for those that an edit rewrites as such."""
        text = self._source.text
        kept = Counter(
            text[start:end]
            for start, end in find_spans(self._source.python).comments
            if not any(_edits_comment(text, edit, start, end) for edit in edits)
        )
        lost = kept - Counter(after.text[start:end] for start, end in find_spans(after.python).comments)
        if lost:
            raise _Rejected(f"a comment would be lost: {next(iter(lost))}")

    def _require_names(self, after: SourceFile) -> None:
        """Every name has to be bound where it was, and no name may be used that is bound nowhere."""
        self._names = self._names or _names_in(self._source)
        names = _names_in(after)
        unbound = names.unbound - self._names.unbound
        if unbound:
            raise _Rejected(f"a name would be unbound: {', '.join(sorted(unbound))}")
        for scope, kinds in self._names.scopes.items():
            present = names.scopes.get(scope, {})
            moved = sorted(name for name, kind in kinds.items() if present.get(name, kind) != kind)
            if moved:
                raise _Rejected(f"{moved[0]} would be bound in another scope")

    def _require_progress(
        self, after: SourceFile, found: Sequence[FixableFinding], edits: list[Edit], repairs: list[_Repair]
    ) -> None:
        """The findings fixed have to be gone, and no fixable ones may have come up on lines that had none."""
        shifts = _Shifts(edits)
        present = {(finding.code, finding.offset) for finding in found}
        for repair in repairs:
            if (repair.finding.code, shifts.moved(repair.finding.offset)) in present:
                raise _Rejected("the finding would still be there")
        known = {(f.code, after.position(shifts.moved(f.offset))[0]) for f in self._findings}
        for finding in found:
            line = after.position(finding.offset)[0]
            if finding.fix is not None and (finding.code, line) not in known:
                cell, row = after.place(line)
                where = f"line {row} of cell {cell}" if cell else f"line {row}"
                raise _Rejected(f"a new {finding.code} would come up on {where}")


def _edits_comment(text: str, edit: Edit, start: int, end: int) -> bool:
    """Whether an edit changes nothing but the comment from `start` to `end`, and white space around it."""
    changed = text[edit.start : edit.end]
    first = edit.start + len(changed) - len(changed.lstrip())
    last = edit.start + len(changed.rstrip())
    return bool(changed) and start <= first < last <= end


class _Shifts:
    """Where the characters of a text are after sorted edits."""

    def __init__(self, edits: list[Edit]) -> None:
        self._edits = edits
        self._totals = list(accumulate((len(e.content) - (e.end - e.start) for e in edits), initial=0))

    def moved(self, offset: int) -> int:
        """The new offset of a character; of one that was replaced, the offset of its replacement."""
        total = 0
        for index, edit in enumerate(self._edits):
            if edit.start > offset or (edit.start == offset and edit.end > offset):
                break
            if edit.end > offset:
                return edit.start + self._totals[index]
            total = self._totals[index + 1]
        return offset + total


@dataclass(frozen=True, slots=True)
class _Names:
    """How the names of a text are bound: per function or class (by path) each name's kind, and those bound nowhere."""

    scopes: dict[tuple[str, ...], dict[str, str]]
    unbound: set[str]


def _names_in(source: SourceFile) -> _Names:
    try:
        module = symtable.symtable(source.python, "<source>", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _Rejected(f"the names cannot be followed: {error}") from error
    bound = (
        {symbol.get_name() for symbol in module.get_symbols() if _binds(symbol)} | set(dir(builtins)) | _MODULE_NAMES
    )
    scopes: dict[tuple[str, ...], dict[str, str]] = {}
    used: set[str] = set()
    waiting: list[tuple[tuple[str, ...], symtable.SymbolTable]] = [((), module)]
    while waiting:
        path, table = waiting.pop()
        is_module = table is module
        for symbol in table.get_symbols():
            if symbol.is_declared_global() and symbol.is_assigned():
                bound.add(symbol.get_name())
            if (is_module or symbol.is_global()) and symbol.is_referenced():
                used.add(symbol.get_name())
        scopes[path] = {symbol.get_name(): _kind(symbol) for symbol in table.get_symbols()}
        counts: defaultdict[str, int] = defaultdict(int)
        for child in table.get_children():
            name = child.get_name()
            waiting.append(((*path, f"{name}:{counts[name]}"), child))
            counts[name] += 1
    named = {path: kinds for path, kinds in scopes.items() if not any(part.startswith(_ANONYMOUS) for part in path)}
    return _Names(named, used - bound)


# Scopes that an edit may add or take away without touching the bindings around them.
_ANONYMOUS = ("lambda:", "genexpr:", "listcomp:", "setcomp:", "dictcomp:")
_MODULE_NAMES = {"__file__", "__name__", "__doc__", "__path__", "__annotations__", "__builtins__", "__class__"}


def _binds(symbol: symtable.Symbol) -> bool:
    return symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()


def _kind(symbol: symtable.Symbol) -> str:
    return "global" if symbol.is_global() else "free" if symbol.is_free() else "local"


# Writing


def write_atomically(path: Path, data: bytes, expected_old: bytes | None = None) -> None:
    """Replace what the file at `path` holds by `data`, in one step: a crash at any point leaves the old or the new.

    The mode bits stay, and a symbolic link stays one: its target is replaced. Raises WriteError, and leaves everything
    as it was, where the file or its folder is read-only, or where it no longer holds `expected_old`; a file that holds
    `data` by now is as it should be, whoever wrote it.
    """
    target = Path(os.path.realpath(path))
    try:
        mode = target.stat().st_mode
        # A folder that may be written lets anybody replace a file in it, even one that is not theirs to change.
        if not os.access(target, os.W_OK):
            raise WriteError(f"{path}: the file is read-only")
        if _holds(path, target, data, expected_old):
            return
        _replace(path, target, data, expected_old, mode)
    except OSError as error:
        raise WriteError(f"{path}: cannot be written: {error.strerror or error}") from error


def _replace(path: Path, target: Path, data: bytes, expected_old: bytes | None, mode: int) -> None:
    import tempfile

    handle, name = tempfile.mkstemp(prefix=f".{target.name[:100]}.", suffix=".tmp", dir=target.parent)
    try:
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        _copy_ownership(target, name)
        os.chmod(name, stat.S_IMODE(mode))
        if _holds(path, target, data, expected_old):
            os.unlink(name)
            return
        os.replace(name, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
    _flush_folder(target.parent)


def _holds(path: Path, target: Path, data: bytes, expected_old: bytes | None) -> bool:
    """Whether another process, at work on the same file, has written `data` already. Raises WriteError where the file
    holds neither that nor what is expected.
    """
    if expected_old is None:
        return False
    present = target.read_bytes()
    if present not in (data, expected_old):
        raise WriteError(f"{path}: changed on disk since it was read; not written")
    return present != expected_old


def _copy_ownership(target: Path, name: str) -> None:
    """Give the new file the owner and group of the old one, where the system has such and lets us."""
    if hasattr(os, "chown"):
        owner = target.stat()
        with suppress(OSError):
            os.chown(name, owner.st_uid, owner.st_gid)


def _flush_folder(folder: Path) -> None:
    """Make the replacement itself durable, where folders can be flushed."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
