"""Writes what a run leaves behind (reports, baselines): in one step, so that a crash leaves the old file or the new."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path


def save(path: Path, text: str) -> None:
    """Make `text`, as UTF-8, the content of the file at `path`, which need not exist; its folder has to.

    The mode bits of an existing file stay, and a symbolic link stays one. What is no regular file (a pipe, a device) is
    written to as it is. Raises OSError, and leaves what was there, where the file or its folder cannot be written.
    """
    data = text.encode("utf-8", "backslashreplace")
    target = Path(os.path.realpath(path))
    mode = _mode(target)
    if mode is not None and not stat.S_ISREG(mode):
        with open(path, "wb") as stream:
            stream.write(data)
        return
    # A folder that may be written lets anybody replace a file in it, even one that is not theirs to change.
    if mode is not None and not os.access(target, os.W_OK):
        raise PermissionError(f"{path} is read-only")
    _replace(target, data, 0o666 & ~_umask() if mode is None else stat.S_IMODE(mode))


def _mode(target: Path) -> int | None:
    """The mode of what is there now, None where nothing is."""
    try:
        return target.stat().st_mode
    except FileNotFoundError:
        return None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _replace(target: Path, data: bytes, mode: int) -> None:
    import tempfile

    handle, name = tempfile.mkstemp(prefix=f".{target.name[:50]}.", suffix=".tmp", dir=target.parent)
    try:
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, mode)
        os.replace(name, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
