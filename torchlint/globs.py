"""Path patterns as .gitignore writes them, relative to the folder of the file that holds them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec


class Globs:
    """A set of patterns. The matcher is only imported once a path is asked about and there are patterns."""

    def __init__(self, patterns: Iterable[str], folder: Path) -> None:
        self._patterns = tuple(patterns)
        self._folder = folder

    def __bool__(self) -> bool:
        return bool(self._patterns)

    @cached_property
    def _spec(self) -> GitIgnoreSpec:
        from pathspec import GitIgnoreSpec

        return GitIgnoreSpec.from_lines(self._patterns)

    def verdict(self, path: Path, is_folder: bool = False) -> bool | None:
        """True where a pattern matches, False where a later `!pattern` takes it back, None where nothing speaks of it.

        A path outside the folder of the patterns is not spoken of. Only the path itself is judged, not the folders
        above it.
        """
        if not self._patterns:
            return None
        try:
            relative = path.relative_to(self._folder).as_posix()
        except ValueError:
            return None
        return self._spec.check_file(f"{relative}/" if is_folder else relative).include

    def match(self, path: Path) -> bool:
        """Whether a file, or a folder above it, matches."""
        return self.verdict(path) is True
