"""Episodes for the tests of the instruments, by hand and by hypothesis."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from isentrope.core.types import Episode, Turn


def turn(entropies: list[float], logprobs: list[float] | None = None, **changes: Any) -> Turn:
    count = len(entropies)
    values: dict[str, Any] = {
        "observation": "", "admissible": None, "anchor": "", "context_ids": np.zeros(2, dtype=np.int32),
        "continues": False, "response_ids": np.zeros(count, dtype=np.int32),
        "logprobs": np.array(logprobs or [-1.0] * count, dtype=np.float32),
        "entropies": np.array(entropies, dtype=np.float32), "temperatures": np.ones(count, dtype=np.float32),
        "think_span": None, "action_span": None, "action": None, "verdict": "ok", "stop": "tag", "reward": 0.0,
    }  # fmt: skip
    return Turn(**(values | changes))


def said(ids: list[int], **changes: Any) -> Turn:
    return turn([1.0] * len(ids), response_ids=np.array(ids, dtype=np.int32), **changes)


def episode(
    *turns: Turn, kind: str = "heat", success: bool = False, stop: str = "terminated", goal: str = ""
) -> Episode:
    return Episode("household", "train", 0, kind, goal, 0, 0, "think_act", turns, success, stop)


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


episodes = st.lists(
    st.builds(
        lambda found, kind, success, stop: episode(*found, kind=kind, success=success, stop=stop),
        st.lists(turns(), max_size=5),
        st.sampled_from(["heat", "cool"]),
        st.booleans(),
        st.sampled_from(["terminated", "turn_limit", "task_error"]),
    ),
    max_size=5,
)
