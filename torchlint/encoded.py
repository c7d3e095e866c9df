"""Records as bytes: what goes to another process, and into the cache."""

from __future__ import annotations

from typing import TypeVar

import msgspec

T = TypeVar("T")

# Sets and dicts in order: the same record has the same bytes in every process, and so the same digest.
_ENCODER = msgspec.msgpack.Encoder(order="sorted")


class Encoded(bytes):
    """The bytes of a record. In the process that made them they still know the record: it need not be decoded."""

    record: object

    def __reduce__(self) -> tuple[type[bytes], tuple[bytes]]:
        return bytes, (bytes(self),)


def encode(record: object) -> Encoded:
    """The bytes of a record of msgspec's; UnicodeEncodeError where it holds text that is none."""
    encoded = Encoded(_ENCODER.encode(record))
    encoded.record = record
    return encoded


def decode(encoded: bytes, kind: type[T]) -> T:
    """The record of that kind behind some bytes."""
    if isinstance(encoded, Encoded) and isinstance(encoded.record, kind):
        return encoded.record
    return msgspec.msgpack.decode(encoded, type=kind)
