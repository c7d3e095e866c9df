"""A copy of this checkout as it is now, uncommitted work included, for tests that install from it."""

from __future__ import annotations

import shutil
from pathlib import Path

CHECKOUT = Path(__file__).parent.parent
# What the package is built from, and what others use of the repository.
_PACKAGE = ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", "torchlint", "rules", "fixtures", "runtime_verify")
_OFFERED = (".pre-commit-hooks.yaml", "action.yml")


def copy_checkout(folder: Path) -> Path:
    """Copy what the package is built from, the hooks and the action into a new folder."""
    folder.mkdir()
    for name in (*_PACKAGE, *_OFFERED):
        origin = CHECKOUT / name
        if origin.is_dir():
            shutil.copytree(origin, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(origin, folder / name)
    return folder
