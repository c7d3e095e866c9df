"""From the paths of a command line to projects: which files to lint, and which files their facts come from.

A project is a repository (the nearest folder above with a `.git`), else the nearest folder above with packaging
metadata, else the folder that was named. All its Python files give facts, whichever of them are linted.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torchlint.globs import Globs, git_patterns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from torchlint.config import ConfigFinder, Resolved

EXCLUDED_BY_DEFAULT = frozenset(
    {".bzr", ".direnv", ".eggs", ".git", ".hg", ".ipynb_checkpoints", ".mypy_cache", ".nox", ".pyenv", ".pytest_cache"}
    | {".ruff_cache", ".svn", ".tox", ".torchlint_cache", ".venv", ".vscode", "__pycache__", "__pypackages__", "build"}
    | {"dist", "node_modules", "site-packages", "venv"}
)
_SUFFIXES = (".py", ".ipynb")
_METADATA = ("pyproject.toml", "setup.py", "setup.cfg")


@dataclass(frozen=True)
class Project:
    """One project of a run. Paths are absolute: `targets` are linted, `files` (targets among them) give facts."""

    root: str
    targets: tuple[str, ...]
    files: tuple[str, ...]

    def relative(self, path: str) -> str:
        """The posix path from the root."""
        return os.path.relpath(path, self.root).replace(os.sep, "/")


class Discovery:
    """Walks folders once each, and collects messages about paths that cannot be read in `problems`."""

    def __init__(self, configs: ConfigFinder, force_exclude: bool = False) -> None:
        self.problems: list[str] = []
        self._configs = configs
        self._force_exclude = force_exclude
        self._listings: dict[str, _Listing] = {}
        self._ignores: dict[str, tuple[Globs, ...]] = {}
        self._excludes: dict[int, _Excludes] = {}

    def projects(self, paths: Sequence[str]) -> list[Project]:
        """The projects that the paths belong to, ordered by root. Each file is linted in one of them."""
        targets: dict[str, set[str]] = {}
        shallow: set[str] = set()
        for path in sorted({os.path.abspath(path) for path in paths}):
            root, is_marked = project_root(path)
            if not is_marked and not os.path.isdir(path):
                shallow.add(root)
            elif not is_marked:
                shallow.discard(root)
            targets.setdefault(root, set()).update(self._targets(path))
        return list(self._assemble(targets, shallow))

    def stdin_project(self, path: str) -> Project:
        """The project of a text that comes from standard input under an absolute path, which need not exist."""
        root, is_marked = project_root(path)
        files = self._facts(root, not is_marked)
        return Project(root, (path,), tuple(sorted({*files, path})))

    def is_excluded(self, path: str) -> bool:
        """Whether the configuration keeps a file out, itself or by a folder above it."""
        excludes = self._excludes_in(os.path.dirname(path))
        folder, is_folder = os.path.dirname(path), os.path.isdir(path)
        if excludes.match(path, is_folder) or not excludes.names.isdisjoint(Path(path).parts):
            return True
        return excludes.respect_gitignore and self._is_ignored(path, folder, is_folder)

    def _assemble(self, targets: dict[str, set[str]], shallow: set[str]) -> Iterator[Project]:
        seen: set[str] = set()
        # Outer projects come first, so that a file that two of them hold is linted in the outer one.
        for root in sorted(targets):
            own = targets[root] - seen
            seen |= own
            if own:
                facts = self._facts(root, root in shallow)
                yield Project(root, tuple(sorted(own)), tuple(sorted(own.union(facts))))

    def _targets(self, path: str) -> list[str]:
        if os.path.isdir(path):
            if self._force_exclude and self.is_excluded(path):
                return []
            return _without_twins(self._walk(path))
        if not os.path.lexists(path):
            self.problems.append(f"{path}: no such file or folder: check the spelling of the path")
        elif not os.path.exists(path):
            self.problems.append(f"{path}: a symbolic link that leads nowhere, or to itself: repair or remove it")
        elif not os.path.isfile(path):
            self.problems.append(f"{path}: neither a file nor a folder")
        elif not (self._force_exclude and self.is_excluded(path)):
            return [path]
        return []

    def _facts(self, root: str, shallow: bool) -> list[str]:
        return _without_twins(self._listing(root).files if shallow else self._walk(root))

    def _walk(self, folder: str) -> Iterator[str]:
        """The Python files and notebooks below a folder. Symbolic links to folders are not followed: no loops."""
        waiting = [folder]
        while waiting:
            listing = self._listing(waiting.pop())
            yield from listing.files
            waiting.extend(listing.folders)

    def _listing(self, folder: str) -> _Listing:
        if folder not in self._listings:
            self._listings[folder] = self._list(folder)
        return self._listings[folder]

    def _list(self, folder: str) -> _Listing:
        listing = _Listing([], [])
        excludes = self._excludes_in(folder)
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            self.problems.append(f"{folder}: cannot be listed: {error.strerror or error}")
            return listing
        for entry in entries:
            is_folder = entry.is_dir(follow_symlinks=False)
            if not is_folder and not (entry.name.endswith(_SUFFIXES) and os.path.isfile(entry.path)):
                continue
            if entry.name in excludes.names or excludes.match(entry.path, is_folder):
                continue
            if excludes.respect_gitignore and self._is_ignored(entry.path, folder, is_folder):
                continue
            (listing.folders if is_folder else listing.files).append(entry.path)
        return listing

    def _excludes_in(self, folder: str) -> _Excludes:
        resolved = self._configs.for_folder(Path(folder))
        if id(resolved) not in self._excludes:
            self._excludes[id(resolved)] = _Excludes(resolved)
        return self._excludes[id(resolved)]

    def _is_ignored(self, path: str, folder: str, is_folder: bool) -> bool:
        """What the .gitignore nearest to the path that speaks of it says."""
        for globs in self._ignores_of(folder):
            verdict = globs.verdict(path, is_folder)
            if verdict is not None:
                return verdict
        return False

    def _ignores_of(self, folder: str) -> tuple[Globs, ...]:
        """The patterns of the .gitignore files from `folder` up to the repository, nearest first."""
        if folder not in self._ignores:
            own = _git_globs(folder, ".gitignore")
            if os.path.exists(os.path.join(folder, ".git")):
                above = _git_globs(folder, os.path.join(".git", "info", "exclude"))
            else:
                parent = os.path.dirname(folder)
                above = () if parent == folder else self._above(folder, parent)
            self._ignores[folder] = own + above
        return self._ignores[folder]

    def _above(self, folder: str, parent: str) -> tuple[Globs, ...]:
        # A folder that is ignored itself was named on the command line: what is in it was asked for.
        return () if self._is_ignored(folder, parent, True) else self._ignores_of(parent)


@dataclass(frozen=True)
class _Listing:
    files: list[str]
    folders: list[str]


class _Excludes:
    """The exclusions in force: names of files and folders, and patterns."""

    def __init__(self, resolved: Resolved) -> None:
        self.names = EXCLUDED_BY_DEFAULT if resolved.value("exclude") is None else frozenset[str]()
        self.respect_gitignore: bool = resolved.value("respect-gitignore")
        self._globs = [
            Globs([*(layer.config.exclude or ()), *layer.config.extend_exclude], str(layer.folder))
            for layer in resolved.layers
        ]

    def match(self, path: str, is_folder: bool) -> bool:
        return any(globs.match(path, is_folder) for globs in self._globs)


def _git_globs(folder: str, name: str) -> tuple[Globs, ...]:
    try:
        with open(os.path.join(folder, name), encoding="utf-8", errors="surrogateescape") as file:
            patterns = git_patterns(file.read())
    except OSError:
        return ()
    return (Globs(patterns, folder),) if patterns else ()


def project_root(path: str) -> tuple[str, bool]:
    """The root of the project of an absolute path, and whether a marker (`.git`, packaging metadata) says so."""
    start = path if os.path.isdir(path) else os.path.dirname(path)
    packaged = None
    folder = start
    while True:
        if os.path.exists(os.path.join(folder, ".git")):
            return folder, True
        if packaged is None and any(os.path.isfile(os.path.join(folder, name)) for name in _METADATA):
            packaged = folder
        parent = os.path.dirname(folder)
        if parent == folder:
            return (start, False) if packaged is None else (packaged, True)
        folder = parent


def _without_twins(paths: Iterable[str]) -> list[str]:
    """The paths without the symbolic links to files that are among them anyway."""
    found = list(paths)
    links = [path for path in found if os.path.islink(path)]
    if not links:
        return found
    real = {path for path in found if path not in set(links)}
    for link in links:
        target = os.path.realpath(link)
        if target in real:
            found.remove(link)
        real.add(target)
    return found
