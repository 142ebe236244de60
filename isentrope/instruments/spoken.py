"""All responses of a step end to end: the table that the instruments compute on.

Shape letters as in types.py, except that U counts the responses that have tokens: N tokens, U responses, E episodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from isentrope.core.types import FAILURES, Episode, Turn
from isentrope.metrics.means import Ids, Vector, joined

OTHER, THINK, ACTION = 0, 1, 2


@dataclass(frozen=True)
class Spoken:
    ids_N: Ids
    logp_N: Vector
    entropy_N: Vector
    temperature_N: Vector
    part_N: Ids  # OTHER, THINK or ACTION
    length_U: Ids
    episode_U: Ids
    place_U: Ids  # which turn of its episode it is, from 1
    valid_U: NDArray[np.bool_]
    kind_E: Sequence[str]
    solved_E: NDArray[np.bool_]
    failed_E: NDArray[np.bool_]  # the policy did not solve it; an episode that broke is neither

    @cached_property
    def response_N(self) -> Ids:
        return np.repeat(np.arange(len(self.length_U)), self.length_U)

    @cached_property
    def episode_N(self) -> Ids:
        return np.repeat(self.episode_U, self.length_U)

    @property
    def episodes(self) -> int:
        return len(self.kind_E)


def spoken(episodes: Sequence[Episode]) -> Spoken:
    turns = [
        (number, place, turn)
        for number, episode in enumerate(episodes)
        for place, turn in enumerate(episode.turns, start=1)
        if len(turn.response_ids)
    ]
    responses = [turn for _, _, turn in turns]
    broken_E = np.array([episode.stop in FAILURES for episode in episodes], dtype=np.bool_)
    solved_E = np.array([episode.success for episode in episodes], dtype=np.bool_)
    return Spoken(
        ids_N=joined(turn.response_ids for turn in responses).astype(np.int64),
        logp_N=joined(turn.logprobs for turn in responses),
        entropy_N=joined(turn.entropies for turn in responses),
        temperature_N=joined(turn.temperatures for turn in responses),
        part_N=_parts(responses),
        length_U=np.array([len(turn.response_ids) for turn in responses], dtype=np.int64),
        episode_U=np.array([number for number, _, _ in turns], dtype=np.int64),
        place_U=np.array([place for _, place, _ in turns], dtype=np.int64),
        valid_U=np.array([turn.valid for turn in responses], dtype=np.bool_),
        kind_E=[episode.kind for episode in episodes],
        solved_E=solved_E,
        failed_E=~solved_E & ~broken_E,
    )


def _parts(responses: Sequence[Turn]) -> Ids:
    parts = np.full(sum(len(turn.response_ids) for turn in responses), OTHER, dtype=np.int64)
    at = 0
    for turn in responses:
        for span, part in ((turn.think_span, THINK), (turn.action_span, ACTION)):
            if span is not None:
                parts[at + span[0] : at + span[1]] = part
        at += len(turn.response_ids)
    return parts
