"""Generalised advantage estimation (arXiv:1506.02438), token by token.

    δ_n = r_n + γ V_{n+1} - V_n        A_n = δ_n + γλ A_{n+1}        R_n = A_n + V_n

Tokens form chains: all response tokens of an episode (credit flows back over the turns), or those of one turn. A chain
ends with value 0: what an episode that was cut off could still have earned is not estimated.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from isentrope.config.kinds import GaeOptions
from isentrope.core.advantage import Advantage, Estimate, Outcomes, per_episode
from isentrope.core.shapes import expect_vectors

Values = NDArray[np.float64]
WHITEN_EPSILON = 1e-8


class Gae(Advantage):
    name = "gae"
    summary = "a critic estimates values; advantages token by token"
    paper = "arXiv:1506.02438"
    options_class = GaeOptions
    options: GaeOptions
    needs_critic = True

    def estimate(self, outcomes: Outcomes) -> Estimate:
        o, tokens, reward_U = self.options, outcomes.tokens, outcomes.reward_U
        assert outcomes.value_N is not None, "gae needs a critic"
        value_N = outcomes.value_N.astype(np.float64)
        reward_N = np.zeros(len(value_N))
        if o.credit == "turn":
            chain_N, final_U = tokens.episode_N, reward_U
        else:  # every turn is a chain of its own that ends with the return of the whole episode
            returns_E = per_episode(reward_U, outcomes.episode_U, int(outcomes.episode_U.max(initial=-1)) + 1)
            chain_N, final_U = tokens.turn_N, returns_E[outcomes.episode_U]
        placed = outcomes.last_U >= 0
        if o.credit == "token":  # a turn without tokens has no chain
            placed &= np.isin(np.arange(len(placed)), outcomes.turn_N)
        np.add.at(reward_N, outcomes.last_U[placed], final_U[placed])
        if outcomes.penalty_N is not None:
            reward_N -= outcomes.penalty_N
        advantage_N, return_N = gae(reward_N, value_N, chain_N, o.discount, o.gae_lambda)
        return Estimate(whiten(advantage_N) if o.divide_by_std else advantage_N, return_N)


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
