"""REINFORCE with the batch mean as baseline (Williams 1992): A_i = R_i - mean over all episodes of the batch."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from isentrope.config.kinds import ComparedOptions
from isentrope.core.advantage import Advantage, Estimate, Ids, Outcomes, Vector
from isentrope.core.shapes import expect_vectors


class Compared(Advantage):
    """Compares returns with each other: the same advantage for all tokens of an episode."""

    options_class = ComparedOptions
    options: ComparedOptions

    @abstractmethod
    def compare(self, returns: Vector, groups: Ids) -> Vector:
        """One advantage for each return, from its group's."""

    def estimate(self, outcomes: Outcomes) -> Estimate:
        return Estimate(outcomes.per_token(self.per_turn(outcomes)))

    def per_turn(self, outcomes: Outcomes) -> Vector:
        if self.options.stats == "steps":  # every turn is a sample of its own with the return of its episode
            return self.compare(outcomes.return_E[outcomes.episode_U], outcomes.group_U)
        return self.compare(outcomes.return_E, outcomes.group_E)[outcomes.episode_U]


class Reinforce(Compared):
    name = "reinforce"
    summary = "each return is compared with the batch mean"
    paper = "Williams 1992"

    def compare(self, returns: Vector, groups: Ids) -> Vector:
        return reinforce(returns)


def reinforce(returns_E: NDArray[np.float64]) -> NDArray[np.float64]:
    """One advantage per episode."""
    expect_vectors(returns_E=returns_E)
    if len(returns_E) == 0 or np.all(returns_E == returns_E[0]):
        return np.zeros(len(returns_E))  # rounding in the mean must not leave a trace
    return returns_E - returns_E.mean()
