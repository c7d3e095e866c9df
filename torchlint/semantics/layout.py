"""Where a project's modules lie: which file an import means, and which files can matter at all."""

from __future__ import annotations

import posixpath
import re
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

# Files that make their folder a project of its own: a repository of examples holds many.
METADATA = ("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt")


class ProjectLayout:
    """Which Python files a project has, and which of them an import means.

    `files` are posix paths relative to `root`. A module's name here is its path, dotted, without `.py`; `__init__.py`
    is named for its folder.
    """

    def __init__(self, root: Path, files: Iterable[str]) -> None:
        self.root = root
        self.files = tuple(sorted(set(files)))
        self._names = {module_name(path): path for path in self.files}
        self._packages = {posixpath.dirname(path) for path in self.files if posixpath.basename(path) == "__init__.py"}
        self._resolved: dict[tuple[str, str], str | None] = {}  # by the importing file's folder and the dotted name
        self._has_metadata: dict[str, bool] = {}
        self._folders = {folder for path in self.files for folder in _folders_above(path)}

    def home(self, path: str) -> str:
        """The nearest folder above a file that has metadata of its own: what shares it is one project."""
        for folder in [*_folders_above(path), ""]:
            known = self._has_metadata.get(folder)
            if known is None:
                known = self._has_metadata[folder] = any((self.root / folder / name).exists() for name in METADATA)
            if known:
                return folder
        return ""

    def path(self, name: str) -> str | None:
        """The file of a module name."""
        return self._names.get(name)

    def exists(self, name: str) -> bool:
        """Whether `name` is a module or a folder that holds some."""
        return name in self._names or name.replace(".", "/") in self._folders

    def resolve(self, from_path: str, dotted: str) -> str | None:
        """The module name that `import dotted` in the file `from_path` means, None where it is not the project's.

        A script sees its own folder first; a file of a package sees the folders above the package. `src/` is seen from
        everywhere.
        """
        folder = _folder(from_path)
        if (folder, dotted) not in self._resolved:
            self._resolved[folder, dotted] = self._resolve(folder, dotted)
        return self._resolved[folder, dotted]

    def _resolve(self, folder: str, dotted: str) -> str | None:
        while True:
            if folder not in self._packages:
                name = f"{folder.replace('/', '.')}.{dotted}" if folder else dotted
                if self.exists(name):
                    return name
            if not folder:
                break
            folder = posixpath.dirname(folder)
        return f"src.{dotted}" if self.exists(f"src.{dotted}") else None

    def resolve_relative(self, from_path: str, level: int, dotted: str) -> str:
        """The module name that `from ..dotted import` means."""
        folder = _folder(from_path)
        for _ in range(level - 1):
            folder = posixpath.dirname(folder)
        base = folder.replace("/", ".")
        return f"{base}.{dotted}" if base and dotted else base or dotted


_folder = lru_cache(maxsize=65536)(posixpath.dirname)


def module_name(path: str) -> str:
    """`pkg/net.py` → "pkg.net", `pkg/__init__.py` → "pkg"."""
    stem = path.rpartition(".")[0] or path
    if posixpath.basename(stem) == "__init__":
        stem = posixpath.dirname(stem)
    return stem.replace("/", ".")


def _folders_above(path: str) -> Iterator[str]:
    folder = posixpath.dirname(path)
    while folder:
        yield folder
        folder = posixpath.dirname(folder)


# Without one of these a file neither uses torch nor holds a helper that handles its objects.
_WORDS = re.compile(
    rb"torch|\.backward\(|zero_grad|no_grad|\.item\(|\.cpu\(|\.cuda\(|\.to\(|\.eval\(|\.tolist\(|nn\.|[Ll]ightning|accelerate|"
    rb"DataLoader|numpy|isinstance|\.topk\(|\.detach\(|\.view\(|\.argmax\("
)


def relevant(path: str, data: bytes) -> bool:
    """Whether a file can hold a finding or a fact about one; a package's `__init__.py` may re-export some."""
    return posixpath.basename(path) == "__init__.py" or path.endswith(".ipynb") or _WORDS.search(data) is not None
