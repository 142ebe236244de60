"""Sampler and trainer apart: the weights by hand and against a plain form, what they do to gradients, what is said."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from isentrope.config.schema import Choice, LearnSettings, RunConfig
from isentrope.config.validate import impossible
from isentrope.core.types import Episode, TokenBatch
from isentrope.learning.learner import Learner
from isentrope.learning.losses.mismatch import mismatch_metrics, mismatch_ratio
from isentrope.learning.objective import policy_loss
from isentrope.learning.tokens import flatten
from tests.builders.episodes import make_episodes
from tests.models.helpers import small_policy

LOSSES = ("clip", "sequence", "policy_gradient")
SETTINGS = LearnSettings(lr=1e-3, kl=0.0, old_logprobs="recompute", mismatch="truncate", mismatch_cap=2.0)


def games(seed: int) -> list[Episode]:
    """Log-probs made up around those of the policy, many far above and many far below."""
    return [
        replace(episode, turns=tuple(replace(turn, logprobs=2 * turn.logprobs - 3) for turn in episode.turns))
        for episode in make_episodes(seed)
    ]


def learner_of(settings: LearnSettings) -> Learner:
    return Learner(small_policy(), None, RunConfig(learn=settings))


def batch_of(learner: Learner, seed: int = 0) -> TokenBatch:
    episodes = games(seed)
    sequences, tokens = flatten(episodes)
    targets, _ = learner._targets(episodes, tokens, learner._passes(sequences, tokens))
    (batch,) = learner.replica.pieces(sequences, tokens, targets)
    return batch


def gradient(learner: Learner, seed: int = 0) -> torch.Tensor:
    """Of one update, taken before the optimiser uses it."""
    taken: list[torch.Tensor] = []

    def keep(loss: float, rate: float) -> float:
        taken.extend(p.grad.clone().flatten() for p in learner.optimiser.parameters if p.grad is not None)
        return 0.0

    learner.optimiser.step = keep  # type: ignore[method-assign]
    learner.learn(0, games(seed))
    return torch.cat(taken)


def test_weights_by_hand() -> None:
    trainer, sampler = torch.tensor([-1.0, -2.0, -0.5]), torch.tensor([-1.0, -2.0 - math.log(4), -0.5 + math.log(2)])
    ratio = mismatch_ratio(trainer, sampler)
    torch.testing.assert_close(ratio, torch.tensor([1.0, 4.0, 0.5]))
    torch.testing.assert_close(ratio.clamp(max=2.0), torch.tensor([1.0, 2.0, 0.5]))
    by_response = mismatch_ratio(trainer, sampler, torch.tensor([0, 1, 1]))  # √(4 · ½) for the second response
    torch.testing.assert_close(by_response, torch.tensor([1.0, math.sqrt(2), math.sqrt(2)]))
    said = mismatch_metrics(trainer, sampler, ratio, 2.0)
    assert said["mismatch/ratio_mean"] == pytest.approx(5.5 / 3)
    assert said["mismatch/ratio_max"] == pytest.approx(4.0)
    assert said["mismatch/truncated"] == pytest.approx(1 / 3)
    assert said["mismatch/logp_max"] == pytest.approx(math.log(4))
    # ratio - 1 - log ratio, never negative: 0, 3 - log 4, -½ + log 2
    assert said["mismatch/kl"] == pytest.approx((3 - math.log(4) - 0.5 + math.log(2)) / 3)


def test_nothing_is_said_of_no_tokens() -> None:
    none = torch.zeros(0)
    assert mismatch_metrics(none, none, none, 2.0) == {}


def test_a_hopeless_token_gives_a_finite_ratio() -> None:
    ratio = mismatch_ratio(torch.tensor([0.0, -500.0]), torch.tensor([-500.0, 0.0]))
    assert torch.isfinite(ratio).all()


def test_batch_carries_the_weights_of_a_plain_form() -> None:
    learner = learner_of(SETTINGS)
    batch = batch_of(learner)
    _, tokens = flatten(games(0))
    trainer, sampler = batch.old_logp_N.numpy(), tokens.logp_N[batch.number_N]
    weights = [min(math.exp(a - b), 2.0) for a, b in zip(trainer, sampler, strict=True)]
    assert batch.mismatch_N is not None
    np.testing.assert_allclose(batch.mismatch_N.numpy(), weights, rtol=1e-5)
    assert max(weights) == 2.0
    assert min(weights) < 0.5


def test_sequence_weights_are_one_per_response() -> None:
    batch = batch_of(learner_of(replace(SETTINGS, loss=Choice("sequence"))))
    _, tokens = flatten(games(0))
    apart = batch.old_logp_N.numpy() - tokens.logp_N[batch.number_N]
    assert batch.mismatch_N is not None
    for turn in range(int(batch.turn_N.max()) + 1):
        mine = batch.turn_N.numpy() == turn
        np.testing.assert_allclose(batch.mismatch_N.numpy()[mine], min(np.exp(apart[mine].mean()), 2.0), rtol=1e-5)


@pytest.mark.parametrize("loss", LOSSES)
def test_gradient_of_each_token_is_its_weight_times_the_uncorrected_one(loss: str) -> None:
    settings = replace(SETTINGS, loss=Choice(loss))
    learner = learner_of(settings)
    batch = batch_of(learner)
    stats = learner.policy.stats(batch)
    assert batch.mismatch_N is not None

    def per_token(corrected: bool) -> torch.Tensor:
        chosen = batch if corrected else replace(batch, mismatch_N=None)
        logp_N = stats.logp_N.detach().requires_grad_()
        policy_loss(chosen, replace(stats, logp_N=logp_N), learner.loss).sum().backward()
        assert logp_N.grad is not None
        return logp_N.grad

    plain = per_token(False)
    assert float(plain.abs().sum()) > 0.1
    torch.testing.assert_close(per_token(True), batch.mismatch_N * plain)
    assert not batch.mismatch_N.requires_grad


@pytest.mark.parametrize("loss", LOSSES)
def test_without_a_cap_it_is_plain_importance_weighting(loss: str) -> None:
    """With π_old = π the corrected gradient is that of -(π/μ) · A, the ratio to the sampler itself."""
    settings = replace(SETTINGS, loss=Choice(loss), mismatch_cap=1e30)
    learner = learner_of(settings)
    batch = batch_of(learner)
    _, tokens = flatten(games(0))
    sampler = torch.from_numpy(tokens.logp_N[batch.number_N])
    logp_N = learner.policy.stats(batch).logp_N.detach().requires_grad_()
    stats = replace(learner.policy.stats(batch), logp_N=logp_N)
    policy_loss(batch, stats, learner.loss).sum().backward()
    turn_N = batch.turn_N if loss == "sequence" else None
    expected = -mismatch_ratio(logp_N.detach(), sampler, turn_N) * batch.advantage_N
    torch.testing.assert_close(logp_N.grad, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_sampler_that_agrees_changes_nothing_and_keep_is_the_loss_without_weights(loss: str) -> None:
    kept = gradient(learner_of(replace(SETTINGS, loss=Choice(loss), mismatch="keep")))
    corrected = gradient(learner_of(replace(SETTINGS, loss=Choice(loss))))
    assert float((kept - corrected).norm()) > 1e-3 * float(kept.norm())
    assert batch_of(learner_of(replace(SETTINGS, loss=Choice(loss), mismatch="keep"))).mismatch_N is None
    learner = learner_of(replace(SETTINGS, loss=Choice(loss)))
    ones = lambda trainer_N, sampler_N, turn_N: (torch.ones_like(trainer_N),) * 2  # noqa: E731
    learner.mismatch.weights = ones  # type: ignore[method-assign]
    torch.testing.assert_close(gradient(learner), kept, rtol=0, atol=0)


def test_metrics_of_an_update_with_and_without_recomputed_log_probs() -> None:
    said = learner_of(SETTINGS).learn(0, games(1)).metrics
    assert 0 < said["mismatch/truncated"] < 1
    assert said["mismatch/ratio_max"] > said["mismatch/ratio_mean"] > 0
    assert said["mismatch/kl"] > 0
    free = learner_of(replace(SETTINGS, old_logprobs="sampler", mismatch="keep")).learn(0, games(1)).metrics
    assert free["mismatch/ratio_mean"] == pytest.approx(said["mismatch/ratio_mean"], rel=1e-4)
    assert free["mismatch/ratio_max"] == pytest.approx(said["mismatch/ratio_max"], rel=1e-4)
    assert free["mismatch/kl"] == pytest.approx(said["mismatch/kl"], rel=1e-3)  # what the alarm looks at
    assert free["mismatch/truncated"] == pytest.approx(said["mismatch/truncated"])


@pytest.mark.parametrize("loss", LOSSES)
def test_the_mismatch_of_the_first_update_alone_is_said(loss: str) -> None:
    """Later updates differ from the sampler because they have learnt, which is no mismatch."""
    settings = replace(SETTINGS, loss=Choice(loss), old_logprobs="sampler", mismatch="keep", mini_batches=1)
    once = learner_of(settings).learn(0, games(1)).metrics
    often = learner_of(replace(settings, epochs=3)).learn(0, games(1)).metrics
    assert {key: often[key] for key in often if key.startswith("mismatch/")} == {
        key: once[key] for key in once if key.startswith("mismatch/")
    }
    assert once["mismatch/kl"] > 0


def test_truncate_needs_the_trainers_own_log_probs() -> None:
    (reason,) = impossible(RunConfig(learn=LearnSettings(mismatch="truncate", old_logprobs="sampler")))
    assert "learn.old_logprobs" in reason
    assert "recompute" in reason
    assert impossible(RunConfig(learn=SETTINGS)) == []


@pytest.mark.parametrize("cap", [1e30, 2.0, 0.5])
def test_mean_of_the_corrected_gradient_over_all_tokens_of_a_small_vocabulary(cap: float) -> None:
    """Without a cap it is the policy's own gradient; with one it is short of it by tokens above the cap alone."""
    torch.manual_seed(0)
    logits = torch.randn(6, dtype=torch.float64, requires_grad=True)
    sampler_logp = torch.log_softmax(2 * torch.randn(6, dtype=torch.float64), -1)
    advantage = torch.randn(6, dtype=torch.float64)
    logp = torch.log_softmax(logits, -1)
    ratio = mismatch_ratio(logp.detach(), sampler_logp)
    assert float(ratio.max()) > 2 > 0.5 > float(ratio.min())

    def gradient_of(weight: torch.Tensor) -> torch.Tensor:
        """Σ weight(token) · A ∇log π(token)"""
        return torch.autograd.grad((weight * advantage * logp).sum(), logits, retain_graph=True)[0]

    corrected = gradient_of(sampler_logp.exp() * ratio.clamp(max=cap))
    exact = gradient_of(logp.detach().exp())
    missing = gradient_of(logp.detach().exp() * (1 - cap / ratio).clamp(min=0))
    torch.testing.assert_close(corrected, exact - missing)
    if cap > 1e29:
        torch.testing.assert_close(corrected, exact)
