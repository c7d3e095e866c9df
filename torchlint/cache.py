"""What is remembered between runs: summaries by content, and reports by everything that they depend on.

One file for each project, replaced in one step, so that runs at the same time do no harm: the last one wins. A cache
that is broken, of another version, or in a place that cannot be written is as good as none, and never an error.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from torchlint.diagnostics import FileReport

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torchlint.checker import Plan

FOLDER = ".torchlint_cache"
VARIABLE = "TORCHLINT_CACHE_DIR"


class Entry(msgspec.Struct, array_like=True):
    """A file. `summaries` holds, for each round, the digest of the facts that it was made with and the summary (None
    where the file has none); `report` belongs to `content`, `linked` (facts) and `plan` (rules, settings).
    """

    content: bytes
    summaries: dict[int, tuple[bytes, bytes | None]] = {}
    linked: bytes = b""
    plan: bytes = b""
    report: FileReport | None = None


class Stored(msgspec.Struct, array_like=True):
    """A project's cache: which torchlint and Python wrote it, the project's contents then, and its files by path."""

    stamp: str
    project: bytes = b""
    entries: dict[str, Entry] = {}


class Cache:
    """The cache of one project. Without a `folder` it holds nothing and keeps nothing; `writes` allows saving."""

    def __init__(self, folder: Path | None, root: str, writes: bool = True) -> None:
        self._file = folder / f"{digest(root.encode('utf-8', 'surrogatepass')).hex()}.msgpack" if folder else None
        self._writes = writes
        self._stamp = _stamp() if folder else ""
        self._before = b""
        self._stored = self._load()

    @property
    def is_on(self) -> bool:
        return self._file is not None

    @property
    def project(self) -> bytes:
        """The digest of the project's contents in the run that wrote the cache."""
        return self._stored.project

    def entry(self, relative: str, content: bytes) -> Entry | None:
        """What is known of a file with this digest of its content."""
        entry = self._stored.entries.get(relative)
        return entry if entry is not None and entry.content == content else None

    def save(self, project: bytes, entries: dict[str, Entry]) -> None:
        """Replace the cache. What changed nothing is not written."""
        if self._file is None or not self._writes:
            return
        stored = Stored(self._stamp, project, {path: entries[path] for path in sorted(entries) if _is_text(path)})
        with contextlib.suppress(OSError, UnicodeError):
            encoded = msgspec.msgpack.encode(stored)
            if encoded != self._before:
                _replace(self._file, encoded)

    def _load(self) -> Stored:
        if self._file is not None:
            with contextlib.suppress(OSError, msgspec.MsgspecError, RecursionError):
                self._before = self._file.read_bytes()
                stored = msgspec.msgpack.decode(self._before, type=Stored)
                if stored.stamp == self._stamp:
                    return stored
        return Stored(self._stamp)


def digest(data: bytes) -> bytes:
    """A short digest of some bytes."""
    return hashlib.blake2b(data, digest_size=16).digest()


def digest_of(record: object) -> bytes:
    """The digest of a record, the same whatever order its sets and dicts were filled in; b"" where it holds no text."""
    try:
        return digest(msgspec.msgpack.Encoder(order="sorted").encode(record))
    except UnicodeError:
        return b""


def plan_digest(plan: Plan) -> bytes:
    return digest_of(plan)


def cache_folder(root: str, configured: Path | None, is_marked: bool) -> Path | None:
    """Where the cache of a project lies. A folder that no marker makes a project gets none that was not asked for."""
    if not _is_text(root):
        return None
    if named := os.environ.get(VARIABLE):
        return Path(named)
    if configured is not None:
        return configured
    return Path(root, FOLDER) if is_marked else None


def _stamp() -> str:
    """The versions that a cache is good for; an edited checkout of torchlint counts as a new version."""
    import torchlint
    import torchlint.rules as rules

    folders = (*torchlint.__path__, *rules.__path__)
    youngest = max(newest(folder) for folder in dict.fromkeys(folders))
    return f"{torchlint.__version__} {sys.version} {youngest}"


def newest(folder: str) -> int:
    """The time, in nanoseconds, at which the youngest Python file below a folder changed."""
    times = [0]
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            times.append(newest(entry.path))
        elif entry.name.endswith(".py"):
            times.append(entry.stat().st_mtime_ns)
    return max(times)


def _is_text(path: str) -> bool:
    """Whether a path can be stored; one that is no UTF-8 on the disk cannot."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _replace(file: Path, data: bytes) -> None:
    import tempfile

    file.parent.mkdir(parents=True, exist_ok=True)
    ignore = file.parent / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n", encoding="utf-8")
    handle, name = tempfile.mkstemp(dir=file.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as temporary:
            temporary.write(data)
        os.replace(name, file)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def contents_digest(contents: Iterable[tuple[str, bytes]]) -> bytes:
    """The digest of a project: the paths of its files with the digests of their contents."""
    whole = hashlib.blake2b(digest_size=16)
    for path, content in sorted(contents):
        whole.update(digest(path.encode("utf-8", "surrogatepass")) + content)
    return whole.digest()
