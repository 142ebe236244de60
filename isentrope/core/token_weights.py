"""Every average over tokens, as one weight per token.

A loss is Σ weight·value, with weights that sum to 1 over the whole mini-batch (but for `constant`). Because the
denominator is in the weights, splitting a mini-batch into micro-batches, packing or padding it cannot change the
gradient.

    token      every token counts the same
    turn       tokens are averaged within a turn, turns within an episode, then episodes (EPO, Eq. 4)
    sequence   tokens are averaged within a response, then all responses count the same
    episode    tokens are averaged within an episode, then episodes: long episodes weigh no more than short ones, and in
               an episode a token weighs the same in long and in short responses
    constant   tokens are summed within an episode and divided by a constant length, then episodes are averaged: a
               token weighs the same whatever the length of its episode or of the batch (Dr. GRPO)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MODES = ("token", "turn", "sequence", "episode", "constant")
IntArray = NDArray[np.int64]


def token_weights(
    mode: str, episode_N: IntArray, turn_N: IntArray, constant_length: float = 1.0
) -> NDArray[np.float64]:
    """Weight of each response token, given the episode and the turn it belongs to."""
    if mode not in MODES:
        raise ValueError(f"aggregation {mode!r}: expected one of {', '.join(MODES)}")
    count = len(episode_N)
    if count == 0:
        return np.zeros(0)
    if mode == "token":
        return np.full(count, 1.0 / count)
    if mode == "constant":
        return np.full(count, 1.0 / (len(np.unique(episode_N)) * constant_length))
    if mode == "episode":
        _, episode_of, tokens_in_episode = np.unique(episode_N, return_inverse=True, return_counts=True)
        return 1.0 / (tokens_in_episode[episode_of] * len(tokens_in_episode))
    _, turn_of, tokens_in_turn = np.unique(turn_N, return_inverse=True, return_counts=True)
    within_turn = 1.0 / tokens_in_turn[turn_of]
    if mode == "sequence":
        return within_turn / len(tokens_in_turn)
    first_of_turn = np.unique(turn_N, return_index=True)[1]
    _, episode_of, turns_in_episode = np.unique(episode_N[first_of_turn], return_inverse=True, return_counts=True)
    per_turn = 1.0 / (turns_in_episode[episode_of] * len(turns_in_episode))
    return within_turn * per_turn[turn_of]
