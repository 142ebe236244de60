"""Turns the rewards of a step's episodes into one advantage per response token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from isentrope.config.algorithms import GIGPO_FORMS
from isentrope.config.schema import LearnSettings
from isentrope.core.types import Episode, Floats, StepTokens
from isentrope.learning.advantages.gae import gae, whiten
from isentrope.learning.advantages.gigpo import discounted_returns, exact_anchors, similar_anchors, step_advantages
from isentrope.learning.advantages.grpo import grpo
from isentrope.learning.advantages.overlong import overlong_penalty
from isentrope.learning.advantages.reinforce import reinforce
from isentrope.learning.advantages.rloo import rloo
from isentrope.learning.losses.mismatch import mismatch_metrics, mismatch_ratio
from isentrope.learning.records import Metrics

# Chooses the old log-probs: the sampler's, or the trainer's own from one more pass.
#
# `auto` pays for the pass only where it is needed. It begins with it and measures how far the two are apart
# (mismatch/kl). Once that is within learn.mismatch_limit, the sampler's log-probs are taken and the pass is left out;
# the first update of every step still measures, because it computes its log-probs before anything has changed. Where
# they drift apart again, the next step makes the pass again.


class Mismatch:
    def __init__(self, settings: LearnSettings) -> None:
        self.settings = settings
        self.trusted = settings.old_logprobs == "sampler"

    def weigh(self, trainer_N: Floats, tokens: StepTokens) -> tuple[Floats | None, Metrics]:
        """With the trainer's log-probs at hand: weights that correct for the sampler's, and what they differ by."""
        s = self.settings
        trainer, sampler = torch.from_numpy(trainer_N), torch.from_numpy(tokens.logp_N)
        turn_N = torch.from_numpy(tokens.turn_N) if s.loss == "sequence" else None
        ratio_N = mismatch_ratio(trainer, sampler, turn_N)
        weight_N = ratio_N.clamp(max=s.mismatch_cap).numpy() if s.mismatch == "truncate" else None
        return weight_N, self._judged(mismatch_metrics(trainer, sampler, ratio_N, s.mismatch_cap), 1.0)

    def look_back(self, first_logp_N: Floats, tokens: StepTokens) -> Metrics:
        """After the first update: it computed its log-probs while nothing had changed yet, so what the sampler's
        differ from them by is the mismatch. Those of tokens it did not learn from are NaN."""
        known_N = np.flatnonzero(~np.isnan(first_logp_N))
        trainer, sampler = torch.from_numpy(first_logp_N[known_N]), torch.from_numpy(tokens.logp_N[known_N])
        turn_N = np.unique(tokens.turn_N[known_N], return_inverse=True)[1]
        by_turn = torch.from_numpy(turn_N) if self.settings.loss == "sequence" else None
        ratio_N = mismatch_ratio(trainer, sampler, by_turn)
        return self._judged(mismatch_metrics(trainer, sampler, ratio_N, self.settings.mismatch_cap), 0.0)

    def _judged(self, metrics: Metrics, recomputed: float) -> Metrics:
        if self.settings.old_logprobs != "auto":
            return metrics
        if "mismatch/kl" in metrics:
            self.trusted = metrics["mismatch/kl"] <= self.settings.mismatch_limit  # a NaN is not
        return metrics | {"mismatch/recomputed": recomputed}

    def state_dict(self) -> dict[str, bool]:
        return {"trusted": self.trusted}

    def load_state_dict(self, state: dict[str, bool]) -> None:
        if state and self.settings.old_logprobs == "auto":
            self.trusted = bool(state["trusted"])


Vector = NDArray[np.float64]
Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Credit:
    advantage_N: Floats
    return_N: Floats | None  # what the critic is to learn
    metrics: dict[str, float]


@dataclass(frozen=True)
class _Turns:
    """All turns of the step, U of them, in order."""

    reward_U: Vector
    episode_U: Ids
    group_U: Ids
    turn_of_N: Ids  # the turn that each response token belongs to
    last_N: Ids  # the token that each turn's reward belongs to: its last one, or the last one before it; -1: none


def assign_credit(
    episodes: Sequence[Episode],
    tokens: StepTokens,
    learn: LearnSettings,
    max_response: int,
    penalty_N: Floats | None = None,
    value_N: Floats | None = None,
) -> Credit:
    """`penalty_N` is taken off the rewards, token by token (a KL divergence); `value_N` is the critic's estimate."""
    turns = _turns(episodes, tokens)
    metrics: dict[str, float] = {}
    reward_U = turns.reward_U.copy()
    if learn.overlong > 0:
        lengths = np.array([len(turn.response_ids) for e in episodes for turn in e.turns], dtype=np.int64)
        buffer = max(1, round(learn.overlong * max_response))
        penalty_U = learn.overlong_penalty * overlong_penalty(lengths, max_response, buffer)
        reward_U += penalty_U
        if len(penalty_U):
            metrics |= {"overlong/mean": -float(penalty_U.mean()), "overlong/share": float(np.mean(penalty_U < 0))}
    if learn.advantage == "gae":
        assert value_N is not None, "gae needs a critic"
        advantage_N, return_N = _by_critic(turns, reward_U, tokens, learn, penalty_N, value_N.astype(np.float64))
    else:
        if penalty_N is not None:
            np.subtract.at(reward_U, turns.turn_of_N, penalty_N.astype(np.float64))
        advantage_N = _by_comparison(episodes, turns, reward_U, learn, metrics)[turns.turn_of_N]
        return_N = None
    group_E = np.array([episode.group for episode in episodes], dtype=np.int64)
    returns_E = _per_episode(turns.reward_U, turns.episode_U, len(episodes))  # as the task gave them
    return Credit(
        advantage_N.astype(np.float32),
        None if return_N is None else return_N.astype(np.float32),
        _metrics(advantage_N, returns_E, group_E) | metrics,
    )


