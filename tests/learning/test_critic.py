"""The critic: what it learns, what reaches the policy, what is saved."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from isentrope.config.schema import Choice, CriticSettings, LearnSettings, RunConfig, RunSettings
from isentrope.core.types import Targets
from isentrope.learning.critic import Critic, explained_variance
from isentrope.learning.learner import Learner
from isentrope.learning.optimiser import Optimiser
from isentrope.learning.packing import micro_batches
from isentrope.learning.tokens import flatten
from isentrope.models.load import load_folder
from isentrope.models.policy import Policy, before
from tests.builders.episodes import make_episodes
from tests.models.helpers import small_policy

LEARN = LearnSettings(advantage=Choice("gae", {"divide_by_std": False}), kl=0.0, lr=1e-3, warmup=0.0, floor=1.0)


def learner(policy: Policy, critic: CriticSettings, **changes: object) -> Learner:
    return Learner(policy, None, RunConfig(RunSettings(steps=60), learn=replace(LEARN, **changes), critic=critic))


def weights(policy: Policy) -> torch.Tensor:
    return torch.cat([p.detach().flatten().clone() for p in policy.module.parameters()])


def test_explained_variance_by_hand() -> None:
    # Returns 0, 2: variance 1. Values 0, 1 leave 0, 1: variance 1/4, so 3/4 is explained. The mean explains nothing.
    target = torch.tensor([0.0, 2.0])
    assert explained_variance(torch.tensor([0.0, 1.0]), target) == pytest.approx(0.75)
    assert explained_variance(torch.tensor([1.0, 1.0]), target) == pytest.approx(0.0)
    assert explained_variance(target, target) == 1.0
    assert explained_variance(torch.zeros(2), torch.ones(2)) == 0.0  # nothing to explain


@pytest.mark.parametrize("kind", ["separate", "head"])
def test_it_learns_the_returns_and_the_policy_waits(kind: str) -> None:
    policy, episodes = small_policy(), make_episodes(1)
    settings = CriticSettings(kind=kind, lr=3e-2, value_clip=0, warmup=40)
    learning = learner(policy, settings, old_logprobs="recompute")
    first = weights(policy)
    seen = [learning.learn(step, episodes).metrics for step in range(1, 41)]
    assert seen[0]["critic/explained"] == 0  # its head begins at zero
    assert seen[-1]["critic/loss"] < 0.5 * seen[0]["critic/loss"]
    assert seen[-1]["critic/explained"] > (0.3 if kind == "separate" else 0.01)  # a head alone is a weak critic
    assert torch.equal(weights(policy), first)
    assert "loss/total" not in seen[-1]
    learning.learn(41, episodes)
    assert not torch.equal(weights(policy), first)


def gradient(policy: Policy, critic: CriticSettings, **changes: object) -> tuple[torch.Tensor, torch.Tensor]:
    """(of the policy, of the critic), of one update, before the optimisers use them."""
    learning = learner(policy, critic, **changes)
    assert learning.critic is not None
    with torch.no_grad():  # a head of zeros would hand no gradient on
        learning.critic.head.weight.fill_(0.1)
    taken: list[torch.Tensor] = []

    def keep(optimiser: Optimiser) -> None:
        def step(loss: float, rate: float) -> float:
            found = [p.grad if p.grad is not None else torch.zeros_like(p) for p in optimiser.parameters]
            taken.append(torch.cat([g.flatten() for g in found]).clone())
            return 0.0

        optimiser.step = step  # type: ignore[method-assign]

    keep(learning.critic.optimiser)
    keep(learning.optimiser)
    policy.module.zero_grad()
    learning.learn(1, make_episodes(4))
    of_critic, of_policy = taken
    return of_policy, of_critic


def test_only_the_share_that_was_asked_for_reaches_the_policy() -> None:
    policy = small_policy()
    none, _ = gradient(policy, CriticSettings(kind="head", trunk=0.0))
    apart, _ = gradient(policy, CriticSettings(kind="separate"))
    some, _ = gradient(policy, CriticSettings(kind="head", trunk=0.25))
    all_of_it, _ = gradient(policy, CriticSettings(kind="head", trunk=1.0))
    # The values, and with them the advantages, are the same in all four: what differs is the value loss alone.
    torch.testing.assert_close(none, apart, atol=1e-6, rtol=1e-4)
    assert float((all_of_it - none).abs().max()) > 1e-4
    torch.testing.assert_close(some - none, 0.25 * (all_of_it - none), atol=1e-6, rtol=1e-3)


@pytest.mark.parametrize("kind", ["separate", "head"])
def test_packing_and_accumulation_change_nothing(kind: str) -> None:
    policy, settings = small_policy(), CriticSettings(kind=kind, trunk=0.5 if kind == "head" else 0.0)
    whole = gradient(policy, settings)
    for changes in ({"micro_tokens": 64}, {"row_tokens": 60}):
        for one, other in zip(gradient(policy, settings, **changes), whole, strict=True):
            torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-4)


def test_the_gradient_of_the_head_is_that_of_the_equation() -> None:
    # v = w·h + b, loss = Σ weight · ½ (v - R)²: the gradient of w is Σ weight · (v - R) · h, of b Σ weight · (v - R).
    policy, episodes = small_policy(), make_episodes(2)
    critic = Critic(policy, CriticSettings(kind="head", value_clip=0), LEARN)
    with torch.no_grad():
        critic.head.weight.fill_(0.1)
    sequences, tokens = flatten(episodes)
    returns = np.linspace(-1, 3, len(tokens.target_N)).astype(np.float32)
    targets = Targets(returns, tokens.logp_N, return_N=returns, value_N=returns)
    [batch] = micro_batches(sequences, tokens, targets, micro_tokens=10**6)
    hidden = before(policy.states(batch), batch).detach()
    error = hidden @ critic.head.weight.detach()[0] + critic.head.bias.detach() - batch.return_N
    expected = ((batch.weights["turn"] * error)[:, None] * hidden).sum(0)
    from isentrope.learning.objective import critic_objective

    loss, _ = critic_objective(batch, hidden, critic, replace(LEARN, aggregation="turn"))
    loss.backward()
    assert critic.head.weight.grad is not None
    torch.testing.assert_close(critic.head.weight.grad[0], expected, atol=1e-6, rtol=1e-4)
    assert float(critic.head.bias.grad) == pytest.approx(float((batch.weights["turn"] * error).sum()), abs=1e-6)


def test_its_state_brings_everything_back() -> None:
    policy, episodes = small_policy(), make_episodes(3)
    one = learner(policy, CriticSettings(lr=1e-2, warmup=99))
    for step in range(1, 4):
        one.learn(step, episodes)
    other = learner(small_policy(), CriticSettings(lr=1e-2, warmup=99))
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    assert one.learn(4, episodes).metrics == other.learn(4, episodes).metrics


def test_a_module_under_two_names_is_saved_once(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from tests.models.test_hugging_face import make_folder

    make_folder(tmp_path)
    policy = load_folder(tmp_path, torch.device("cpu"), "float32")
    critic = Critic(policy, CriticSettings(), LEARN)
    saved = sum(value.numel() for value in critic.state_dict()["body"].values())
    assert saved == sum(p.numel() for p in policy.module.parameters())
