"""A copy of the user's project, in which a script can run and write as it likes.

Code and other small files are copied. Data sets and checkpoints stay where they are, behind symbolic links: `guard`
sees to it that what a script writes to one lands in the copy.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from .guard import is_below

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LARGE_FILE = 16 * 2**20
LARGE_FOLDER_FILES = 1_000
LARGE_FOLDER_BYTES = 64 * 2**20
MOST_FILES = 50_000
MOST_BYTES = 2 * 2**30

# What no script reads: caches, histories, environments (those are recognized by their pyvenv.cfg, too).
_LEFT_OUT = frozenset(
    {".git", ".hg", ".svn", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".torchlint_cache", ".tox"}
    | {".nox", "node_modules", ".ipynb_checkpoints", ".venv"}
)


class CopyError(Exception):
    """A project that cannot be copied; the message says why and what to do."""


@dataclass(frozen=True)
class Snapshot:
    """A project as it was when it was looked at; all paths but the roots are relative to them.

    `root` is the user's folder, `store` the copy that all runs are made from. `links` maps what is linked to where it
    leads.
    """

    root: Path
    store: Path
    folders: tuple[str, ...]
    files: tuple[str, ...]
    links: Mapping[str, str]

    @property
    def sources(self) -> tuple[str, ...]:
        """The Python files among the files."""
        return tuple(file for file in self.files if file.endswith(".py"))

    @property
    def protected(self) -> tuple[str, ...]:
        """What must not be written to: the user's project, and what lies behind links that lead out of it."""
        outside = {target for target in self.links.values() if not is_below(target, str(self.root))}
        return (str(self.root), *sorted(outside))

    def read(self, relative: str) -> bytes:
        """The content of a file at the time of the snapshot."""
        return (self.store / relative).read_bytes()


def snapshot(root: Path, store: Path, copy_everything: bool = False) -> Snapshot:
    """Copy the project at `root` to `store`, which must not exist. With `copy_everything`, nothing is linked but what
    the user linked. Raises CopyError where it is too large for that or cannot be read."""
    root = Path(os.path.realpath(root))
    listing = _Listing(str(root), copy_everything)
    listing.scan("")
    too_many, too_large = len(listing.files) > MOST_FILES, listing.bytes > MOST_BYTES
    if too_many or too_large:
        size = f"{len(listing.files):,} files" if too_many else f"{listing.bytes / 2**30:.1f} GiB"
        raise CopyError(
            f"{root}: the project has {size} to copy; name a smaller folder that holds the script with --project, or "
            "let large data be linked with --link-data"
        )
    found = Snapshot(root, store, tuple(listing.folders), tuple(listing.files), listing.links)
    _write(found, root, store, {})
    return found


def materialize(found: Snapshot, folder: Path, replaced: Mapping[str, bytes]) -> None:
    """Write a fresh copy of the snapshot to `folder`, with other contents for the files named in `replaced`."""
    _write(found, found.store, folder, replaced)


def remove(folder: Path) -> None:
    """Delete a folder that a script may have left in any state. Symbolic links are deleted, not followed."""
    if not os.path.lexists(folder):
        return
    for parent, folders, _ in os.walk(folder):
        with suppress(OSError):
            os.chmod(parent, 0o700)
        for name in folders:
            path = os.path.join(parent, name)
            if not os.path.islink(path):
                with suppress(OSError):
                    os.chmod(path, 0o700)
    shutil.rmtree(folder, ignore_errors=True)


def _write(found: Snapshot, source: Path, folder: Path, replaced: Mapping[str, bytes]) -> None:
    folder.mkdir(parents=True)
    try:
        for relative in found.folders:
            (folder / relative).mkdir()
        for relative in found.files:
            target = folder / relative
            if relative in replaced:
                target.write_bytes(replaced[relative])
                shutil.copymode(source / relative, target)
            else:
                shutil.copy2(source / relative, target)
            target.chmod(target.stat().st_mode | 0o600)
        for relative, leads_to in found.links.items():
            _link(found, folder, relative, leads_to)
    except OSError as error:
        raise CopyError(f"{error.filename or source}: cannot be copied: {error.strerror or error}") from error


def _link(found: Snapshot, folder: Path, relative: str, leads_to: str) -> None:
    """A link to data in its place, or, for a link of the user's to something in the project, one to its copy."""
    inside = os.path.relpath(leads_to, found.root)
    is_own = inside != relative and not inside.startswith("..") and (folder / inside).exists()
    (folder / relative).symlink_to(folder / inside if is_own else leads_to)


@dataclass
class _Listing:
    """What is to be copied and what is to be linked, collected folder by folder."""

    root: str
    copy_everything: bool
    folders: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    links: dict[str, str] = field(default_factory=dict)
    bytes: int = 0

    def scan(self, folder: str) -> None:
        below = []
        for entry in self._entries(folder):
            relative = os.path.join(folder, entry.name)
            if entry.is_symlink():
                if os.path.exists(entry.path):
                    self.links[relative] = os.path.realpath(entry.path)
            elif entry.is_dir():
                if entry.name in _LEFT_OUT or os.path.isfile(os.path.join(entry.path, "pyvenv.cfg")):
                    continue
                if not self.copy_everything and _holds_data(entry.path):
                    self.links[relative] = entry.path
                else:
                    self.folders.append(relative)
                    below.append(relative)
            elif entry.is_file():
                self._file(entry, relative)
        for relative in below:
            self.scan(relative)

    def _entries(self, folder: str) -> list[os.DirEntry[str]]:
        path = os.path.join(self.root, folder)
        try:
            return sorted(os.scandir(path), key=lambda entry: entry.name)
        except OSError as error:
            raise CopyError(f"{path}: cannot be listed: {error.strerror or error}") from error

    def _file(self, entry: os.DirEntry[str], relative: str) -> None:
        size = entry.stat().st_size
        if size > LARGE_FILE and not self.copy_everything and not entry.name.endswith(".py"):
            self.links[relative] = entry.path
            return
        if not os.access(entry.path, os.R_OK):
            return  # nor could the script read it
        self.files.append(relative)
        self.bytes += size


def _holds_data(folder: str) -> bool:
    """Whether a folder is large and has no Python in it."""
    files = size = 0
    for entry in _walk(folder):
        if entry.name.endswith((".py", ".pyi")):
            return False
        files += 1
        with suppress(OSError):
            size += entry.stat(follow_symlinks=False).st_size
    return files > LARGE_FOLDER_FILES or size > LARGE_FOLDER_BYTES


def _walk(folder: str) -> Iterator[os.DirEntry[str]]:
    waiting = [folder]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    yield entry
