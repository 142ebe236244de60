"""The update: the gradient of the written-down loss, whatever the packing; methods that do and do not change it."""

from __future__ import annotations

import copy
import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from isentrope.config.kinds import ClipOptions, GrpoOptions
from isentrope.config.schema import LearnSettings, RunConfig, RunSettings
from isentrope.core.errors import TrainError
from isentrope.core.method import Method
from isentrope.core.types import Episode, Term, TokenBatch, TokenStats
from isentrope.learning.advantages.grpo import grpo
from isentrope.learning.learner import Learner
from isentrope.learning.optimiser import Optimiser, learning_rate
from isentrope.learning.tokens import flatten
from isentrope.methods.entropy_bonus import EntropyBonus, EntropyBonusOptions
from isentrope.models.policy import Policy
from tests.builders.episodes import make_episodes
from tests.models.helpers import small_policy
from tests.reference import naive

SETTINGS = LearnSettings(lr=1e-3, kl=0.05, old_logprobs="sampler")


def config_of(settings: LearnSettings, steps: int = 1) -> RunConfig:
    return RunConfig(run=RunSettings(steps=steps), learn=settings)


def gradient(policy: Policy, settings: LearnSettings, episodes: list[Episode], methods: list[Method] | None = None):
    """The gradient of one update, taken before the optimiser uses it, and the metrics."""
    reference = small_policy(seed=9)
    learner = Learner(policy, reference if settings.kl else None, config_of(settings), methods or [])
    taken: list[torch.Tensor] = []

    def keep(loss: float, rate: float) -> float:
        taken.extend(
            p.grad.clone() if p.grad is not None else torch.zeros_like(p) for p in learner.optimiser.parameters
        )
        return 0.0

    policy.module.zero_grad()
    learner.optimiser.step = keep  # type: ignore[method-assign]
    metrics = learner.learn(0, episodes).metrics
    return torch.cat([g.flatten() for g in taken]), metrics


def written_down(policy: Policy, episodes: list[Episode], s: LearnSettings, bonus: float = 0.0) -> torch.Tensor:
    """Σ over tokens in plain loops, one whole forward pass per episode, autograd of all logits."""
    reference, clip = small_policy(seed=9), ClipOptions(**s.loss.options)
    returns, groups = np.array([e.ret for e in episodes]), np.array([e.group for e in episodes])
    advantage = grpo(returns, groups, GrpoOptions(**s.advantage.options).divide_by_std)
    losses, entropies, episode_of, turn_of = [], [], [], []
    number = -1
    for e, episode in enumerate(episodes):
        prefix: list[int] = []
        for turn in episode.turns:
            number += 1
            start = [*(prefix if turn.continues else []), *turn.context_ids.tolist()]
            prefix = [*start, *turn.response_ids.tolist()]
            ids = torch.tensor([prefix])
            at = torch.arange(ids.shape[1])[None]
            words, other = (
                p.model.hidden(ids, at, torch.zeros_like(ids))[0, len(start) - 1 : -1] @ p.model.head_weight().T
                for p in (policy, reference)
            )
            for j, token in enumerate(turn.response_ids.tolist()):
                now = torch.log_softmax(words[j] / float(turn.temperatures[j]), -1)
                then = torch.log_softmax(other[j] / float(turn.temperatures[j]), -1).detach()
                ratio = torch.exp(now[token] - float(turn.logprobs[j]))
                limited = ratio.clamp(1 - clip.clip_low, 1 + clip.clip_high)
                d = now[token] - then[token]
                loss = -torch.minimum(ratio * advantage[e], limited * advantage[e]) + s.kl * (torch.exp(-d) - 1 + d)
                losses.append(loss)
                entropies.append(-(now.exp() * now).sum())
                episode_of.append(e)
                turn_of.append(number)
    total = naive.mean_over(losses, episode_of, turn_of, s.aggregation)
    total = total - bonus * naive.mean_over(entropies, episode_of, turn_of, "turn")
    grads = torch.autograd.grad(total, list(policy.module.parameters()))
    return torch.cat([g.flatten() for g in grads])


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("aggregation", ["token", "turn", "sequence", "episode"])
def test_gradient_is_that_of_the_equation(full: bool, aggregation: str) -> None:
    episodes, policy = make_episodes(3, full=full), small_policy()
    settings = replace(SETTINGS, aggregation=aggregation)
    ours, _ = gradient(policy, settings, episodes)
    theirs = written_down(policy, episodes, settings)
    assert float(theirs.norm()) > 0.01
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("change", [{"micro_tokens": 64}, {"row_tokens": 200}, {"row_tokens": 40, "micro_tokens": 100}])
def test_accumulation_and_packing_do_not_change_gradient_or_metrics(change: dict[str, int]) -> None:
    episodes, policy = make_episodes(4), small_policy()
    whole, metrics = gradient(policy, replace(SETTINGS, micro_tokens=10**6), episodes)
    parts, others = gradient(policy, replace(SETTINGS, **change), episodes)
    torch.testing.assert_close(whole, parts, rtol=1e-4, atol=1e-6)
    for key, value in metrics.items():
        assert others[key] == pytest.approx(value, rel=1e-4, abs=1e-5), key


