"""What the learner hands out of an update: the advantages it learnt from, the ratios of the first pass."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from isentrope.config.schema import Choice, CriticSettings, LearnSettings, RunConfig, RunSettings
from isentrope.core.loss import Loss
from isentrope.core.method import Method
from isentrope.core.token_weights import MODES
from isentrope.core.types import Episode, Floats, Scores, StepTokens, Term, TokenBatch, TokenStats
from isentrope.learning import objective as objective_of
from isentrope.learning.advantages.grpo import grpo
from isentrope.learning.learner import Learner
from isentrope.learning.objective import policy_loss
from tests.builders.episodes import make_episodes
from tests.models.helpers import small_policy

SETTINGS = LearnSettings(lr=1e-2, warmup=0.0, kl=0.0, mini_batches=2, micro_tokens=64)


class Halved(Method):
    """A method that changes advantages."""

    name = "halved"

    def shape(self, step: int, tokens: StepTokens, advantage_N: Floats) -> Floats:
        return advantage_N / 2


def update(
    episodes: list[Episode], settings: LearnSettings = SETTINGS, critic: int = 0
) -> tuple[Scores, dict[str, float]]:
    config = RunConfig(run=RunSettings(steps=3), learn=settings, critic=CriticSettings(warmup=critic))
    learner = Learner(small_policy(), None, config, [Halved()])
    update = learner.learn(1, episodes)
    return update.scores, update.metrics


def test_advantages_are_those_after_the_methods() -> None:
    episodes = make_episodes(3)
    scores, _ = update(episodes)
    by_episode = grpo(np.array([e.ret for e in episodes]), np.array([e.group for e in episodes]), True) / 2
    rows = [(e, t, len(turn.response_ids)) for e, one in enumerate(episodes) for t, turn in enumerate(one.turns)]
    assert scores.responses() == rows
    expected = np.concatenate([np.full(length, by_episode[e]) for e, _, length in rows])
    np.testing.assert_allclose(scores.advantage_N, expected, rtol=1e-5)
    assert np.ptp(expected) > 0.1


def test_ratios_of_one_pass_by_hand() -> None:
    """With a single update per step every ratio is that of the policy before it, token by token."""
    episodes = make_episodes(3, full=False)
    scores, metrics = update(episodes, replace(SETTINGS, mini_batches=1))
    policy, at = small_policy(), 0
    for one in episodes:
        for turn in one.turns:
            ids = torch.tensor([[*turn.context_ids.tolist(), *turn.response_ids.tolist()]])
            states = policy.model.hidden(ids, torch.arange(ids.shape[1])[None], torch.zeros_like(ids))[0]
            words = states[len(turn.context_ids) - 1 : -1] @ policy.model.head_weight().T
            for place, token in enumerate(turn.response_ids.tolist()):
                logp = torch.log_softmax(words[place] / float(turn.temperatures[place]), -1)[token]
                ratio = float(torch.exp(logp.detach() - float(turn.logprobs[place])))
                assert scores.ratio_N[at] == pytest.approx(ratio, rel=1e-3)
                at += 1
    assert scores.ratio_N.max() == pytest.approx(metrics["ratio/max"], rel=1e-5)
    assert scores.ratio_N.min() == pytest.approx(metrics["ratio/min"], rel=1e-5)


def test_later_passes_do_not_change_them() -> None:
    episodes = make_episodes(4)
    once, metrics = update(episodes)
    twice, later = update(episodes, replace(SETTINGS, epochs=2, lr=2e-2, floor=1.0))
    again, _ = update(episodes, replace(SETTINGS, epochs=1, lr=2e-2, floor=1.0))
    np.testing.assert_array_equal(twice.ratio_N, again.ratio_N)
    assert not np.array_equal(once.ratio_N, again.ratio_N)  # the second mini-batch comes after an update
    assert later["ratio/mean"] != metrics["ratio/mean"]


def test_what_was_not_learnt_from_has_no_ratio() -> None:
    episodes = make_episodes(5)
    cut = [replace(one, stop="turn_limit") if number % 3 == 0 else one for number, one in enumerate(episodes)]
    scores, _ = update(cut, replace(SETTINGS, mask_truncated=True))
    lost = np.concatenate([np.full(length, e % 3 == 0) for e, _, length in scores.responses()])
    np.testing.assert_array_equal(np.isnan(scores.ratio_N), lost)
    waiting, _ = update(episodes, replace(SETTINGS, advantage=Choice("gae")), critic=2)  # only the critic learns
    assert np.isnan(waiting.ratio_N).all()


def test_no_episodes() -> None:
    scores, _ = update([])
    assert scores.responses() == []
    assert len(scores.advantage_N) == len(scores.ratio_N) == 0


def test_the_probe_is_asked_before_anything_changes() -> None:
    episodes, policy = make_episodes(3), small_policy()
    learner = Learner(policy, None, RunConfig(run=RunSettings(steps=3), learn=SETTINGS), [Halved()])
    before = [p.clone() for p in policy.module.parameters()]
    credited = learner.credit(1, episodes)
    told = credited.advantage_N
    assert all(torch.equal(a, b) for a, b in zip(before, policy.module.parameters(), strict=True))
    update = learner.update(credited)
    np.testing.assert_array_equal(told, update.scores.advantage_N)
    assert not all(torch.equal(a, b) for a, b in zip(before, policy.module.parameters(), strict=True))


@pytest.mark.parametrize("aggregation", MODES)
@pytest.mark.parametrize("correction", ["keep", "truncate"])
def test_weights_are_those_of_the_loss(aggregation: str, correction: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What each piece of a batch multiplies its policy losses with, gathered in the loss itself."""
    seen = dict[int, float]()

    def listening(batch: TokenBatch, stats: TokenStats, loss: Loss) -> torch.Tensor:
        weight_N = batch.weights[aggregation] * (1 if batch.mismatch_N is None else batch.mismatch_N)
        seen.update(zip(batch.number_N.tolist(), weight_N.tolist(), strict=True))
        return policy_loss(batch, stats, loss)

    monkeypatch.setattr(objective_of, "policy_loss", listening)
    old = "recompute" if correction == "truncate" else "sampler"
    settings = replace(SETTINGS, aggregation=aggregation, mismatch=correction, old_logprobs=old, mask_truncated=True)
    episodes = [replace(one, stop="turn_limit") if n == 4 else one for n, one in enumerate(make_episodes(3))]
    scores, _ = update(episodes, settings)
    assert scores.weight_N is not None
    lost = np.concatenate([np.full(length, e == 4) for e, _, length in scores.responses()])
    assert set(np.flatnonzero(~lost)) == set(seen)
    np.testing.assert_allclose(scores.weight_N, [seen.get(n, 0.0) for n in range(len(lost))], rtol=1e-6)


