"""Named random streams: the same names and seed give the same numbers, in whatever order they are drawn."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray


def stream_key(seed: int, *names: str | int) -> int:
    """A 64-bit key for the stream with this seed and these names."""
    text = "/".join([str(seed), *(str(name) for name in names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def stream(seed: int, *names: str | int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(stream_key(seed, *names)))


class Streams:
    """Many short streams, one after the other, from one generator that is set back: to make one takes longer than to
    draw from it. Not for several threads at once."""

    def __init__(self) -> None:
        self._bits = np.random.Philox(0)
        self._generator = np.random.Generator(self._bits)
        self._fresh: Any = self._bits.state  # as it is before anything was drawn

    def uniforms(self, count: int, seed: int, *names: str | int) -> NDArray[np.float32]:
        """The first numbers of `stream(seed, *names).random(count, dtype=np.float32)`."""
        key = np.random.SeedSequence(stream_key(seed, *names)).generate_state(2, np.uint64)
        self._fresh["state"]["key"] = key
        self._bits.state = self._fresh
        return self._generator.random(count, dtype=np.float32)
