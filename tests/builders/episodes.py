"""Episodes: by hand, at random, by hypothesis, and as the household world gives them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from isentrope.core.types import Episode, Turn
from tests.builders.turns import make_turn, turn, turns

KINDS = ("pick", "look", "clean", "heat", "cool", "pick_two")
WORDS = (
    "I should look for the mug . first , then heat it with microwave 1 go to "
    "desk take from cabinet 2 3 and put countertop drawer open clean sinkbasin maybe nothing here next fridge é 🦆 "
)
TOKENS = [*(f"{word} " for word in WORDS.split()), "<think>", "</think>", "<action>", "</action>"]


def episode(*turns: Turn, **changes: Any) -> Episode:
    """One that failed, unless `changes`, fields of the episode, say otherwise."""
    values: dict[str, Any] = {
        "world": "household", "split": "train", "index": 0, "kind": "heat", "goal": "", "group": 0, "member": 0,
        "order": "think_act", "success": False, "stop": "terminated",
    }  # fmt: skip
    return Episode(turns=turns, **(values | changes))


def make_episodes(seed: int, groups: int = 3, size: int = 3, full: bool = True, words: int = 40) -> list[Episode]:
    """At random. `full`: one growing conversation; else every turn has a prompt of its own."""
    rng = np.random.default_rng(seed)
    episodes: list[Episode] = []
    for group in range(groups):
        for member in range(size):
            lengths = (int(rng.integers(1, 7)) for _ in range(int(rng.integers(1, 4))))  # drawn turn by turn
            turns = [make_turn(rng, count, full and t > 0, words) for t, count in enumerate(lengths)]
            won = bool(rng.random() < 0.5)
            turns[-1] = replace(turns[-1], reward=turns[-1].reward + (10.0 if won else 0.0))
            place = {"world": "toy", "index": group, "group": group, "member": member}
            episodes.append(episode(*turns, kind="pick", success=won, **place))
    return episodes


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


def response(rng: np.random.Generator, thought: str, action: str) -> dict[str, Any]:
    """Token ids and numbers for a response; words that are not in the table are left out."""
    number = {text.strip(): i for i, text in enumerate(TOKENS)}
    words = ["<think>", *thought.split(), "</think>", "<action>", *action.split(), "</action>"]
    words = [word for word in words if word in number]
    ids = np.array([number[word] for word in words], dtype=np.int32)
    entropies = np.where(rng.random(len(ids)) < 0.25, rng.exponential(1.0, len(ids)), rng.exponential(0.05, len(ids)))
    start, end = words.index("</think>"), words.index("<action>")
    return {
        "response_ids": ids,
        "entropies": entropies.astype(np.float32),
        "logprobs": (-entropies * rng.random(len(ids))).astype(np.float32),
        "temperatures": np.ones(len(ids), dtype=np.float32),
        "think_span": (1, start),
        "action_span": (end + 1, len(ids) - 1),
    }


def household_episode(
    rng: np.random.Generator, index: int, success: bool, split: str = "train", text: str = ""
) -> Episode:
    """A household game of a few turns; `text` is put wherever text from a task or a model can stand."""
    moves = [
        ("first look for the mug , maybe desk 1", "go to desk 1", "You arrive at desk 1. On it you see a mug 2."),
        ("the mug 2 is here . take it", "take mug 2 from desk 1", "You pick up the mug 2 from the desk 1."),
        ("then heat it with the microwave", "go to microwave 1", "You arrive at microwave 1. It is closed."),
        ("heat it first", "heat mug 2 with microwave 1", "You heat the mug 2 with the microwave 1."),
    ]
    turns: list[Turn] = []
    seen = "You are in the middle of a room. You see a desk 1, a cabinet 2, a fridge 1, a microwave 1."
    for number, (thought, action, after) in enumerate(moves):
        valid = success or number != 2
        turns.append(
            turn(
                observation=seen + text,
                admissible=("look", action + text),
                anchor=f"{index:04d}{number}",
                context_ids=np.arange(30, dtype=np.int32),
                continues=number > 0,
                action=(action + text) if valid else None,
                verdict="ok" if valid else "inadmissible",
                reward=10.0 if success and number == 3 else 0.0 if valid else -0.1,
                **response(rng, thought, action),
            )
        )
        seen = after if valid else "Nothing happens."
    goal = "heat some mug and put it in cabinet" + text
    stop = "terminated" if success else "turn_limit"
    kind = KINDS[index % len(KINDS)] + text
    return episode(
        *turns,
        split=split,
        index=index,
        kind=kind,
        goal=goal,
        group=index // 8,
        member=index % 8,
        success=success,
        stop=stop,
    )
