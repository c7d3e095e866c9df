"""A table as JSON, and back."""

from __future__ import annotations

import math

import msgspec

from ..records import Table


def render_json(table: Table) -> str:
    """The table as an indented JSON object, ending in a newline; its keys are the records' fields.

    JSON has no number for what is not finite, such as the largest difference from a NaN: that becomes the text "nan",
    "inf" or "-inf". Halves of surrogate pairs, which no UTF-8 can hold, are escaped.
    """
    encoded = msgspec.json.encode(_storable(msgspec.to_builtins(table)))
    return msgspec.json.format(encoded, indent=2).decode() + "\n"


def parse_json(text: str) -> Table:
    """The table that `render_json` wrote. Raises msgspec.DecodeError (ValidationError) where it is none."""
    return msgspec.json.decode(text, type=Table, strict=False)


def _storable(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _storable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_storable(item) for item in value]
    return value
