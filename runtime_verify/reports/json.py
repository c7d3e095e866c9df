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
    encoded = msgspec.json.encode(storable(msgspec.to_builtins(table)))
    return msgspec.json.format(encoded, indent=2).decode() + "\n"


def parse_json(text: str) -> Table:
    """The table that `render_json` wrote. Raises msgspec.DecodeError (ValidationError) where it is none."""
    return msgspec.json.decode(text, type=Table, strict=False)


def storable(value: object) -> object:
    """The value with what JSON cannot hold as text: numbers that are not finite, and half of a surrogate pair."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: storable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [storable(item) for item in value]
    return value
