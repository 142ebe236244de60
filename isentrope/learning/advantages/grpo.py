"""Group-relative advantages (GRPO, arXiv:2402.03300).

    A_i = (R_i - mean_g) / (std_g + 1e-6)        std unbiased, over the episodes of group g

A group whose returns are all equal gives exactly 0, and so does a group of one. Without `divide_by_std` the centred
return is the advantage, as in Dr. GRPO.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from isentrope.config.kinds import GrpoOptions
from isentrope.core.advantage import Ids, Vector
from isentrope.core.shapes import expect_vectors
from isentrope.learning.advantages.reinforce import Compared

EPSILON = 1e-6


class Grpo(Compared):
    name = "grpo"
    summary = "returns are standardised within their group"
    paper = "arXiv:2402.03300"
    options_class = GrpoOptions
    options: GrpoOptions  # pyright: ignore[reportIncompatibleVariableOverride]
    compares_groups = True

    def compare(self, returns: Vector, groups: Ids) -> Vector:
        return grpo(returns, groups, self.options.divide_by_std)


def grpo(returns_E: NDArray[np.float64], group_E: NDArray[np.int64], divide_by_std: bool = True) -> NDArray[np.float64]:
    """One advantage per episode, from the returns and the group each episode belongs to."""
    expect_vectors({"group_E": group_E}, returns_E=returns_E)
    advantages = np.zeros_like(returns_E, dtype=np.float64)
    for group in np.unique(group_E):
        members = group_E == group
        returns = returns_E[members]
        if len(returns) < 2 or np.all(returns == returns[0]):
            continue  # nothing to compare: rounding in the mean must not be blown up by 1 / 1e-6
        centred = returns - returns.mean()
        advantages[members] = centred / (returns.std(ddof=1) + EPSILON) if divide_by_std else centred
    return advantages
