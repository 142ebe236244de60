"""Generalised advantage estimation (arXiv:1506.02438), token by token.

    δ_n = r_n + γ V_{n+1} - V_n        A_n = δ_n + γλ A_{n+1}        R_n = A_n + V_n

Tokens form chains: all response tokens of an episode (credit flows back over the turns), or those of one turn. A chain
ends with value 0: what an episode that was cut off could still have earned is not estimated.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from isentrope.core.shapes import expect_vectors

Values = NDArray[np.float64]
WHITEN_EPSILON = 1e-8


def gae(
    rewards_N: Values, values_N: Values, chain_N: NDArray[np.int64], discount: float, lam: float
) -> tuple[Values, Values]:
    """(advantages, returns). Tokens of a chain stand next to each other, in order."""
    expect_vectors({"chain_N": chain_N}, rewards_N=rewards_N, values_N=values_N)
    advantages = np.zeros(len(rewards_N))
    next_value = next_advantage = 0.0
    for n in range(len(rewards_N) - 1, -1, -1):
        if n + 1 < len(rewards_N) and chain_N[n + 1] != chain_N[n]:
            next_value = next_advantage = 0.0
        delta = rewards_N[n] + discount * next_value - values_N[n]
        next_advantage = delta + discount * lam * next_advantage
        next_value = values_N[n]
        advantages[n] = next_advantage
    return advantages, advantages + values_N


def whiten(advantage_N: Values) -> Values:
    """Mean 0 and standard deviation 1 over the batch; zeros where there is nothing to compare."""
    expect_vectors(advantage_N=advantage_N)
    if len(advantage_N) < 2 or np.all(advantage_N == advantage_N[0]):
        return np.zeros(len(advantage_N))
    return (advantage_N - advantage_N.mean()) / (advantage_N.std(ddof=1) + WHITEN_EPSILON)
