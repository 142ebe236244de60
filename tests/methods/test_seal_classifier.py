"""SEAL's classifier: its own optimiser, its own random numbers, and its state."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from isentrope.config.schema import RunConfig, RunSettings
from isentrope.core.method import Method
from isentrope.core.types import Term, TokenBatch, TokenStats
from isentrope.learning.learner import Learner
from isentrope.methods.seal import Seal, make_classifier
from isentrope.models.policy import Policy
from isentrope.runs.checkpoints import join_tensors, split_tensors
from tests.methods.helpers import SETTINGS, one_update, sampled_by, sharp_policy, usual, write_down
from tests.methods.runs import check_resumed, steps_of
from tests.methods.test_seal import classifier_weights, seal, written_loss


def learner_of(policy: Policy, methods: list[Method], lr: float = 1e-3, steps: int = 9) -> Learner:
    learn = replace(SETTINGS, lr=lr, warmup=0.0, floor=1.0, max_skips=9)
    return Learner(policy, None, RunConfig(run=RunSettings(steps=steps), learn=learn), methods)


def parameters_of(method: Seal) -> list[Tensor]:
    assert method.classifier is not None
    return [parameter.detach().clone() for parameter in method.classifier.parameters()]


def test_the_classifier_takes_the_step_of_its_own_adamw() -> None:
    policy, method = sharp_policy(), seal(lr=0.01)
    episodes = sampled_by(policy, usual(5))
    weights = classifier_weights(32)
    loss = 0.5 * written_loss(write_down(policy, episodes), "token", "all", weights)
    for weight, gradient in zip(weights, torch.autograd.grad(loss, weights), strict=True):
        weight.grad = gradient
    torch.optim.AdamW(weights, lr=0.01, weight_decay=0.0).step()
    learner_of(policy, [method]).learn(1, episodes)
    for ours, theirs in zip(parameters_of(method), weights, strict=True):
        torch.testing.assert_close(ours, theirs.detach().float(), rtol=1e-4, atol=1e-5)


def test_each_optimiser_moves_its_own_weights_only() -> None:
    policy, method = sharp_policy(), seal(lr=0.01)
    episodes, before = sampled_by(policy, usual(6)), copy.deepcopy(policy.module.state_dict())
    learner = learner_of(policy, [method], lr=0.0)
    learner.learn(1, episodes)
    assert all(torch.equal(before[name], value) for name, value in policy.module.state_dict().items())
    fresh = [weight.detach() for weight in classifier_weights(32, kind=torch.float32)]
    assert all(not torch.equal(a, b) for a, b in zip(parameters_of(method), fresh, strict=True))
    assert method.classifier is not None
    known = {id(parameter) for parameter in learner.optimiser.parameters}
    assert known.isdisjoint(id(parameter) for parameter in method.classifier.parameters())
    assert all(parameter.grad is None for parameter in method.classifier.parameters())


def test_the_policys_gradient_limit_does_not_see_the_classifier() -> None:
    policy = sharp_policy()
    episodes = sampled_by(policy, usual(6))
    expected = one_update(policy, episodes, [seal(alpha=50.0)]).gradient.norm()
    metrics = learner_of(policy, [seal(alpha=50.0)]).learn(1, episodes).metrics
    assert metrics["grad_norm"] == pytest.approx(float(expected), rel=1e-4)


class Poison(Method):
    """Makes the first update non-finite."""

    name = "poison"

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def loss(self, batch: TokenBatch, stats: TokenStats) -> Term | None:
        self.calls += 1
        return Term(stats.logp_N.sum() * (float("nan") if self.calls == 1 else 0.0))


def test_a_skipped_update_does_not_move_the_classifier() -> None:
    policy, method = sharp_policy(), seal(lr=0.01)
    episodes = sampled_by(policy, usual(7))
    learner = learner_of(policy, [method, Poison()])
    assert learner.learn(1, episodes).metrics["update/skipped"] == 1
    fresh = [weight.detach() for weight in classifier_weights(32, kind=torch.float32)]
    assert all(torch.equal(a, b) for a, b in zip(parameters_of(method), fresh, strict=True))
    assert method.optimiser is not None
    assert not method.optimiser.state_dict()["state"]  # not even its moments
    assert learner.learn(2, episodes).metrics["update/skipped"] == 1
    clean = seal(lr=0.01)
    learner_of(sharp_policy(), [clean]).learn(1, episodes)
    for a, b in zip(parameters_of(method), parameters_of(clean), strict=True):
        assert torch.equal(a, b)  # and the gradient of the skipped update is gone


def test_it_learns_to_tell_outcomes_apart() -> None:
    policy, method = sharp_policy(), seal(lr=0.01)
    episodes = sampled_by(policy, usual(8, equal=True))
    learner = learner_of(policy, [method], lr=0.0, steps=60)
    seen = [learner.learn(step, episodes).metrics for step in range(1, 61)]
    assert seen[-1]["seal/bce"] < 0.5 * seen[0]["seal/bce"]
    assert seen[-1]["seal/accuracy"] > 0.9


def test_the_same_seed_gives_the_same_classifier() -> None:
    policy = sharp_policy()
    episodes = sampled_by(policy, usual(9, equal=True))
    torch.manual_seed(0)
    first = one_update(policy, episodes, [seal(seed=3)]).gradient
    torch.manual_seed(1)  # the classifier has random numbers of its own
    assert torch.equal(first, one_update(policy, episodes, [seal(seed=3)]).gradient)
    assert not torch.equal(first, one_update(policy, episodes, [seal(seed=4)]).gradient)
    weights = classifier_weights(32)
    assert max(float(w.detach().abs().max()) for w in weights[:2]) <= 32**-0.5
    assert min(float(w.detach().std()) for w in weights[:3]) > 0.05


# State


def test_making_it_leaves_torchs_random_numbers_as_they_are() -> None:
    """TRL samples with them: a classifier that is made anew after a restart must not change what is drawn."""
    before = torch.random.get_rng_state()
    make_classifier(8, 4, 0)
    assert torch.equal(before, torch.random.get_rng_state())


def test_state_survives_a_checkpoint_with_the_moments() -> None:
    policy, episodes = sharp_policy(), usual(10)
    whole = seal(lr=0.01)
    learner = learner_of(policy, [whole], lr=0.0)
    for step in (1, 2):
        learner.learn(step, episodes)
    tensors, tree = split_tensors(whole.state_dict())
    again = seal(lr=0.01, seed=99)  # its own first weights are others, and are not used
    again.load_state_dict(join_tensors(tree, tensors))
    untouched, _ = split_tensors(again.state_dict())
    assert untouched.keys() == tensors.keys()
    assert all(torch.equal(untouched[name], value) for name, value in tensors.items())
    assert sum(name.endswith(("exp_avg", "exp_avg_sq")) for name in tensors) == 8
    for method in (whole, again):
        learner_of(policy, [method], lr=0.0).learn(3, episodes)
    assert all(torch.equal(a, b) for a, b in zip(parameters_of(whole), parameters_of(again), strict=True))
    assert whole.optimiser is not None
    assert again.optimiser is not None
    mine, other = whole.optimiser.state_dict(), again.optimiser.state_dict()
    assert mine["param_groups"][0]["lr"] == other["param_groups"][0]["lr"] == 0.01
    for number, moments in mine["state"].items():
        assert all(torch.equal(value, other["state"][number][name]) for name, value in moments.items())


def test_before_the_first_update_there_is_no_state() -> None:
    fresh = seal()
    assert fresh.state_dict() == {}
    fresh.load_state_dict({})
    policy = sharp_policy()
    first = one_update(policy, usual(1), [fresh]).gradient
    assert torch.equal(first, one_update(policy, usual(1), [seal()]).gradient)


def test_a_resumed_run_has_the_same_classifier(model: Path, tmp_path: Path) -> None:
    whole = check_resumed(model, tmp_path, "methods=['seal']", "method.seal={alpha=1.0, width=8, lr=0.05}")
    steps = steps_of(whole)
    assert all(0 <= step["seal/accuracy"] <= 1 for step in steps)
    assert all(step["loss/seal"] == pytest.approx(step["seal/bce"]) for step in steps)
