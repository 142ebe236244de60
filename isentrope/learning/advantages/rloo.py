"""Leave-one-out advantages (RLOO, arXiv:2402.14740).

    A_i = R_i - mean of the other G - 1 returns of the group

The baseline does not contain the episode itself, so the gradient is unbiased. A group of one has nothing to be
compared with and gives 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from isentrope.core.advantage import Ids, Vector
from isentrope.core.shapes import expect_vectors
from isentrope.learning.advantages.reinforce import Compared


class Rloo(Compared):
    name = "rloo"
    summary = "each return is compared with the mean of the rest of its group"
    paper = "arXiv:2402.14740"
    compares_groups = True

    def compare(self, returns: Vector, groups: Ids) -> Vector:
        return rloo(returns, groups)


def rloo(returns_E: NDArray[np.float64], group_E: NDArray[np.int64]) -> NDArray[np.float64]:
    """One advantage per episode, from the returns and the group each episode belongs to."""
    expect_vectors({"group_E": group_E}, returns_E=returns_E)
    advantages = np.zeros(len(returns_E))
    for group in np.unique(group_E):
        members = group_E == group
        returns = returns_E[members]
        count = len(returns)
        if count < 2 or np.all(returns == returns[0]):
            continue
        # R_i - (ΣR - R_i) / (G - 1) = (R_i - mean) · G / (G - 1)
        advantages[members] = (returns - returns.mean()) * count / (count - 1)
    return advantages
