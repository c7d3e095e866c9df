"""Keeps a script from writing to the user's project, in the process that runs it.

Two fences stand one behind the other. An audit hook sees what Python code opens, moves and deletes: a write to data
that the copy only links to first turns the link into a copy, and a write to the user's project itself is refused. What
native code writes no hook sees; for that the kernel is asked to refuse (Landlock, Linux 5.19 and later), for this
process and all that it starts. Source of the numbers: `linux/landlock.h` and `landlock(7)`.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_RULE_PATH_BENEATH = 1
_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_PDEATHSIG = 1
_SIGKILL = 9

_WRITE_FILE, _TRUNCATE = 1 << 1, 1 << 14
_FILE_RIGHTS = _WRITE_FILE | _TRUNCATE
# Removing and making entries (bits 4 to 12) and moving them between folders (bit 13).
_RIGHTS = _FILE_RIGHTS | sum(1 << bit for bit in range(4, 14))
_FIRST_WITH_MOVES = 2
_FIRST_WITH_TRUNCATE = 3


class RefusedError(PermissionError):
    """A write to the user's own files, which a verification never makes."""


def kernel_can_guard() -> bool:
    """Whether the kernel can refuse writes to chosen folders (and allows moving files in the others)."""
    return _landlock_version() >= _FIRST_WITH_MOVES


def die_with_parent() -> None:
    """Have this process killed when its parent dies, however that may happen. Linux only; elsewhere nothing is done."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)


def restrict_writes(protected: Iterable[str], allowed: Iterable[str]) -> bool:
    """Have the kernel refuse, from now on, every change below `protected`, but not below `allowed`; whether it does.

    Landlock knows only what is allowed, so all that stands beside the way down to each protected folder is. A new
    entry in a folder on that way (a new file in the home folder that holds the project, say) is therefore refused too.
    """
    version = _landlock_version()
    if version < _FIRST_WITH_MOVES:
        return False
    rights = _RIGHTS if version >= _FIRST_WITH_TRUNCATE else _RIGHTS & ~_TRUNCATE
    libc = ctypes.CDLL(None, use_errno=True)
    ruleset = libc.syscall(_CREATE_RULESET, ctypes.byref(ctypes.c_uint64(rights)), ctypes.c_size_t(8), 0)
    if ruleset < 0:
        return False
    try:
        for path in (*_beside({os.path.realpath(path) for path in protected}), *allowed):
            _allow(libc, ruleset, path, rights)
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        return bool(libc.syscall(_RESTRICT_SELF, ruleset, 0) == 0)
    finally:
        os.close(ruleset)


def _landlock_version() -> int:
    if sys.platform != "linux":
        return 0
    return int(ctypes.CDLL(None, use_errno=True).syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_FLAG))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def _allow(libc: Any, ruleset: int, path: str, rights: int) -> None:
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)  # type: ignore[attr-defined,unused-ignore]
    except OSError:
        return
    try:
        rule = _PathBeneath(rights if os.path.isdir(path) else rights & _FILE_RIGHTS, handle)
        libc.syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(handle)


def _beside(protected: set[str]) -> Iterator[str]:
    """All that is neither protected nor on the way to something protected, each as the highest folder that is not."""
    ways = {str(parent) for path in protected for parent in Path(path).parents}
    for folder in ways:
        if any(is_below(folder, path) for path in protected):
            continue
        with suppress(OSError):
            for entry in os.scandir(folder):
                if entry.path not in ways and entry.path not in protected and not entry.is_symlink():
                    yield entry.path


class CopyOnWrite:
    """The audit hook. `tree` is the copy, `protected` what must stay as it is; `refused` collects what was tried."""

    def __init__(self, tree: str, protected: Iterable[str]) -> None:
        self.refused: list[str] = []
        self._tree = os.path.realpath(tree)
        self._protected = tuple(os.path.realpath(path) for path in protected)
        self._busy = False

    def install(self) -> None:
        """Watch this process from now on; a hook cannot be taken away again."""
        sys.addaudithook(self._on_event)

    def make_writable(self, path: str, parent_only: bool = False) -> None:
        """Turn the links on the way to a path of the copy into copies. Raises RefusedError for a path of the user's.

        With `parent_only` the last part may stay a link: it is the entry that is about to change, not what is behind.
        """
        path = os.path.abspath(path)
        if not is_below(path, self._tree):
            real = os.path.realpath(os.path.dirname(path) if parent_only else path)
            if not is_below(real, self._tree) and any(is_below(real, kept) for kept in self._protected):
                self.refused.append(path)
                raise RefusedError(
                    13, "torchlint verify does not let a script change the original of its project", path
                )
            return
        parts = os.path.relpath(path, self._tree).split(os.sep)
        place = self._tree
        for number, part in enumerate(parts):
            place = os.path.join(place, part)
            if parent_only and number == len(parts) - 1:
                return
            if os.path.islink(place) and not is_below(os.path.realpath(place), self._tree):
                _copy_up(place)

    def _on_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        changed = _CHANGES.get(event)
        if changed is None or self._busy:
            return
        if event == "open" and not _is_write(arguments[1], arguments[2]):
            return
        self._busy = True
        try:
            for index, parent_only in changed:
                path = arguments[index]
                if isinstance(path, (str, bytes, os.PathLike)):
                    self.make_writable(os.fsdecode(path), parent_only)
        finally:
            self._busy = False


# For each audit event: which arguments are paths that change, and whether only their entry in the folder does.
# (Python documentation, "Audit events table".)
_CHANGES: dict[str, tuple[tuple[int, bool], ...]] = {
    "open": ((0, False),),
    "os.mkdir": ((0, True),),
    "os.remove": ((0, True),),
    "os.rmdir": ((0, True),),
    "os.rename": ((0, True), (1, True)),
    "os.link": ((1, True),),
    "os.symlink": ((1, True),),
    "os.truncate": ((0, False),),
    "os.chmod": ((0, False),),
    "os.utime": ((0, False),),
    "shutil.rmtree": ((0, True),),
    "sqlite3.connect": ((0, False),),
}
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def _is_write(mode: object, flags: object) -> bool:
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return isinstance(flags, int) and bool(flags & _WRITE_FLAGS)


def _copy_up(link: str) -> None:
    """Replace a link to a file by a copy of it, and a link to a folder by a folder of links to what is in there."""
    target = os.path.realpath(link)
    os.unlink(link)
    if os.path.isdir(target):
        os.mkdir(link)
        for entry in os.scandir(target):
            os.symlink(entry.path, os.path.join(link, entry.name))
    elif os.path.exists(target):
        shutil.copyfile(target, link)


def is_below(path: str, folder: str) -> bool:
    """Whether a path is a folder or lies in it; both absolute."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)
