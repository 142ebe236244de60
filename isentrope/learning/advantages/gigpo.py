"""Group-in-group advantages (GiGPO, arXiv:2505.10978): an episode part as in GRPO, and a part for the single step.

    A = A_episode + ω · A_step

Steps that were taken from the same state, by any episode of one task group, form a step group. Each step has the
discounted return G_t = Σ_k γ^(k-t) r_k from there on, and A_step compares it within the step group as GRPO compares
episodes: A_step = (G_t - mean) / (std + 1e-6), std unbiased. A step alone in its group gets 0.

Both parts have one normalisation: both are divided by their group's deviation, as in the published scripts, or neither
is. A step part that is not divided beside an episode part that is, `gigpo_mixed`, is a form nobody published: there the
step part grows with the reward and the episode part does not.

"The same state" means: equal anchors (hashes of the raw observation), or observations that are similar enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

import numpy as np
from numpy.typing import NDArray

from isentrope.core.shapes import expect_vectors
from isentrope.learning.advantages.grpo import grpo

Ids = NDArray[np.int64]


def discounted_returns(rewards_U: NDArray[np.float64], episode_U: Ids, discount: float) -> NDArray[np.float64]:
    """Return from each turn on; the turns of an episode follow each other."""
    expect_vectors({"episode_U": episode_U}, rewards_U=rewards_U)
    returns = np.zeros(len(rewards_U))
    later = 0.0
    for u in range(len(rewards_U) - 1, -1, -1):
        if u + 1 < len(rewards_U) and episode_U[u + 1] != episode_U[u]:
            later = 0.0
        later = rewards_U[u] + discount * later
        returns[u] = later
    return returns


def exact_anchors(group_U: Ids, anchors: Sequence[str]) -> Ids:
    """A number for every turn: equal for equal anchors of the same task group, else different."""
    expect_vectors({"group_U": group_U})
    known: dict[tuple[int, str], int] = {}
    keys = zip(group_U.tolist(), anchors, strict=True)
    return np.array([known.setdefault(key, len(known)) for key in keys], np.int64)


def similar_anchors(group_U: Ids, texts: Sequence[str], threshold: float) -> Ids:
    """As `exact_anchors`, for observations: a text joins the first cluster of its task group whose first text is
    similar to at least `threshold` (matching words over all words, 0 to 1)."""
    expect_vectors({"group_U": group_U})
    clusters: dict[int, list[tuple[str, int]]] = {}
    exact: dict[tuple[int, str], int] = {}
    numbers = np.zeros(len(texts), np.int64)
    count = 0
    for u, (group, text) in enumerate(zip(group_U.tolist(), texts, strict=True)):
        if (group, text) not in exact:
            number = _similar_cluster(clusters.setdefault(group, []), text, threshold)
            if number is None:
                number, count = count, count + 1
                clusters[group].append((text, number))
            exact[(group, text)] = number  # the same text always falls into the same cluster
        numbers[u] = exact[(group, text)]
    return numbers


def _similar_cluster(clusters: Sequence[tuple[str, int]], text: str, threshold: float) -> int | None:
    matcher = SequenceMatcher(None, [], text.split(" "), autojunk=False)  # what it knows of the second is kept
    for first, number in clusters:
        matcher.set_seq1(first.split(" "))
        # the quick ratios are upper bounds: most pairs are told apart without the slow comparison
        quick = matcher.real_quick_ratio() >= threshold and matcher.quick_ratio() >= threshold
        if quick and matcher.ratio() >= threshold:
            return number
    return None


def step_advantages(returns_U: NDArray[np.float64], anchor_U: Ids, divide_by_std: bool = True) -> NDArray[np.float64]:
    """The step part: group-relative, the groups being those of equal anchor number."""
    expect_vectors({"anchor_U": anchor_U}, returns_U=returns_U)
    return grpo(returns_U, anchor_U, divide_by_std)
