"""Text that ends up in JSON, whatever characters it holds."""

from __future__ import annotations

import re
from typing import Any

import msgspec

# What JSON allows inside a string and a terminal or a log of a CI service could take for a command, or show out of
# order: C1 controls, direction marks, and the openings of `##[…]` and `##vso[…]`, which are read anywhere on a line.
_GUARDED = re.compile(
    "[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufffe\uffff]|(?<=#)#(?=\\[|vso\\[)", re.IGNORECASE
)


def encode(document: Any, indent: int = 2) -> str:
    """A document of dicts, lists and plain values as JSON, ending in a newline; `indent=0` keeps it on one line.

    What JSON cannot hold (half a surrogate pair, such as an undecodable byte of a file name) is written as text that
    names it. The result is safe to print.
    """
    encoded = msgspec.json.encode(storable(document))
    text = (msgspec.json.format(encoded, indent=indent) if indent else encoded).decode()
    return _GUARDED.sub(lambda found: f"\\u{ord(found.group()):04x}", text) + "\n"


def storable(value: Any) -> Any:
    """The value with all its texts fit for UTF-8."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {storable(key): storable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [storable(item) for item in value]
    return value
