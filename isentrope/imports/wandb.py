"""Reads the history of a W&B run that was kept on the disk: the .wandb file of an offline folder.

The file is a log of LevelDB's form: blocks of 32 KiB with pieces of records (CRC-32, length, kind), each record a
protobuf message. Numbers are in its records of history, as JSON. The package `wandb` is not needed, and has no reader
of these files any more.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from isentrope.core.limits import IMPORT_BYTES, IMPORT_RECORDS, RECORD_BYTES, open_plain, whole_number
from isentrope.imports.series import HIGHEST_STEP, Series
from isentrope.imports.wire import BYTES, Malformed, fields, signed

BEGINNING = b":W&B\xe1\xbe\x00"  # the last byte is the version
STEP_KEYS = ("train/global_step", "training/global_step", "global_step")  # that W&B's own count of calls stands behind
_BLOCK, _HEAD = 32768, 7
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4  # kinds of pieces
_HISTORY = 2  # of a Record
_ITEM, _STEP = 1, 2  # of a History
_KEY, _NESTED, _JSON = 1, 2, 16  # of an item
_NUMBER_CHARS = 40  # of JSON; longer values are texts and tables


def read_wandb(path: Path, series: Series, step_key: str = "") -> None:
    keys = (step_key,) if step_key else STEP_KEYS
    named: int | None = None
    with open_plain(path) as file:
        if file.read(_HEAD) != BEGINNING:
            series.cut = f"{path.name} does not begin as a W&B log of version 0 does; nothing was read of it"
            return
        for record in _records(file, path.name, series):
            try:
                histories = [part for number, kind, part in fields(record) if number == _HISTORY and kind == BYTES]
                rows = [_history(part) for part in histories if isinstance(part, bytes)]
            except Malformed:
                series.left_out("record", "damaged")
                continue
            for own, values in rows:
                there = [int(values[key]) for key in keys if _is_step(values.get(key))]
                named = there[0] if there else named
                for key, value in values.items():
                    if not key.startswith("_") and key not in keys:  # its own counts and clocks
                        series.add(own if named is None else named, key, value)
            if series.full:
                return


def _is_step(value: float | None) -> bool:
    return value is not None and 0 <= value < HIGHEST_STEP and value == int(value)


def _history(data: bytes) -> tuple[int, dict[str, float]]:
    """W&B's own step, and the numbers of one row."""
    step, values = 0, dict[str, float]()
    for number, kind, part in fields(data):
        if kind != BYTES or not isinstance(part, bytes):
            continue
        if number == _STEP:
            step = next((signed(value) for at, _, value in fields(part) if at == 1 and isinstance(value, int)), 0)
        elif number == _ITEM:
            key, value = _item(part)
            if value is not None:
                values[key] = value
    return step, values


def _item(data: bytes) -> tuple[str, float | None]:
    key, nested, value = "", list[str](), None
    for number, kind, part in fields(data):
        if kind != BYTES or not isinstance(part, bytes):
            continue
        if number == _KEY:
            key = part.decode("utf-8", "replace")
        elif number == _NESTED and len(nested) < 16:
            nested.append(part.decode("utf-8", "replace"))
        elif number == _JSON and len(part) <= _NUMBER_CHARS:
            value = number_in(part.decode("utf-8", "replace"))
    return key or "/".join(nested), value


def number_in(text: str) -> float | None:
    """A number of JSON, true and false too; W&B writes what is not finite as a text."""
    try:
        value = json.loads(text, parse_int=whole_number)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):
        return float(value.replace("Infinity", "inf"))
    return float(value) if isinstance(value, int | float) else None


def _records(file: BinaryIO, name: str, series: Series) -> Iterator[bytes]:
    """Whole records, put together of their pieces. A damaged block is left out from there on."""
    pieces, size, begun = list[bytes](), 0, False
    block = file.read(_BLOCK - _HEAD)
    read, place, found = _HEAD + len(block), 0, 0
    while block:
        if len(block) - place < _HEAD:
            block, place = file.read(_BLOCK), 0
            read += len(block)
            if read > IMPORT_BYTES:
                series.cut = f"{name} is longer than {IMPORT_BYTES:,} bytes; what came before was read"
                return
            continue
        checksum, length = (int.from_bytes(block[place + at : place + to], "little") for at, to in ((0, 4), (4, 6)))
        kind = block[place + 6]
        data = block[place + _HEAD : place + _HEAD + length]
        if block[place : place + _HEAD] == bytes(_HEAD):  # room that was never written
            place = len(block)
            continue
        if len(data) < length:
            series.cut = f"{name} is cut off after {read - len(block) + place:,} bytes; what came before was read"
            return
        if not _WHOLE <= kind <= _LAST or zlib.crc32(data, zlib.crc32(block[place + 6 : place + 7])) != checksum:
            series.left_out("block", "damaged")
            place, begun = len(block), False
            continue
        place += _HEAD + length
        if kind in (_WHOLE, _FIRST):
            pieces, size, begun = [], 0, True
        size += length
        if begun and size <= RECORD_BYTES:  # larger ones are tables and pictures
            pieces.append(data)
        if kind in (_WHOLE, _LAST):
            found += 1
            if begun and size <= RECORD_BYTES:
                yield b"".join(pieces)
            pieces, size, begun = [], 0, False
        if found > IMPORT_RECORDS:
            series.cut = f"{name} has more than {IMPORT_RECORDS:,} records; what came before was read"
            return
    if begun:
        series.cut = f"{name} is cut off in the middle of a record; what came before was read"
