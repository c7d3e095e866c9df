"""`--watch`: lint, wait until something changes, lint again.

Each round is a whole check with fresh settings. What did not change comes from the cache, which lies in a temporary
folder where the project has none.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from torchlint.cache import VARIABLE
from torchlint.config import ConfigError
from torchlint.discovery import EXCLUDED_BY_DEFAULT, project_root
from torchlint.reports.output import display_path, visible

if TYPE_CHECKING:
    from torchlint.arguments import CheckOptions

_SETTINGS = ("pyproject.toml", "torchlint.toml", ".gitignore", "setup.cfg", "setup.py")
_SUFFIXES = (".py", ".ipynb")
_SHOWN = 3
# An editor that saves writes and renames within this many milliseconds; changes that close are one.
_SETTLED_MS = 50
_LONGEST_WAIT_MS = 500
# How long the first check waits for the watch to be up.
_TICK_MS = 200

Check = Callable[["CheckOptions"], int]


def watch(options: CheckOptions, parse: Callable[[], CheckOptions], check: Check) -> int:
    """Run `check` now and whenever a file changes that may change its result, until Ctrl-C.

    `parse` gives the options afresh, so that changed configuration files count. Raises ConfigError for options that do
    not go with watching, and where the package watchfiles is missing.
    """
    _refuse(options)
    try:
        import watchfiles
    except ImportError as error:
        raise ConfigError("--watch needs the package watchfiles: pip install 'torchlint[watch]'") from error
    with _some_cache(options):
        roots = _roots(options.paths)
        # Watching starts before the first check, so that a change while it runs is not missed.
        changes = watchfiles.watch(
            *roots,
            watch_filter=lambda _, path: _concerns(roots, path),
            debounce=_LONGEST_WAIT_MS,
            step=_SETTLED_MS,
            rust_timeout=_TICK_MS,
            yield_on_timeout=True,
            raise_interrupt=True,
            ignore_permission_denied=True,
        )
        next(changes)
        _round(options, check, ())
        for paths in _batches(changes):
            try:
                _round(parse(), check, paths)
            except ConfigError as error:
                print(f"error: {visible(str(error))}", file=sys.stderr)
                _say_ready(options)
    return 0


def _batches(changes: Iterable[Collection[tuple[object, str]]]) -> Iterator[list[str]]:
    for batch in changes:
        if batch:
            yield sorted({path for _, path in batch})


def _round(options: CheckOptions, check: Check, changed: Iterable[str]) -> None:
    _redraw(changed)
    check(replace(options, use_cache=True))
    _say_ready(options)


def _say_ready(options: CheckOptions) -> None:
    sys.stdout.flush()
    if not options.quiet:
        print("Watching for changes; Ctrl-C ends.", file=sys.stderr)


def _redraw(changed: Iterable[str]) -> None:
    """Clear a terminal; elsewhere the reports follow one another. Say what changed."""
    if sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        sys.stdout.write("\x1b[H\x1b[2J\x1b[3J")
    names = [display_path(path) for path in changed]
    if names:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        print(f"[{time.strftime('%H:%M:%S')}] changed: {', '.join(names[:_SHOWN])}{more}", flush=True)


def _refuse(options: CheckOptions) -> None:
    unfit = {
        "standard input": options.stdin,
        "--add-ignore": options.add_ignore,
        "--show-files": options.show_files,
    }
    for what, is_given in unfit.items():
        if is_given:
            raise ConfigError(f"--watch does not go with {what}")


def _roots(paths: Iterable[str]) -> list[str]:
    """The folders to watch: those of the projects, whose files all may change what is said about one."""
    roots = set()
    for path in paths:
        absolute = os.path.abspath(path)
        if not os.path.exists(absolute):
            raise ConfigError(f"{path}: no such file or folder: check the spelling of the path")
        roots.add(project_root(absolute)[0])
    return [root for root in sorted(roots) if not any(str(parent) in roots for parent in Path(root).parents)]


def _concerns(roots: Sequence[str], path: str) -> bool:
    """Whether a change of this file, below one of the watched folders, may change the result."""
    root = next((root for root in roots if Path(path).is_relative_to(root)), os.sep)
    place = Path(os.path.relpath(path, root))
    is_ours = place.suffix in _SUFFIXES or place.name in _SETTINGS
    return is_ours and EXCLUDED_BY_DEFAULT.isdisjoint(place.parts)


@contextmanager
def _some_cache(options: CheckOptions) -> Iterator[None]:
    """A cache for the time of the watch, where the user wants none on the disk or a project has no place for one."""
    has_place = VARIABLE in os.environ or all(project_root(os.path.abspath(path))[1] for path in options.paths)
    if options.use_cache and has_place:
        yield
        return
    before = os.environ.get(VARIABLE)
    with tempfile.TemporaryDirectory(prefix="torchlint-") as folder:
        os.environ[VARIABLE] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ[VARIABLE]
            else:
                os.environ[VARIABLE] = before