def _turns(episodes: Sequence[Episode], tokens: StepTokens) -> _Turns:
    counts = np.array([len(episode.turns) for episode in episodes], dtype=np.int64)
    start_E = np.cumsum(counts) - counts
    turn_of_N = (start_E[tokens.episode_U] + tokens.place_U)[tokens.turn_N]
    total = int(counts.sum())
    last = np.full(total, -1, dtype=np.int64)
    last[turn_of_N] = np.arange(len(turn_of_N))  # of equal turns the last token stays
    episode_U = np.repeat(np.arange(len(episodes)), counts)
    for u in range(1, total):
        if last[u] < 0 and episode_U[u] == episode_U[u - 1]:
            last[u] = last[u - 1]
    return _Turns(
        reward_U=np.array([turn.reward for episode in episodes for turn in episode.turns], dtype=np.float64),
        episode_U=episode_U,
        group_U=np.repeat(np.array([episode.group for episode in episodes], dtype=np.int64), counts),
        turn_of_N=turn_of_N,
        last_N=last,
    )


def _per_episode(values_U: Vector, episode_U: Ids, count: int) -> Vector:
    totals = np.zeros(count)
    np.add.at(totals, episode_U, values_U)
    return totals


def _by_comparison(
    episodes: Sequence[Episode], turns: _Turns, reward_U: Vector, learn: LearnSettings, metrics: dict[str, float]
) -> Vector:
    """One advantage per turn, from returns compared with each other; GiGPO's own numbers are added to `metrics`."""
    returns_E = _per_episode(reward_U, turns.episode_U, len(episodes))
    group_E = np.array([episode.group for episode in episodes], dtype=np.int64)
    if learn.stats == "steps":  # every turn is a sample of its own with the return of its episode
        advantage_U = _compare(returns_E[turns.episode_U], turns.group_U, learn)
    else:
        advantage_U = _compare(returns_E, group_E, learn)[turns.episode_U]
    if learn.advantage not in GIGPO_FORMS or learn.step_weight == 0:
        return advantage_U
    if learn.anchor == "exact":
        anchor_U = exact_anchors(turns.group_U, [turn.anchor for e in episodes for turn in e.turns])
    else:
        texts = [text for episode in episodes for text in _states(episode)]
        anchor_U = similar_anchors(turns.group_U, texts, learn.anchor_similarity)
    later_U = discounted_returns(reward_U, turns.episode_U, learn.discount)
    divided = learn.divide_by_std and learn.advantage == "gigpo"  # gigpo_mixed never divides its step part
    step_U = learn.step_weight * step_advantages(later_U, anchor_U, divided)
    if len(step_U):
        metrics["gigpo/shared"] = float(np.mean(np.bincount(anchor_U)[anchor_U] > 1))
        metrics["gigpo/step_part"] = float(np.abs(step_U).mean())
    return advantage_U + step_U


def _states(episode: Episode) -> list[str]:
    """What the task showed last before each turn. A response without an action is answered by us, not by the task."""
    states: list[str] = []
    for place, turn in enumerate(episode.turns):
        stepped = place == 0 or episode.turns[place - 1].action is not None
        states.append(turn.observation if stepped else states[-1])
    return states


def _compare(returns: Vector, groups: Ids, learn: LearnSettings) -> Vector:
    if learn.advantage == "reinforce":
        return reinforce(returns)
    if learn.advantage == "rloo":
        return rloo(returns, groups)
    return grpo(returns, groups, learn.divide_by_std)


def _by_critic(
    turns: _Turns, reward_U: Vector, tokens: StepTokens, learn: LearnSettings, penalty_N: Floats | None, value_N: Vector
) -> tuple[Vector, Vector]:
    reward_N = np.zeros(len(value_N))
    if learn.credit == "turn":
        chain_N, final_U = tokens.episode_N, reward_U
    else:  # every turn is a chain of its own that ends with the return of the whole episode
        returns_E = _per_episode(reward_U, turns.episode_U, int(turns.episode_U.max(initial=-1)) + 1)
        chain_N, final_U = tokens.turn_N, returns_E[turns.episode_U]
    placed = turns.last_N >= 0
    if learn.credit == "token":  # a turn without tokens has no chain
        placed &= np.isin(np.arange(len(placed)), turns.turn_of_N)
    np.add.at(reward_N, turns.last_N[placed], final_U[placed])
    if penalty_N is not None:
        reward_N -= penalty_N
    advantage_N, return_N = gae(reward_N, value_N, chain_N, learn.discount, learn.gae_lambda)
    return (whiten(advantage_N) if learn.divide_by_std else advantage_N), return_N


def _metrics(advantage_N: Vector, returns_E: Vector, group_E: Ids) -> dict[str, float]:
    if not len(advantage_N):
        return {}
    equal = [bool(np.all(returns_E[group_E == g] == returns_E[group_E == g][0])) for g in np.unique(group_E)]
    return {
        "advantage/mean": float(advantage_N.mean()),
        "advantage/std": float(advantage_N.std()),
        "advantage/zero_groups": float(np.mean(equal)),
    }
