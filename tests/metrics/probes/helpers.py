"""Episodes whose responses have real tags."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isentrope.agent.response_format import parse_response
from isentrope.core.tokenizer import ACTION, ChatTokenizer
from isentrope.core.types import Episode, Floats, Turn


def make_turn(
    tokenizer: ChatTokenizer,
    context: str,
    response: str,
    order: str = "think_act",
    continues: bool = False,
    tags: tuple[str, ...] = ACTION,
) -> Turn:
    """A turn whose spans and verdict are those of the project's own parser."""
    ids = np.array(tokenizer.answer(response), dtype=np.int32)
    parsed = parse_response(tokenizer.pieces([int(i) for i in ids]), order, "tag", tags)
    return Turn(
        observation=context,
        admissible=None,
        anchor="",
        context_ids=np.array(tokenizer.content(context), dtype=np.int32),
        continues=continues,
        response_ids=ids,
        logprobs=np.full(len(ids), -1, dtype=np.float32),
        entropies=np.ones(len(ids), dtype=np.float32),
        temperatures=np.ones(len(ids), dtype=np.float32),
        think_span=parsed.think_span,
        action_span=parsed.action_span,
        action=parsed.action,
        verdict=parsed.verdict,
        stop="tag",
        reward=0.0,
    )


def episode_of(
    turns: Sequence[Turn], group: int = 0, member: int = 0, success: bool = False, order: str = "think_act"
) -> Episode:
    return Episode("toy", "train", group, "pick", "", group, member, order, tuple(turns), success, "terminated")


def games(tokenizer: ChatTokenizer, groups: int = 3, size: int = 4, order: str = "think_act") -> list[Episode]:
    """Conversations that all differ; every other episode is solved."""
    episodes: list[Episode] = []
    for group in range(groups):
        for member in range(size):
            turns: list[Turn] = []
            for number in range(1 + (group + member) % 3):
                thought, action = f"<think>{'go to' * (member + 1)} {number}</think>", f"<action>look {group}</action>"
                text = thought + action if order == "think_act" else action + thought
                turns.append(make_turn(tokenizer, f"you see a {group}{number}", text, order, continues=number > 0))
            episodes.append(episode_of(turns, group, member, success=(group + member) % 2 == 0, order=order))
    return episodes


def advantages_of(episodes: Sequence[Episode]) -> Floats:
    """One advantage per response token: 1 for solved episodes, -1 for others."""
    values = [
        np.full(len(turn.response_ids), 1.0 if episode.success else -1.0, dtype=np.float32)
        for episode in episodes
        for turn in episode.turns
    ]
    return np.concatenate(values)
