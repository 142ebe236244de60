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

from isentrope.config.kinds import GigpoOptions
from isentrope.core.advantage import Estimate, Ids, Outcomes, Vector
from isentrope.core.metric import Metric
from isentrope.core.shapes import expect_vectors
from isentrope.core.types import Episode
from isentrope.learning.advantages.grpo import grpo
from isentrope.learning.advantages.reinforce import Compared


class Gigpo(Compared):
    name = "gigpo"
    summary = "episodes compared within their group, and single steps taken from the same state"
    paper = "arXiv:2505.10978"
    options_class = GigpoOptions
    options: GigpoOptions  # pyright: ignore[reportIncompatibleVariableOverride]
    compares_groups = True
    metrics = (
        Metric("gigpo/shared", "Share of the turns whose state another turn of their group was in too.", "share"),
        Metric("gigpo/step_part", "Mean size, without sign, of what GiGPO's comparison of steps adds.", "advantage"),
    )
    divides_steps = True

    def compare(self, returns: Vector, groups: Ids) -> Vector:
        return grpo(returns, groups, self.options.divide_by_std)

    def estimate(self, outcomes: Outcomes) -> Estimate:
        o, advantage_U = self.options, self.per_turn(outcomes)
        if o.step_weight == 0:
            return Estimate(outcomes.per_token(advantage_U))
        if o.anchor == "exact":
            anchor_U = exact_anchors(outcomes.group_U, [turn.anchor for e in outcomes.episodes for turn in e.turns])
        else:
            texts = [text for episode in outcomes.episodes for text in _states(episode)]
            anchor_U = similar_anchors(outcomes.group_U, texts, o.anchor_similarity)
        later_U = discounted_returns(outcomes.net_reward_U, outcomes.episode_U, o.discount)
        step_U = o.step_weight * step_advantages(later_U, anchor_U, o.divide_by_std and self.divides_steps)
        metrics: dict[str, float] = {}
        if len(step_U):
            metrics["gigpo/shared"] = float(np.mean(np.bincount(anchor_U)[anchor_U] > 1))
            metrics["gigpo/step_part"] = float(np.abs(step_U).mean())
        return Estimate(outcomes.per_token(advantage_U + step_U), metrics=metrics)


class GigpoMixed(Gigpo):
    name = "gigpo_mixed"
    summary = "GiGPO whose step part is never divided"
    paper = "none; after arXiv:2505.10978"
    divides_steps = False


def _states(episode: Episode) -> list[str]:
    """What the task showed last before each turn. A response without an action is answered by us, not by the task."""
    states: list[str] = []
    for place, turn in enumerate(episode.turns):
        stepped = place == 0 or episode.turns[place - 1].action is not None
        states.append(turn.observation if stepped else states[-1])
    return states


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
