"""TOML documents, by the standard library where it can read them."""

from __future__ import annotations

import sys
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]


def parse_toml(text: str) -> dict[str, Any]:
    """The document. Raises ValueError, with the place in its message, for text that is not TOML."""
    try:
        document: dict[str, Any] = tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return document
