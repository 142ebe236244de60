"""Defines the base class of advantage estimators: from the rewards of a step's episodes to an advantage per token.

class Mine(Advantage):
    name = "mine"

    def estimate(self, outcomes):
        centred_E = outcomes.return_E - outcomes.return_E.mean()
        return Estimate(outcomes.per_token(centred_E[outcomes.episode_U]))
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from isentrope.core.part import Part
from isentrope.core.types import Episode, Floats, Metrics, StepTokens

Vector = NDArray[np.float64]
Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Outcomes:
    """What the episodes of a step came to: E episodes, U turns in order, N response tokens in order."""

    episodes: Sequence[Episode]
    tokens: StepTokens
    reward_U: Vector  # after the penalty for long responses, if there is one
    episode_U: Ids  # index into `episodes`
    group_U: Ids
    turn_N: Ids  # the turn that each response token belongs to
    last_U: Ids  # the token that each turn's reward belongs to: its last one, or the last one before it; -1: none
    penalty_N: Floats | None = None  # taken off the rewards, token by token (a KL divergence)
    value_N: Floats | None = None  # the critic's estimates, for an estimator that has one

    @cached_property
    def net_reward_U(self) -> Vector:
        """Rewards of the turns, the penalties of their tokens taken off."""
        reward_U = self.reward_U.copy()
        if self.penalty_N is not None:
            np.subtract.at(reward_U, self.turn_N, self.penalty_N.astype(np.float64))
        return reward_U

    @cached_property
    def return_E(self) -> Vector:
        """The sum of each episode's rewards, penalties taken off."""
        return per_episode(self.net_reward_U, self.episode_U, len(self.episodes))

    @cached_property
    def group_E(self) -> Ids:
        return np.array([episode.group for episode in self.episodes], dtype=np.int64)

    def per_token(self, value_U: Vector) -> Vector:
        """A number for each turn, given to all its tokens."""
        return value_U[self.turn_N]


@dataclass(frozen=True)
class Estimate:
    advantage_N: Vector | Floats
    return_N: Vector | Floats | None = None  # what a critic is to learn
    metrics: Metrics = field(default_factory=dict[str, float])


class Advantage(Part, ABC):
    """Subclass it and write `estimate`."""

    what = "advantage estimator"
    compares_groups = False  # it compares the episodes of a group with each other, so a group needs two
    needs_critic = False  # `outcomes.value_N` is there, and `Estimate.return_N` has to be

    @abstractmethod
    def estimate(self, outcomes: Outcomes) -> Estimate: ...


def per_episode(values_U: Vector, episode_U: Ids, count: int) -> Vector:
    totals = np.zeros(count)
    np.add.at(totals, episode_U, values_U)
    return totals
