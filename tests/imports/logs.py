"""Logs of other programs for tests: real ones from tests/imports/data, and such as are written by hand."""

from __future__ import annotations

import json
import lzma
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path

from isentrope.imports.tensorboard import masked_crc32c
from isentrope.imports.wandb import BEGINNING

DATA = Path(__file__).parent / "data"
EVENT_FILE = "events.out.tfevents.1795115265.host.1.0"


def trl_logs(folder: Path) -> dict[str, Path]:
    """The logs of one run of TRL, each by its kind."""
    return {
        "trainer_state": DATA / "trainer_state.json",
        "tensorboard": unpacked("trl-events.out.tfevents", folder / "tensorboard" / EVENT_FILE).parent,
        "wandb": unpacked("trl.wandb", folder / "wandb" / "run-31n5b19z.wandb").parent,
    }


def verl_logs(folder: Path) -> dict[str, Path]:
    return {
        "jsonl": DATA / "verl.jsonl",
        "console": DATA / "verl-console.txt",
        "tensorboard": unpacked("verl-events.out.tfevents", folder / "verl-tb" / EVENT_FILE).parent,
        "wandb": unpacked("verl.wandb", folder / "verl-wandb" / "run-zdnty94y.wandb").parent,
    }


def unpacked(name: str, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.decompress((DATA / f"{name}.xz").read_bytes()))
    return path


# -- by hand


def varint(value: int) -> bytes:
    found, value = b"", value & (1 << 64) - 1
    while value >= 128:
        found, value = found + bytes([value & 127 | 128]), value >> 7
    return found + bytes([value])


def part(number: int, data: bytes | int) -> bytes:
    """A field of protobuf: a text or message, or a whole number."""
    if isinstance(data, int):
        return varint(number << 3) + varint(data)
    return varint(number << 3 | 2) + varint(len(data)) + data


def event(step: int, values: Mapping[str, float]) -> bytes:
    """A record of an event file."""
    told = b"".join(
        part(1, part(1, tag.encode("utf-8", "surrogatepass")) + b"\x15" + struct.pack("<f", value))
        for tag, value in values.items()
    )
    return framed(part(2, step) + part(5, told))


def framed(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    sums = [struct.pack("<I", masked_crc32c(piece)) for piece in (length, data)]
    return length + sums[0] + data + sums[1]


def wandb_log(rows: list[tuple[int, Mapping[str, object]]]) -> bytes:
    """A .wandb file: rows of W&B's own step and values."""
    found = BEGINNING
    for step, values in rows:
        items = [part(1, part(2, key.encode()) + part(16, json.dumps(value).encode())) for key, value in values.items()]
        data = part(2, b"".join(items) + part(2, part(1, step)))
        first = True
        while data or first:
            room = 32768 - len(found) % 32768
            if room < 7:
                found += bytes(room)
                continue
            piece, data = data[: room - 7], data[room - 7 :]
            kind = bytes([1 if first and not data else 2 if first else 3 if data else 4])
            found += struct.pack("<IH", zlib.crc32(piece, zlib.crc32(kind)), len(piece)) + kind + piece
            first = False
    return found
