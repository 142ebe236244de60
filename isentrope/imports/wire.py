"""Reads protobuf messages, field by field, without a description of them: what TensorBoard and W&B write.

Only what is asked for is taken out, nothing is nested by itself, and no length is believed that leads out of the data.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

VARINT, EIGHT, BYTES, FOUR = 0, 1, 2, 5  # kinds of fields: how a number tells its length
_VARINT_BYTES = 10


class Malformed(ValueError):
    """Bytes that are no message."""


def fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Each field's number, kind and content: a whole number for VARINT, else its bytes."""
    place, end = 0, len(data)
    while place < end:
        tag, place = _varint(data, place)
        number, kind = tag >> 3, tag & 7
        if kind == VARINT:
            value, place = _varint(data, place)
            yield number, kind, value
            continue
        if kind == BYTES:
            size, place = _varint(data, place)
        elif kind in (EIGHT, FOUR):
            size = 8 if kind == EIGHT else 4
        else:
            raise Malformed(f"a field of the kind {kind}")
        if size > end - place:
            raise Malformed("a field that is longer than its message")
        yield number, kind, data[place : place + size]
        place += size


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    for byte in data[place : place + _VARINT_BYTES]:
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & (1 << 64) - 1, place
        shift += 7
    raise Malformed("a number without an end")


def signed(value: int) -> int:
    """A VARINT as int64."""
    return value - (1 << 64) if value >= 1 << 63 else value


def float32(data: bytes) -> float:
    return float(struct.unpack("<f", data)[0])


def float64(data: bytes) -> float:
    return float(struct.unpack("<d", data)[0])
