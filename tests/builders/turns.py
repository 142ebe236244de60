"""Turns of an episode: by hand, at random, and by hypothesis."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from isentrope.core.types import Turn


def turn(entropies: Any, logprobs: Any = None, **changes: Any) -> Turn:
    """As many tokens as `entropies` has, all 0; `changes` are fields of the turn."""
    count = len(entropies)
    values: dict[str, Any] = {
        "observation": "", "admissible": None, "anchor": "", "context_ids": np.zeros(2, dtype=np.int32),
        "continues": False, "response_ids": np.zeros(count, dtype=np.int32),
        "logprobs": np.array([-1.0] * count if logprobs is None else logprobs, dtype=np.float32),
        "entropies": np.array(entropies, dtype=np.float32), "temperatures": np.ones(count, dtype=np.float32),
        "think_span": None, "action_span": None, "action": None, "verdict": "ok", "stop": "tag", "reward": 0.0,
    }  # fmt: skip
    return Turn(**(values | changes))


def said(ids: list[int], **changes: Any) -> Turn:
    return turn([1.0] * len(ids), response_ids=np.array(ids, dtype=np.int32), **changes)


def make_turn(
    rng: np.random.Generator,
    count: int,
    continues: bool,
    words: int = 40,
    longest_context: int = 5,
    rounded: bool = False,
) -> Turn:
    """`count` random tokens, thought and action without a gap. `rounded` entropies: equal ones do happen."""
    think = int(rng.integers(0, count + 1))
    return turn(
        context_ids=rng.integers(0, words, int(rng.integers(1, longest_context + 1))).astype(np.int32),
        continues=continues,
        response_ids=rng.integers(0, words, count).astype(np.int32),
        logprobs=-3 * rng.random(count),
        entropies=np.round(2 * rng.random(count), 1) if rounded else rng.random(count),
        temperatures=rng.choice([0.7, 1.0, 1.2], count).astype(np.float32),
        think_span=(0, think),
        action_span=(think, count),
        action="look",
        reward=float(rng.choice([0.0, -0.1])),
    )


numbers = st.floats(0, 5, width=32) | st.just(float("nan"))


@st.composite
def turns(draw: st.DrawFn) -> Turn:
    count = draw(st.integers(0, 14))
    cut = sorted(draw(st.lists(st.integers(0, count), min_size=3, max_size=3)))
    return turn(
        draw(st.lists(numbers, min_size=count, max_size=count)),
        [-value for value in draw(st.lists(numbers, min_size=count, max_size=count))],
        response_ids=np.array(draw(st.lists(st.integers(0, 3), min_size=count, max_size=count)), dtype=np.int32),
        think_span=draw(st.sampled_from([None, (cut[0], cut[1])])),
        action_span=draw(st.sampled_from([None, (cut[1], cut[2])])),
        action=draw(st.sampled_from([None, "look", "go to cabinet 7", "take egg 1"])),
        observation=draw(st.sampled_from(["Cabinet 7 is here.", "You see an egg 1.", ""])),
        verdict=draw(st.sampled_from(["ok", "inadmissible"])),
    )
