"""Parquet files of a few kilobytes that claim to hold gigabytes, made byte by byte: no writer would make them.

    write_bomb(path, rows=10**9)                      # every column has a billion equal values
    write_bomb(path, rows=1, elements=10**9)          # every list has a billion numbers
    write_bomb(path, rows=5000, text="x" * 2**20)     # every text has a megabyte, and stands in the file once
    write_bomb(path, rows=1, elements=10**9, told=1)  # the same, but the footer says that there is one number

Equal values are one run of RLE, whatever their number. The columns are those of a file of episodes.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from isentrope.runs.episodes import FORMAT, pa

INT32, INT64, FLOAT, DOUBLE, BYTES, BOOLEAN = 1, 2, 4, 5, 6, 0
PLAIN, RLE, RLE_DICTIONARY = 0, 3, 8
I32, I64, BINARY, LIST, STRUCT = 5, 6, 8, 9, 12  # of Thrift's compact protocol


def varint(value: int) -> bytes:
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def _value(kind: int, value: Any) -> bytes:
    if kind in (I32, I64):
        return varint(value << 1 ^ value >> 63)
    if kind == BINARY:
        return varint(len(value)) + value
    return value


def record(*fields: tuple[int, int, Any]) -> bytes:
    """A struct of Thrift: number, type and value of each field, the numbers rising."""
    body, last = b"", 0
    for number, kind, value in fields:
        body += bytes([(number - last) << 4 | kind]) + _value(kind, value)
        last = number
    return body + b"\0"


def listed(kind: int, values: list[Any]) -> bytes:
    head = bytes([len(values) << 4 | kind]) if len(values) < 15 else bytes([0xF0 | kind]) + varint(len(values))
    return head + b"".join(_value(kind, value) for value in values)


def runs(*counted: tuple[int, int]) -> bytes:
    """Runs of equal numbers below 256."""
    return b"".join(varint(count << 1) + bytes([value]) for count, value in counted if count)


def _levels(*counted: tuple[int, int]) -> bytes:
    data = runs(*counted)
    return struct.pack("<i", len(data)) + data


def _page(kind: int, field: int, header: bytes, body: bytes) -> bytes:
    """A page of kind 0 (data) or 2 (dictionary)."""
    return record((1, I32, kind), (2, I32, len(body)), (3, I32, len(body)), (field, STRUCT, header)) + body


def _kind(arrow: Any) -> tuple[int, bytes]:
    """The physical type, and one value of it."""
    if arrow == pa.string():
        return BYTES, b""
    kinds = {pa.int32(): INT32, pa.int64(): INT64, pa.float32(): FLOAT, pa.float64(): DOUBLE, pa.bool_(): BOOLEAN}
    kind = kinds[arrow]
    return kind, bytes({INT32: 4, INT64: 8, FLOAT: 4, DOUBLE: 8, BOOLEAN: 1}[kind])


def write_bomb(
    path: Path, schema: Any, rows: int, elements: int = 1, text: str = "x", told: int | None = None, key: bytes = b""
) -> None:
    """`told`: what the footer says of the number of values of each column, instead of the truth."""
    out, chunks, elements_of = bytearray(b"PAR1"), list[bytes](), list[bytes]()
    for name, arrow in zip(schema.names, schema.types, strict=True):
        nested = pa.types.is_list(arrow)
        kind, one = _kind(arrow.value_type if nested else arrow)
        if kind == BYTES:
            one = struct.pack("<i", len(text)) + text.encode()
        count = elements if nested else rows
        count = max(count, rows) if nested else count
        repeats = _levels((1, 0), (count - 1, 1)) if nested and rows == 1 else _levels((count, 0))
        depth = 3 if nested else 1
        if kind == BOOLEAN:  # has no dictionary: nothing but nulls
            body = _levels((count, 0))
        else:
            body = (repeats if nested else b"") + _levels((count, depth)) + b"\1" + runs((count, 0))
        dictionary = _page(2, 7, record((1, I32, 1), (2, I32, PLAIN)), one)
        encoding = PLAIN if kind == BOOLEAN else RLE_DICTIONARY
        data = _page(0, 5, record((1, I32, count), (2, I32, encoding), (3, I32, RLE), (4, I32, RLE)), body)
        start = len(out)
        out += (b"" if kind == BOOLEAN else dictionary) + data
        size, at = len(out) - start, start if kind == BOOLEAN else start + len(dictionary)
        where = [name.encode(), b"list", b"element"] if nested else [name.encode()]
        meta = [
            (1, I32, kind), (2, LIST, listed(I32, [PLAIN, RLE, RLE_DICTIONARY])), (3, LIST, listed(BINARY, where)),
            (4, I32, 0), (5, I64, count if told is None else told), (6, I64, size), (7, I64, size), (9, I64, at),
        ]  # fmt: skip
        meta += [] if kind == BOOLEAN else [(11, I64, start)]
        chunks.append(record((2, I64, at), (3, STRUCT, record(*meta))))
        utf8 = [(6, I32, 0)] if kind == BYTES else []
        leaf = [(1, I32, kind), (3, I32, 1), (4, BINARY, b"element" if nested else name.encode()), *utf8]
        if nested:
            elements_of.append(record((3, I32, 1), (4, BINARY, name.encode()), (5, I32, 1), (6, I32, 3)))
            elements_of.append(record((3, I32, 2), (4, BINARY, b"list"), (5, I32, 1)))
        elements_of.append(record(*leaf))
    root = record((4, BINARY, b"schema"), (5, I32, len(schema.names)))
    counted = rows if told is None else min(told, rows)
    group = record((1, LIST, listed(STRUCT, chunks)), (2, I64, len(out)), (3, I64, counted))
    label = record((1, BINARY, key or b"isentrope.episodes"), (2, BINARY, FORMAT.encode()))
    footer = record(
        (1, I32, 1), (2, LIST, listed(STRUCT, [root, *elements_of])), (3, I64, counted),
        (4, LIST, listed(STRUCT, [group])), (5, LIST, listed(STRUCT, [label])),
    )  # fmt: skip
    out += footer + struct.pack("<i", len(footer)) + b"PAR1"
    path.write_bytes(out)
