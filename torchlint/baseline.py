"""The baseline: findings that a project knows and lives with, so that only new ones fail.

An entry matches by code, path and what the line says (each run of white space as one blank), as often as its count: it
survives edits elsewhere, and a second finding on an equal line is new. The file is JSON with one sorted entry on each
line, its paths relative to the file's own folder, so that it reads well in a diff and merges like code.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from torchlint.config import ConfigError
from torchlint.fingerprints import content_of
from torchlint.reports.encoding import encode, storable
from torchlint.reports.summary import counted
from torchlint.saving import save

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from torchlint.checker import Plan
    from torchlint.diagnostics import Diagnostic, FileReport
    from torchlint.engine import Registry

VERSION = 1

_MOST_LISTED = 20


class Entry(msgspec.Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """Findings of one code on equal lines of one file. `path` is posix and relative to the baseline's folder."""

    path: str
    code: str
    line: str
    count: int = 1

    @property
    def key(self) -> _Key:
        return self.path, self.code, self.line


_Key = tuple[str, str, str]


class _Header(msgspec.Struct):
    version: int = msgspec.field(name="torchlint-baseline")


class _Stored(msgspec.Struct, forbid_unknown_fields=True):
    version: int = msgspec.field(name="torchlint-baseline")
    findings: list[Entry] = []


@dataclass(frozen=True)
class Sorted:
    """What a baseline makes of a run: the reports with new findings only, how many it knew, and its stale entries."""

    reports: list[FileReport]
    known: int
    stale: tuple[Entry, ...]

    def stale_lines(self, path: Path) -> list[str]:
        """What to say of the stale entries of the baseline at `path`; long lists are cut."""
        if not self.stale:
            return []
        count = counted(len(self.stale), "stale entry", "stale entries")
        cut = len(self.stale) - _MOST_LISTED
        return [
            f"warning: {path}: {count}, which --write-baseline drops:",
            *(f"  {entry.path}: {entry.code}: {entry.line}" for entry in self.stale[:_MOST_LISTED]),
            *([f"  and {cut} more"] if cut > 0 else []),
        ]


class Baseline:
    """A baseline file and its entries."""

    def __init__(self, path: Path, entries: Iterable[Entry] = ()) -> None:
        self.path = path
        self._folder = os.path.dirname(os.path.abspath(path))
        self._counts: Counter[_Key] = Counter()
        for entry in entries:
            self._counts[entry.key] += entry.count

    @classmethod
    def read(cls, path: Path, *, may_be_missing: bool = False) -> Baseline:
        """The baseline at `path`. Raises ConfigError where it is missing, broken, or from a newer torchlint."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            if may_be_missing:
                return cls(path)
            raise ConfigError(f"{path}: there is no such baseline: add --write-baseline to make it") from None
        except OSError as error:
            raise ConfigError(f"{path}: the baseline cannot be read: {error.strerror or error}") from error
        return cls(path, _decode(path, data))

    def sort(self, reports: Sequence[FileReport], plans: Mapping[str, Plan], registry: Registry) -> Sorted:
        """Tell new findings from known ones. An entry is stale if this run would have found it, and did not: its file
        was linted with its rule or is gone, or its rule is gone.
        """
        left = self._counts.copy()
        remaining = [self._without_known(report, left) for report in reports]
        known = self._counts.total() - left.total()
        unsure = {self._relative(report.path) for report in reports if report.errors or report.unreadable}
        codes = {self._relative(path): plan.codes for path, plan in plans.items()}
        stale = [
            Entry(*key, count)
            for key, count in sorted((+left).items())
            if key[0] not in unsure and self._was_judged(key, codes, registry)
        ]
        return Sorted(remaining, known, tuple(stale))

    def write(self, reports: Sequence[FileReport], stale: Iterable[Entry]) -> int:
        """Write what the run found, and the entries that it did not judge; how many findings the file holds now.

        `reports` hold the new findings, `stale` the entries to leave out. Raises ConfigError where that fails.
        """
        counts = self._counts.copy()
        for entry in stale:
            counts[entry.key] -= entry.count
        counts.update(self._key(report.path, finding) for report in reports for finding in report.findings)
        entries = [Entry(*key, count) for key, count in sorted((+counts).items())]
        try:
            save(self.path, _encode(entries))
        except OSError as error:
            raise ConfigError(f"{self.path}: the baseline cannot be written: {error.strerror or error}") from error
        return sum(entry.count for entry in entries)

    def _without_known(self, report: FileReport, left: Counter[_Key]) -> FileReport:
        new = []
        for finding in report.findings:
            key = self._key(report.path, finding)
            if left[key] > 0:
                left[key] -= 1
            else:
                new.append(finding)
        return report if len(new) == len(report.findings) else msgspec.structs.replace(report, findings=tuple(new))

    def _key(self, path: str, finding: Diagnostic) -> _Key:
        return self._relative(path), finding.code, str(storable(content_of(finding)))

    def _relative(self, path: str) -> str:
        return str(storable(os.path.relpath(path, self._folder).replace(os.sep, "/")))

    def _was_judged(self, key: _Key, codes: Mapping[str, frozenset[str]], registry: Registry) -> bool:
        path, code, _ = key
        if code not in registry:
            return True
        if path in codes:
            return code in codes[path]
        return not os.path.lexists(os.path.join(self._folder, path))


def _decode(path: Path, data: bytes) -> list[Entry]:
    try:
        version = msgspec.json.decode(data, type=_Header).version
        if version > VERSION:
            raise ConfigError(
                f"{path}: the baseline is from a newer torchlint (its format is {version}, this one knows {VERSION}): "
                "update torchlint, or delete it and add --write-baseline"
            )
        stored = msgspec.json.decode(data, type=_Stored)
        if version < 1 or any(entry.count < 1 for entry in stored.findings):
            raise msgspec.ValidationError("a version or count is below 1")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"{path}: the baseline is broken: {reason}: repair it, or delete it and add --write-baseline"
        ) from error
    return stored.findings


def _encode(entries: Sequence[Entry]) -> str:
    """The file: every entry on a line of its own."""
    rows = (
        encode({"path": entry.path, "code": entry.code, "line": entry.line, "count": entry.count}, 0).rstrip("\n")
        for entry in entries
    )
    listed = ",".join(f"\n    {row}" for row in rows)
    end = "\n  " if entries else ""
    return f'{{\n  "torchlint-baseline": {VERSION},\n  "findings": [{listed}{end}]\n}}\n'
