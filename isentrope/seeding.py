"""Everything random is drawn from a named stream: the same names and seed give the same numbers, in any order."""

from __future__ import annotations

import hashlib

import numpy as np


def stream_key(seed: int, *names: str | int) -> int:
    """A 64-bit key for the stream with this seed and these names."""
    text = "/".join([str(seed), *(str(name) for name in names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def stream(seed: int, *names: str | int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(stream_key(seed, *names)))
