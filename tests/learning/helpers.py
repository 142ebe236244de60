"""Made-up episodes for tests of batches, losses and updates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from isentrope.core.types import Episode, Turn


def make_turn(rng: np.random.Generator, continues: bool, words: int = 40, longest: int = 6) -> Turn:
    count = int(rng.integers(1, longest + 1))
    think = int(rng.integers(0, count + 1))
    return Turn(
        observation="",
        admissible=None,
        anchor="",
        context_ids=rng.integers(0, words, int(rng.integers(1, 6))).astype(np.int32),
        continues=continues,
        response_ids=rng.integers(0, words, count).astype(np.int32),
        logprobs=(-3 * rng.random(count)).astype(np.float32),
        entropies=rng.random(count).astype(np.float32),
        temperatures=rng.choice([0.7, 1.0, 1.2], count).astype(np.float32),
        think_span=(0, think),
        action_span=(think, count),
        action="look",
        verdict="ok",
        stop="tag",
        reward=float(rng.choice([0.0, -0.1])),
    )


def make_episodes(seed: int, groups: int = 3, size: int = 3, full: bool = True, words: int = 40) -> list[Episode]:
    """`full`: one growing conversation; else every turn has a prompt of its own."""
    rng = np.random.default_rng(seed)
    episodes: list[Episode] = []
    for group in range(groups):
        for member in range(size):
            turns = [make_turn(rng, full and t > 0, words) for t in range(int(rng.integers(1, 4)))]
            won = bool(rng.random() < 0.5)
            turns[-1] = replace(turns[-1], reward=turns[-1].reward + (10.0 if won else 0.0))
            episodes.append(
                Episode(
                    world="toy",
                    split="train",
                    index=group,
                    kind="pick",
                    goal="",
                    group=group,
                    member=member,
                    order="think_act",
                    turns=tuple(turns),
                    success=won,
                    stop="terminated",
                )
            )
    return episodes