def test_an_update_that_was_left_out_gives_no_weights() -> None:
    class Broken(Method):
        def loss(self, batch: TokenBatch, stats: TokenStats) -> Term:
            return Term(stats.logp_N.sum() * float("nan"))

    learner = Learner(small_policy(), None, RunConfig(run=RunSettings(steps=3), learn=SETTINGS), [Broken()])
    update = learner.learn(1, make_episodes(3))
    assert update.metrics["update/skipped"] == 2
    assert update.scores.weight_N is not None
    assert not update.scores.weight_N.any()


class EachFirst(Loss):
    """A loss of the first token of each response."""

    name = "each_first"

    def per_token(self, batch: TokenBatch, stats: TokenStats) -> torch.Tensor:
        first_N = batch.turn_N != batch.turn_N.roll(1)
        first_N[:1] = True
        return -batch.advantage_N * stats.logp_N * first_N


def test_what_is_learnt_from_is_counted() -> None:
    episodes = make_episodes(3)
    scores, metrics = update(episodes)
    assert metrics["advantage/learnt"] == pytest.approx(float(scores.advantage_N.std()), rel=1e-5)
    assert metrics["advantage/learnt"] == pytest.approx(metrics["advantage/std"] / 2, rel=1e-5)  # halved
    assert metrics["update/tokens"] == pytest.approx(
        1 - metrics["clip/fraction"], rel=1e-5
    )  # all but those that the clip cuts
    config = RunConfig(run=RunSettings(steps=3), learn=replace(SETTINGS, mini_batches=1))
    learner = Learner(small_policy(), None, config)
    learner.loss = EachFirst()
    few = learner.learn(1, episodes).metrics["update/tokens"]
    turns = [turn for episode in episodes for turn in episode.turns]
    assert few == pytest.approx(len(turns) / sum(len(turn.response_ids) for turn in turns), rel=1e-5)