def test_order_of_episodes_does_not_change_the_gradient() -> None:
    episodes, policy = make_episodes(6), small_policy()
    shuffled = [episodes[i] for i in np.random.default_rng(0).permutation(len(episodes))]
    torch.testing.assert_close(
        gradient(policy, SETTINGS, episodes)[0], gradient(policy, SETTINGS, shuffled)[0], rtol=1e-4, atol=1e-6
    )


def test_entropy_bonus_adds_the_gradient_of_its_equation() -> None:
    episodes, policy = make_episodes(7), small_policy()
    bonus = EntropyBonus(EntropyBonusOptions(coefficient=0.3))
    ours, metrics = gradient(policy, SETTINGS, episodes, [bonus])
    torch.testing.assert_close(ours, written_down(policy, episodes, SETTINGS, bonus=0.3), rtol=1e-3, atol=1e-4)
    assert metrics["loss/entropy_bonus"] < 0
    assert float((ours - gradient(policy, SETTINGS, episodes)[0]).norm()) > 1e-3


def test_a_method_at_coefficient_zero_equals_the_baseline_bit_for_bit() -> None:
    episodes, policy = make_episodes(8), small_policy()
    zero = EntropyBonus(EntropyBonusOptions(coefficient=0.0))
    plain, metrics = gradient(policy, SETTINGS, episodes)
    with_zero, others = gradient(policy, SETTINGS, episodes, [zero])
    assert torch.equal(plain, with_zero)
    assert metrics == others


def test_no_reference_no_kl_metrics_and_recomputed_old_logprobs_measure_the_mismatch() -> None:
    episodes, policy = make_episodes(9), small_policy()
    _, metrics = gradient(policy, replace(SETTINGS, kl=0.0, old_logprobs="recompute"), episodes)
    assert "loss/kl" not in metrics
    assert metrics["ratio/min"] == pytest.approx(1, abs=1e-4)
    assert metrics["mismatch/logp_max"] > 0.1  # the made-up log-probs are not this policy's


def test_mini_batches_cover_all_groups_once() -> None:
    episodes, policy = make_episodes(10, groups=5), small_policy()
    learner = Learner(policy, None, config_of(replace(SETTINGS, kl=0.0, mini_batches=3)))
    sequences, _ = flatten(episodes)
    parts = learner._mini_batches(0, 0, sequences)
    assert len(parts) == 3
    assert sorted(s.group for part in parts for s in part) == sorted(s.group for s in sequences)
    assert all({s.group for s in a}.isdisjoint({s.group for s in b}) for a in parts for b in parts if a is not b)
    assert learner.learn(0, episodes).metrics["update/count"] == 3


class Poison(Method):
    name = "poison"

    def loss(self, batch: TokenBatch, stats: TokenStats) -> Term | None:
        return Term(stats.logp_N.sum() * float("nan"))


def test_a_non_finite_update_is_skipped_counted_and_in_the_end_refused() -> None:
    episodes, policy = make_episodes(11), small_policy()
    before = copy.deepcopy(policy.module.state_dict())
    learner = Learner(policy, None, config_of(replace(SETTINGS, kl=0.0, max_skips=2), 9), [Poison()])
    assert learner.learn(0, episodes).metrics["update/skipped"] == 1
    assert learner.learn(1, episodes).metrics["update/skipped"] == 2
    assert all(torch.equal(before[name], value) for name, value in policy.module.state_dict().items())
    with pytest.raises(TrainError, match=r"3 updates in a row .* smaller learn\.lr"):
        learner.learn(2, episodes)


def test_learning_rate_rises_falls_and_ends_at_the_floor() -> None:
    rates = [learning_rate(i, 100, 2.0, 0.1, 0.2) for i in range(100)]
    assert rates[0] == pytest.approx(0.2)
    assert rates[9] == rates[10] == pytest.approx(2.0)
    assert rates[99] == pytest.approx(0.4)
    assert all(a >= b for a, b in itertools.pairwise(rates[10:]))
    assert learning_rate(0, 1, 2.0, 0.0, 0.2) == pytest.approx(2.0)


def test_optimiser_clips_the_norm_and_restores_its_state() -> None:
    parameter = torch.nn.Parameter(torch.zeros(4))
    optimiser = Optimiser([parameter], grad_clip=1.0)
    parameter.grad = torch.full((4,), 50.0)
    assert optimiser.step(1.0, 0.1) == pytest.approx(100.0)
    other = Optimiser([torch.nn.Parameter(parameter.detach().clone())])
    other.load_state_dict(optimiser.state_dict())
    assert other.updates == 1
    for opt in (optimiser, other):
        opt.parameters[0].grad = torch.ones(4)
        opt.step(1.0, 0.1)
    assert torch.equal(optimiser.parameters[0], other.parameters[0])


def test_an_update_without_any_response_changes_nothing() -> None:
    policy = small_policy()
    metrics = Learner(policy, None, config_of(SETTINGS)).learn(0, []).metrics
    assert metrics["update/count"] == 0
