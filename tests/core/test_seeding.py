"""Streams that are set back give the very numbers of streams that are made anew."""

from __future__ import annotations

import hashlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from isentrope.core.seeding import Streams, stream

names = st.lists(st.one_of(st.integers(0, 2**63), st.text(max_size=12)), max_size=4)


def made_anew(count: int, seed: int, *parts: str | int) -> list[float]:
    """As it has always been: whoever changes this changes every run."""
    text = "/".join([str(seed), *(str(part) for part in parts)])
    key = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    return np.random.Generator(np.random.Philox(key)).random(count, dtype=np.float32).tolist()


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 2**31), names), min_size=1, max_size=5))
def test_whatever_was_drawn_before(drawn: list[tuple[int, int, list[str | int]]]) -> None:
    streams = Streams()
    for count, seed, parts in drawn:  # odd counts leave half of a 64-bit number behind
        found = streams.uniforms(count, seed, *parts)
        assert found.dtype == np.float32
        assert found.tolist() == made_anew(count, seed, *parts)
        assert found.tolist() == stream(seed, *parts).random(count, dtype=np.float32).tolist()


def test_numbers_that_were_given_out_stay() -> None:
    streams = Streams()
    first = streams.uniforms(5, 1, "a")
    before = first.tolist()
    streams.uniforms(5, 1, "b")
    assert first.tolist() == before
