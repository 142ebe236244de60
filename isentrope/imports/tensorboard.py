"""Reads the scalars of TensorBoard's event files.

A file is a row of records: length (8 bytes), its checksum (4), an Event as protobuf, its checksum (4); checksums are
CRC-32C, masked. A wrong length ends the reading, a wrong event is left out. A length is held against the size of the
file before anything is read, which a reader made for files of one's own need not do; so this one is ours.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from isentrope.core.limits import IMPORT_BYTES, IMPORT_FILES, IMPORT_RECORDS, RECORD_BYTES, open_plain
from isentrope.imports.series import Series
from isentrope.imports.wire import BYTES, EIGHT, FOUR, VARINT, Malformed, fields, float32, float64, signed

EVENTS = "events.out.tfevents."  # how names of event files begin, or what is in their middle
_STEP, _SUMMARY = 2, 5  # of an Event
_VALUE = 1  # of a Summary
_TAG, _SIMPLE, _TENSOR = 1, 2, 8  # of a Value
_DTYPE, _CONTENT = 1, 4  # of a Tensor
_FLOATS, _DOUBLES, _INTS, _INT64S = 5, 6, 7, 10
_FORMS = {1: "<f", 2: "<d", 3: "<i", 9: "<q"}  # of a Tensor's content, by its type


def is_event_file(path: Path) -> bool:
    return EVENTS in path.name


def read_event_files(paths: list[Path], series: Series) -> None:
    """Files in the order in which they were begun, which their names tell."""
    for path in paths[:IMPORT_FILES]:
        with open_plain(path) as file:
            for event in _records(file, path.name, series):
                _take(event, series)
                if series.full:
                    break
    if len(paths) > IMPORT_FILES:
        series.left_out("file", f"beyond the {IMPORT_FILES:,} that a run may have", len(paths) - IMPORT_FILES)


def _records(file: BinaryIO, name: str, series: Series) -> Iterator[tuple[bytes, int]]:
    """Each whole record and its checksum, up to where the file is cut or damaged."""
    size = file.seek(0, 2)
    file.seek(0)
    place = 0
    for _ in range(IMPORT_RECORDS):
        head = file.read(12)
        if not head:
            return
        if len(head) < 12:
            series.cut = f"{name} is cut off after {place:,} bytes; what came before was read"
            return
        length, checksum = struct.unpack("<QI", head)
        if masked_crc32c(head[:8]) != checksum:
            series.cut = f"{name} is damaged after {place:,} bytes; what came before was read"
            return
        if place + length + 16 > min(size, IMPORT_BYTES):
            limit = f"is longer than {IMPORT_BYTES:,} bytes" if size > IMPORT_BYTES else f"is cut off after {place:,}"
            series.cut = f"{name} {limit}{'' if size > IMPORT_BYTES else ' bytes'}; what came before was read"
            return
        if length > RECORD_BYTES:  # a picture or a model
            file.seek(length + 4, 1)
        else:
            data = file.read(length + 4)
            yield data[:-4], int.from_bytes(data[-4:], "little")
        place += length + 16
    series.cut = f"{name} has more than {IMPORT_RECORDS:,} records; what came before was read"


def _take(record: tuple[bytes, int], series: Series) -> None:
    event, checksum = record
    try:
        step, scalars = _scalars(event)
    except Malformed:
        series.left_out("event", "damaged")
        return
    if not scalars:
        return
    if masked_crc32c(event) != checksum:
        series.left_out("event", "damaged (its checksum is wrong)")
        return
    for tag, value in scalars:
        series.add(step, tag, value)


def _scalars(event: bytes) -> tuple[int, list[tuple[str, float]]]:
    step, found = 0, list[tuple[str, float]]()
    for number, kind, value in fields(event):
        if number == _STEP and kind == VARINT:
            assert isinstance(value, int)
            step = signed(value)
        elif number == _SUMMARY and kind == BYTES:
            assert isinstance(value, bytes)
            parts = [part for at, kind, part in fields(value) if at == _VALUE and kind == BYTES]
            found += [scalar for part in parts if isinstance(part, bytes) and (scalar := _scalar(part)) is not None]
    return step, found


def _scalar(data: bytes) -> tuple[str, float] | None:
    """Name and number of one Value; None where it is a picture, a text or a histogram."""
    tag, scalar = "", None
    for number, kind, value in fields(data):
        if isinstance(value, int):
            continue
        if number == _TAG and kind == BYTES:
            tag = value.decode("utf-8", "replace")
        elif number == _SIMPLE and kind == FOUR:
            scalar = float32(value)
        elif number == _TENSOR and kind == BYTES:
            scalar = _of_tensor(value)
    return None if scalar is None else (tag, scalar)


def _of_tensor(data: bytes) -> float | None:
    """The number of a tensor that is one: TensorFlow writes its scalars so."""
    dtype, content, found = 0, b"", list[float]()
    for number, kind, value in fields(data):
        if isinstance(value, int):
            dtype = value if number == _DTYPE else dtype
            found += [float(signed(value))] if number in (_INTS, _INT64S) else []
        elif number == _CONTENT:
            content = value
        elif number == _FLOATS and len(value) == 4:  # packed or not, one number has the same four bytes
            found.append(float32(value))
        elif number == _DOUBLES and len(value) == 8 and kind in (BYTES, EIGHT):
            found.append(float64(value))
    form = _FORMS.get(dtype)
    if form and len(content) == struct.calcsize(form):
        found.append(float(struct.unpack(form, content)[0]))
    return found[0] if len(found) == 1 else None


def _table() -> list[int]:
    table: list[int] = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_CRC = _table()


def masked_crc32c(data: bytes) -> int:
    """CRC-32C, turned and shifted as the format has it, so that a checksum of a checksum is no trivial one."""
    crc, table = 0xFFFFFFFF, _CRC
    for byte in data:
        crc = table[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
