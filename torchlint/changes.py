"""`--changed-since`: the lines that differ from where the current branch left a revision, as git tells.

Committed, staged and unstaged changes count, and files that git does not know yet.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from torchlint.config import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from torchlint.diagnostics import FileReport
    from torchlint.reports.context import Context

_HUNK = re.compile(rb"@@ -\d+(?:,\d+)? \+(?P<start>\d+)(?:,(?P<count>\d+))? @@")
_ESCAPE = re.compile(rb'\\([abtnvfr"\\]|[0-7]{3})')
_ESCAPED = {b"a": b"\a", b"b": b"\b", b"t": b"\t", b"n": b"\n", b"v": b"\v", b"f": b"\f", b"r": b"\r"}
# Whatever the user's configuration says, the output has to be what `_parsed` reads.
_DIFF = (
    *("-c", "core.quotePath=true", "diff", "--unified=0", "--inter-hunk-context=0", "--find-renames", "--text"),
    *("--no-color", "--no-ext-diff", "--no-textconv", "--src-prefix=a/", "--dst-prefix=b/", "--submodule=short"),
    *("--no-relative", "--output-indicator-new=+", "--output-indicator-old=-"),
)


@dataclass(frozen=True)
class Changes:
    """The changed lines of files, by absolute path: ranges of lines that git counts; None stands for a whole file."""

    lines: Mapping[str, tuple[range, ...] | None]

    def only(self, reports: Iterable[FileReport], context: Context) -> list[FileReport]:
        """The reports with the findings that touch a changed line."""
        return [self._only(report, context) for report in reports]

    def _only(self, report: FileReport, context: Context) -> FileReport:
        path = os.path.realpath(report.path)
        ranges = self.lines.get(path, ())
        if ranges is None or not report.findings:
            return report
        if not ranges:
            return msgspec.structs.replace(report, findings=())
        text = context.text(report)
        if text.source is None or re.search(rb"\r(?!\n)", text.source.raw):
            # Python ends a line at a lone carriage return, git does not: their line numbers differ.
            return report
        rows = [text.file_rows(finding) for finding in report.findings]
        kept = [
            finding
            for finding, (first, last) in zip(report.findings, rows, strict=True)
            if any(part.start <= last and first < part.stop for part in ranges)
        ]
        return msgspec.structs.replace(report, findings=tuple(kept))


def changed_since(revision: str, roots: Iterable[str]) -> Changes:
    """What has changed in the repositories of the projects at `roots` since the merge base of `revision` and HEAD.

    Raises ConfigError where a root is in no git repository, or where that does not know the revision.
    """
    lines: dict[str, tuple[range, ...] | None] = {}
    tops = dict.fromkeys(_top(root) for root in roots)
    for top in tops:
        base = _merge_base(top, revision)
        for path, ranges in _parsed(_git(top, *_DIFF, base, "--")).items():
            lines[os.path.realpath(os.path.join(top, os.fsdecode(path)))] = tuple(ranges)
        for path in _git(top, "ls-files", "-z", "--others", "--exclude-standard").split(b"\0"):
            if path:
                lines[os.path.realpath(os.path.join(top, os.fsdecode(path)))] = None
    return Changes(lines)


def _top(root: str) -> str:
    output = _git(root, "rev-parse", "--show-toplevel")
    return os.fsdecode(output.removesuffix(b"\n"))


def _merge_base(top: str, revision: str) -> str:
    try:
        commit = _git(top, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    except ConfigError:
        raise ConfigError(
            f"--changed-since: {top}: git knows no revision {revision!r}: check its spelling, or fetch it"
        ) from None
    try:
        base = _git(top, "merge-base", commit.decode().strip(), "HEAD")
    except ConfigError:
        raise ConfigError(
            f"--changed-since: {top}: {revision!r} and HEAD have no commit in common: "
            "a shallow clone has to fetch its history first"
        ) from None
    return base.decode().split("\n")[0]


def _git(folder: str, *arguments: str) -> bytes:
    """What git prints. Raises ConfigError with git's own words where it fails."""
    environment = {**os.environ, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(["git", "-C", folder, *arguments], capture_output=True, env=environment, check=False)
    except OSError as error:
        raise ConfigError(f"--changed-since: git cannot be run: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(f"--changed-since: git cannot be asked that: {error}") from error
    if done.returncode:
        words = next(iter(done.stderr.decode("utf-8", "replace").splitlines()), f"status {done.returncode}")
        raise ConfigError(f"--changed-since: {folder}: git says: {words.removeprefix('fatal: ')}")
    return done.stdout


def _parsed(diff: bytes) -> dict[bytes, list[range]]:
    """The added and changed lines of each file of a diff without context lines."""
    found: defaultdict[bytes, list[range]] = defaultdict(list)
    path: bytes | None = None
    for line in _headers(diff.split(b"\n")):
        if line.startswith(b"+++ "):
            name = _unquoted(line[4:])
            path = name[2:] if name.startswith(b"b/") else None
        elif path is not None and (hunk := _HUNK.match(line)):
            start, count = int(hunk["start"]), int(hunk["count"] or 1)
            found[path].append(range(start, start + count))
    return {path: [part for part in ranges if part] for path, ranges in found.items()}


def _headers(lines: Sequence[bytes]) -> Iterator[bytes]:
    """The lines of a diff that are no content of files: after a hunk's header come as many lines as it says."""
    skip = 0
    for line in lines:
        if skip and line[:1] in (b"+", b"-"):
            skip -= 1
            continue
        numbers = re.match(rb"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@", line)
        if numbers:
            skip = int(numbers[1] or 1) + int(numbers[2] or 1)
        yield line


def _unquoted(name: bytes) -> bytes:
    """A file name of a diff's header: as it is, or in double quotes with escapes, as C writes strings."""
    if not name.startswith(b'"'):
        return name.removesuffix(b"\t")  # git ends names with blanks in a tab, for `patch`
    inner = name[1 : name.rindex(b'"')]
    return _ESCAPE.sub(lambda found: _character(found[1]), inner)


def _character(escape: bytes) -> bytes:
    if escape.isdigit():
        return bytes([int(escape, 8)])
    return _ESCAPED.get(escape, escape)
