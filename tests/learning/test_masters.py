"""Bfloat16 weights that learn through float32 copies."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from isentrope.config.schema import CriticSettings, LearnSettings
from isentrope.learning.critic import Critic
from isentrope.learning.optimiser import Masters, Optimiser, make_optimiser
from isentrope.learning.sft_step import imitate
from isentrope.models.policy import Policy
from isentrope.runs.checkpoints import join_tensors, split_tensors
from tests.builders.episodes import make_episodes
from tests.models.helpers import small_policy


def half(policy: Policy) -> Policy:
    """The policy with bfloat16 weights."""
    for parameter in policy.module.parameters():
        parameter.data = parameter.data.bfloat16()
    return Policy(policy.model, policy.tokenizer, policy.device, torch.bfloat16)


def learn(policy: Policy, rate: float, updates: int, master: bool = True) -> Optimiser:
    optimiser = make_optimiser(policy, LearnSettings(master_weights=master))
    for _ in range(updates):
        imitate(policy, optimiser, make_episodes(2), rate, 10**6)
    return optimiser


def test_updates_too_small_for_bfloat16_add_up_in_the_copies() -> None:
    weight = nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    plain = nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    with_copies, without = Optimiser([weight]), Optimiser([plain], master_weights=False)
    for _ in range(20):
        for parameter, optimiser in ((weight, with_copies), (plain, without)):
            parameter.sum().backward()
            optimiser.step(0.0, 1e-3)
    assert torch.equal(plain.data, torch.ones_like(plain))  # each step is below half of what 1 can change by
    torch.testing.assert_close(weight.data.float(), torch.full((4,), 0.98), atol=4e-3, rtol=0)
    torch.testing.assert_close(with_copies.parameters[0].data, torch.full((4,), 0.98), atol=1e-5, rtol=0)


def test_gradients_of_many_passes_are_added_up_in_float32() -> None:
    weight = nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
    optimiser = Optimiser([weight], grad_clip=1e9)
    (256.0 * weight).sum().backward()
    for _ in range(64):  # each alone is lost beside 256 in bfloat16
        (0.5 * weight).sum().backward()
        assert weight.grad is None
    assert optimiser.step(0.0, 0.0) == 288.0


def test_the_weights_are_the_copies_rounded_and_follow_float32() -> None:
    exact, rounded = small_policy(), half(small_policy())
    # both begin at the same point: the rounded weights
    with torch.no_grad():
        for a, b in zip(exact.module.parameters(), rounded.module.parameters(), strict=True):
            a.copy_(b)
    start = [p.detach().clone() for p in exact.module.parameters()]
    learn(exact, 1e-3, 5)
    copies = learn(rounded, 1e-3, 5).parameters
    moved = torch.cat([(a.detach() - s).flatten() for a, s in zip(exact.module.parameters(), start, strict=True)])
    also = torch.cat([(c.detach() - s).flatten() for c, s in zip(copies, start, strict=True)])
    assert float(nn.functional.cosine_similarity(moved, also, dim=0)) > 0.9
    for weight, master in zip(rounded.module.parameters(), copies, strict=True):
        assert weight.dtype == torch.bfloat16
        assert master.dtype == torch.float32
        assert torch.equal(weight.detach(), master.detach().bfloat16())


def test_the_state_brings_the_copies_back() -> None:
    one = half(small_policy())
    optimiser = learn(one, 1e-4, 3)
    tensors, tree = split_tensors(optimiser.state_dict())
    other = half(small_policy())
    other.module.load_state_dict(one.module.state_dict())
    again = make_optimiser(other, LearnSettings())
    again.load_state_dict(join_tensors(tree, tensors))
    for policy, with_state in ((one, optimiser), (other, again)):
        imitate(policy, with_state, make_episodes(2), 1e-4, 10**6)
    for a, b in zip(optimiser.parameters, again.parameters, strict=True):
        assert torch.equal(a, b)
    for a, b in zip(one.module.parameters(), other.module.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_run_that_goes_on_in_float32_takes_the_copies_whole() -> None:
    policy = half(small_policy())
    state = learn(policy, 1e-4, 3).state_dict()
    other = small_policy()
    now = make_optimiser(other, LearnSettings())
    now.load_state_dict(copy.deepcopy(state))
    masters = state["masters"]
    assert isinstance(masters, dict)
    for number, weight in enumerate(other.module.parameters()):
        assert torch.equal(weight.detach(), masters[number].detach())


def test_float32_weights_have_no_copies() -> None:
    policy = small_policy()
    optimiser = make_optimiser(policy, LearnSettings())
    assert "masters" not in optimiser.state_dict()
    assert all(a is b for a, b in zip(optimiser.parameters, policy.module.parameters(), strict=True))


@pytest.mark.parametrize("kind", ["separate", "head"])
def test_the_critic_learns_on_bfloat16_states(kind: str) -> None:
    policy = half(small_policy())
    make_optimiser(policy, LearnSettings())  # its hooks must not follow the copy
    critic = Critic(policy, CriticSettings(kind=kind, lr=1e-2), LearnSettings())
    from isentrope.learning.packing import micro_batches
    from isentrope.learning.tokens import flatten

    sequences, tokens = flatten(make_episodes(2))
    [batch] = micro_batches(sequences, tokens, micro_tokens=10**6)
    stats = policy.stats(batch)
    assert stats.hidden_ND.dtype == torch.bfloat16
    assert stats.logp_N.dtype == torch.float32
    values = []
    for _ in range(30):
        value_N = critic.values(batch, stats.hidden_ND.detach())
        loss = ((value_N - 1) ** 2).mean()
        loss.backward()
        critic.optimiser.step(float(loss.detach()), 1e-2)
        values.append(float(loss.detach()))
    assert values[-1] < 0.3 * values[0]
    assert all(p.grad is None for p in policy.module.parameters())


def test_scores_of_bfloat16_weights_are_near_those_of_float32() -> None:
    from isentrope.learning.packing import micro_batches
    from isentrope.learning.tokens import flatten

    sequences, tokens = flatten(make_episodes(3))
    [batch] = micro_batches(sequences, tokens, micro_tokens=10**6)
    with torch.no_grad():
        policy = small_policy()
        cast = Policy(policy.model, policy.tokenizer, policy.device, torch.bfloat16)
        wanted, by_cast = policy.stats(batch).logp_N, cast.stats(batch).logp_N
        held = half(policy).stats(batch).logp_N
    assert not half(small_policy()).compute()._enabled  # type: ignore[attr-defined]
    error_cast, error_held = float((by_cast - wanted).abs().mean()), float((held - wanted).abs().mean())
    assert error_held < 3 * error_cast + 1e-3


def test_a_second_optimiser_takes_over_from_the_first() -> None:
    weight = nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    first, second = Masters([weight]), Masters([weight])
    (weight.float() * 3).sum().backward()
    assert first.copies[0].grad is None
    assert second.copies[0].grad is not None
    assert second.copies[0].grad.tolist() == [3.0, 3.0]


def test_a_checkpoint_goes_on_where_the_optimiser_is_fused_and_where_it_is_not() -> None:
    """A fused optimiser wants the counts of steps beside the weights, in float32; torch puts them there only if it
    knows while it reads that it is fused. Here float64 stands for another device."""
    weight = nn.Parameter(torch.ones(2))
    optimiser = Optimiser([weight])
    weight.sum().backward()
    optimiser.step(0.0, 0.1)
    state = copy.deepcopy(optimiser.state_dict())
    state["adam"]["state"][0]["step"] = torch.tensor(1.0, dtype=torch.float64)  # type: ignore[index]
    for fused in (True, False):
        other = Optimiser([nn.Parameter(torch.ones(2))])
        other.fused = fused
        other.load_state_dict(copy.deepcopy(state))
        [moments] = other.adam.state.values()
        assert moments["step"].dtype == (torch.float32 if fused else torch.float64)
        assert other.adam.param_groups[0]["fused"] == (fused or None)
