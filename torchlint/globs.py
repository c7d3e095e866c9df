"""Path patterns as .gitignore writes them, relative to the folder of the file that holds them."""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pathspec import GitIgnoreSpec


class Globs:
    """A set of patterns. The matcher is only imported once a path is asked about and there are patterns."""

    def __init__(self, patterns: Iterable[str], folder: str) -> None:
        self._patterns = tuple(patterns)
        self._prefix = folder if folder.endswith(os.sep) else folder + os.sep

    @cached_property
    def _spec(self) -> GitIgnoreSpec:
        from pathspec import GitIgnoreSpec

        return GitIgnoreSpec.from_lines(self._patterns)

    def verdict(self, path: str, is_folder: bool = False) -> bool | None:
        """True where a pattern matches the absolute path or a folder above it, False where a `!pattern` takes it back.

        None where no pattern speaks of it, or where it lies outside the folder of the patterns.
        """
        if not self._patterns or not path.startswith(self._prefix):
            return None
        relative = path[len(self._prefix) :].replace(os.sep, "/")
        return self._spec.check_file(f"{relative}/" if is_folder else relative).include

    def match(self, path: str, is_folder: bool = False) -> bool:
        """Whether the path, or a folder above it, matches."""
        return self.verdict(path, is_folder) is True


def git_patterns(text: str) -> tuple[str, ...]:
    """The patterns of a .gitignore file; empty where it holds only comments, so that nothing has to be matched."""
    lines = (line.rstrip("\r") for line in text.split("\n"))
    return tuple(line for line in lines if line.strip() and not line.startswith("#"))
