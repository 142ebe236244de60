"""Hostile GGUF files: a whole one, with lies in its header."""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random

from tests.builders.hostile_models import flip

COUNTS = (0, 1, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63, 2**64 - 1)
KINDS = (0, 1, 2, 6, 7, 8, 9, 10, 12, 13, 255, 2**31, 2**32 - 1)


def make_gguf(path: Path) -> Path:
    from tests.models.tiny_gguf import reference_model, words, write_gguf

    return write_gguf(path, reference_model(len(words()[0])))


def spoil(random: Random, path: Path) -> None:
    data = path.read_bytes()
    end = header_end(data)
    how = random.randrange(8)
    if how == 0:  # how many tensors, or settings
        at = random.choice((8, 16))
        path.write_bytes(data[:at] + struct.pack("<Q", random.choice(COUNTS)) + data[at + 8 :])
    elif how == 1:  # any eight bytes that read as a length, a count or an offset
        places = [at for at in range(24, end - 8) if 0 < struct.unpack_from("<Q", data, at)[0] < 2**24]
        at = random.choice(places)
        path.write_bytes(data[:at] + struct.pack("<Q", random.choice(COUNTS)) + data[at + 8 :])
    elif how == 2:  # any four bytes that read as a type
        places = [at for at in range(24, end - 4) if struct.unpack_from("<I", data, at)[0] in (4, 6, 7, 8, 9)]
        at = random.choice(places)
        path.write_bytes(data[:at] + struct.pack("<I", random.choice(KINDS)) + data[at + 4 :])
    elif how == 3:  # lists within lists
        deep = random.choice((3, 60, 100_000))
        value = struct.pack("<IIQ", 9, 9, 1) + struct.pack("<IQ", 9, 1) * deep
        path.write_bytes(data[:24] + struct.pack("<Q", 1) + b"x" + value + data[24:])
    elif how == 4:
        path.write_bytes(data[: random.randrange(4, end)])
    elif how == 5:
        another_number(random, path, data)
    elif how == 6:
        path.write_bytes(
            random.choice((b"", b"GGUF", b"GGUF" + b"\xff" * 100, b"GGML" + data[4:], b"GGUF\3\0\0\0" + b"\0" * 16))
        )
    else:
        flip(random, path, 4, end)


def another_number(random: Random, path: Path, data: bytes) -> None:
    """One of the settings of the model or of its tokenizer."""
    names = (b"llama.block_count", b"llama.embedding_length", b"llama.attention.head_count",
             b"llama.feed_forward_length", b"llama.attention.head_count_kv", b"llama.context_length",
             b"llama.vocab_size", b"general.alignment",
             b"llama.rope.dimension_count", b"tokenizer.ggml.eos_token_id", b"llama.rope.freq_base")  # fmt: skip
    name = random.choice(names)
    at = data.find(name)
    if at < 0:
        return flip(random, path, 4, header_end(data))
    at += len(name) + 4
    path.write_bytes(
        data[:at] + struct.pack("<I", random.choice((0, 1, 3, 2**20, 2**31 - 1, 2**32 - 1))) + data[at + 4 :]
    )


def header_end(data: bytes) -> int:
    """Where the descriptions of tensors end, roughly: behind the last of their names."""
    return data.rfind(b"output_norm.weight") + 18 + 4 + 8 + 4 + 8
