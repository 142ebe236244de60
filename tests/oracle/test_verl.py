"""The same numbers as verl 0.9.1, on random ragged batches. Where we differ on purpose: `test_verl_differences.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from isentrope.core.token_weights import token_weights
from isentrope.learning.advantages.gae import gae, whiten
from isentrope.learning.advantages.grpo import grpo
from isentrope.learning.advantages.rloo import rloo
from isentrope.learning.losses.clipped import clipped_loss
from isentrope.learning.losses.kl import kl_estimate
from isentrope.learning.losses.policy_gradient import policy_gradient_loss
from isentrope.learning.losses.sequence import sequence_loss
from isentrope.learning.losses.value import value_loss
from tests.oracle.padded import Rows, actor, core_algos, episodes, responses

core = core_algos()
pytestmark = pytest.mark.verl

SEEDS = range(8)
every_seed = pytest.mark.parametrize("seed", SEEDS)
either = pytest.mark.parametrize("layout", [responses, episodes])


def outcomes(batch: Rows) -> tuple[np.ndarray, np.ndarray, Tensor]:
    """A return and a group for every row (no group of one, no group of equals), and the returns as they want them."""
    count = len(batch.mask)
    groups = batch.rng.permutation(np.arange(count) % max(1, count // 3))
    returns = batch.rng.normal(size=count) + 10 * (batch.rng.random(count) < 0.5)
    rewards = torch.zeros_like(batch.mask)
    rewards[batch.mask.bool()] = torch.from_numpy(batch.on_last_tokens(returns))
    return returns, groups, rewards


def same_total(batch: Rows, ours_N: Tensor, theirs: Tensor, mode: str, inputs: tuple[Tensor, Tensor]) -> None:
    """Value and gradient of an aggregated loss. `inputs`: our flat tensor and their padded one."""
    weights = torch.from_numpy(token_weights(mode, batch.episode_N, batch.turn_N))
    total = (weights * ours_N).sum()
    assert total.item() == pytest.approx(theirs.item(), rel=1e-7, abs=1e-12)
    mine, padded = torch.autograd.grad(total, inputs[0])[0], torch.autograd.grad(theirs, inputs[1])[0]
    np.testing.assert_allclose(mine.numpy(), batch.flat(padded), rtol=1e-7, atol=1e-12)
    assert not padded[~batch.mask.bool()].any()


@either
@every_seed
@pytest.mark.parametrize("divide", [True, False])
def test_grpo(layout: Any, seed: int, divide: bool) -> None:
    batch = layout(seed)
    returns, groups, rewards = outcomes(batch)
    theirs, _ = core.compute_grpo_outcome_advantage(rewards, batch.mask, groups, norm_adv_by_std_in_grpo=divide)
    np.testing.assert_allclose(grpo(returns, groups, divide)[batch.row_N], batch.flat(theirs), rtol=1e-9, atol=1e-12)


@every_seed
def test_grpo_with_statistics_over_steps(seed: int) -> None:
    """A row per response is one sample per turn: the statistics that our `stats = steps` takes."""
    batch = responses(seed)
    episode_of_row = np.array([batch.episode_N[batch.row_N == row][0] for row in range(len(batch.mask))])
    returns = batch.rng.normal(size=7)[episode_of_row]
    groups = (np.arange(7) % 2)[episode_of_row]
    rewards = torch.zeros_like(batch.mask)
    rewards[batch.mask.bool()] = torch.from_numpy(batch.on_last_tokens(returns))
    theirs, _ = core.compute_grpo_outcome_advantage(rewards, batch.mask, groups)
    np.testing.assert_allclose(grpo(returns, groups)[batch.row_N], batch.flat(theirs), rtol=1e-9, atol=1e-12)


@either
@every_seed
@pytest.mark.parametrize("name", ["rloo", "rloo_vectorized"])
def test_rloo(layout: Any, seed: int, name: str) -> None:
    batch = layout(seed)
    returns, groups, rewards = outcomes(batch)
    theirs, _ = core.get_adv_estimator_fn(name)(rewards, batch.mask, groups)
    np.testing.assert_allclose(rloo(returns, groups)[batch.row_N], batch.flat(theirs), rtol=1e-9, atol=1e-12)


@either
@every_seed
@pytest.mark.parametrize(("discount", "lam"), [(1.0, 1.0), (0.95, 0.9), (0.9, 0.0), (0.0, 0.5)])
def test_gae(layout: Any, seed: int, discount: float, lam: float) -> None:
    """A row is a chain: token credit where rows are responses, turn credit where they are episodes."""
    batch = layout(seed)
    rewards, values = batch.normal(), batch.normal()
    whitened, returns = core.compute_gae_advantage_return(
        batch.pad(rewards), batch.pad(values), batch.mask, discount, lam
    )
    chains = batch.turn_N if layout is responses else batch.episode_N
    advantages, ours = gae(rewards.numpy(), values.numpy(), chains, discount, lam)
    np.testing.assert_allclose(ours, batch.flat(returns), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(whiten(advantages), batch.flat(whitened), rtol=1e-6, atol=1e-7)


@either
@every_seed
@pytest.mark.parametrize(("low", "high"), [(0.2, 0.2), (0.2, 0.28), (0.05, 0.4)])
def test_clipped_loss(layout: Any, seed: int, low: float, high: float) -> None:
    batch = layout(seed)
    old, advantage = batch.normal() - 3, batch.normal()
    logp = (old + batch.normal(0.5)).requires_grad_()
    padded = batch.pad(logp.detach()).requires_grad_()
    theirs, _ = core.compute_policy_loss_vanilla(
        batch.pad(old), padded, batch.pad(advantage), batch.mask, "token-mean", actor(core, low, high)
    )
    same_total(batch, clipped_loss(logp, old, advantage, low, high), theirs, "token", (logp, padded))


@every_seed
def test_clipped_loss_of_extreme_ratios(seed: int) -> None:
    """Both bound the log-ratio at 20, and neither has a gradient beyond it."""
    batch = responses(seed)
    old, advantage = batch.normal() - 3, batch.normal()
    logp = (old + batch.normal(30.0)).requires_grad_()
    padded = batch.pad(logp.detach()).requires_grad_()
    theirs, _ = core.compute_policy_loss_vanilla(
        batch.pad(old), padded, batch.pad(advantage), batch.mask, "token-mean", actor(core, dual=1e30)
    )
    same_total(batch, clipped_loss(logp, old, advantage, 0.2, 0.2), theirs, "token", (logp, padded))


@every_seed
@pytest.mark.parametrize(("low", "high"), [(3e-4, 4e-4), (0.1, 0.2)])
@pytest.mark.parametrize("one", [True, False], ids=["one advantage per response", "one per token"])
def test_sequence_loss(seed: int, low: float, high: float, one: bool) -> None:
    batch = responses(seed)
    old, advantage = batch.normal() - 3, batch.normal()
    advantage = batch.normal()[torch.from_numpy(batch.row_N)] if one else advantage
    logp = (old + batch.normal(0.3)).requires_grad_()
    padded = batch.pad(logp.detach()).requires_grad_()
    theirs, _ = core.compute_policy_loss_gspo(
        batch.pad(old), padded, batch.pad(advantage), batch.mask, "seq-mean-token-mean", actor(core, low, high)
    )
    ours = sequence_loss(logp, old, advantage, torch.from_numpy(batch.turn_N), low, high)
    same_total(batch, ours, theirs, "sequence", (logp, padded))


@either
@every_seed
def test_policy_gradient_loss(layout: Any, seed: int) -> None:
    """What verl calls gpg."""
    batch = layout(seed)
    advantage, logp = batch.normal(), (batch.normal() - 3).requires_grad_()
    padded = batch.pad(logp.detach()).requires_grad_()
    theirs, _ = core.get_policy_loss_fn("gpg")(
        padded, padded, batch.pad(advantage), batch.mask, "token-mean", actor(core)
    )
    same_total(batch, policy_gradient_loss(logp, advantage), theirs, "token", (logp, padded))


@every_seed
@pytest.mark.parametrize(
    ("ours", "theirs"), [("k1", "kl"), ("k1", "k1"), ("k2", "mse"), ("k2", "k2"), ("k3", "low_var_kl"), ("k3", "k3")]
)
def test_kl(seed: int, ours: str, theirs: str) -> None:
    """Value and gradient, where their k3 is under its bound of 10."""
    batch = responses(seed)
    ref = batch.normal() - 3
    logp = (ref + batch.normal(0.7)).requires_grad_()
    mine, other = kl_estimate(logp, ref, ours), core.kl_penalty(logp, ref, theirs)
    assert other.max().item() < 10
    np.testing.assert_allclose(mine.detach().numpy(), other.detach().numpy(), rtol=1e-12, atol=1e-14)
    gradients = [torch.autograd.grad(loss.sum(), logp)[0].numpy() for loss in (mine, other)]
    np.testing.assert_allclose(*gradients, rtol=1e-12, atol=1e-14)


@either
@every_seed
@pytest.mark.parametrize("clip", [0.05, 0.2, 1.0])
def test_value_loss(layout: Any, seed: int, clip: float) -> None:
    batch = layout(seed)
    old, target = batch.normal(), batch.normal()
    value = (old + batch.normal(0.4)).requires_grad_()
    padded = batch.pad(value.detach()).requires_grad_()
    theirs, _ = core.compute_value_loss(padded, batch.pad(target), batch.pad(old), batch.mask, clip)
    same_total(batch, value_loss(value, old, target, clip), theirs, "token", (value, padded))


@either
@every_seed
def test_mean_over_tokens(layout: Any, seed: int) -> None:
    batch = layout(seed)
    losses = batch.normal()
    theirs = core.agg_loss(batch.pad(losses), batch.mask, "token-mean")
    assert token_weights("token", batch.episode_N, batch.turn_N) @ losses.numpy() == pytest.approx(float(theirs))


@every_seed
@pytest.mark.parametrize(("mode", "rows"), [("sequence", responses), ("episode", episodes)])
def test_mean_over_rows(seed: int, mode: str, rows: Callable[[int], Rows]) -> None:
    """A row of theirs is a response or a whole episode. Their 1e-8 in the denominator is all the difference."""
    batch = rows(seed)
    losses = batch.normal()
    theirs = core.agg_loss(batch.pad(losses), batch.mask, "seq-mean-token-mean")
    ours = token_weights(mode, batch.episode_N, batch.turn_N) @ losses.numpy()
    assert ours == pytest.approx(float(theirs), rel=1e-7)


@every_seed
def test_mean_over_episodes_of_constant_length(seed: int) -> None:
    batch = episodes(seed)
    losses = batch.normal()
    for length, mode in ((1.0, "seq-mean-token-sum"), (77.0, "seq-mean-token-sum-norm")):
        theirs = core.agg_loss(batch.pad(losses), batch.mask, mode, loss_scale_factor=77)
        ours = token_weights("constant", batch.episode_N, batch.turn_N, length) @ losses.numpy()
        assert ours == pytest.approx(float(theirs))


@every_seed
def test_rows_without_a_token_do_not_count(seed: int) -> None:
    """An episode that is masked out as a whole is in no denominator, theirs or ours."""
    batch = episodes(seed)
    losses = batch.pad(batch.normal())
    mask = batch.mask.clone()
    mask[2] = 0
    kept = batch.row_N != 2
    flat = losses[mask.bool()].numpy()
    for ours, theirs in (("token", "token-mean"), ("constant", "seq-mean-token-sum")):
        weights = token_weights(ours, batch.episode_N[kept], batch.turn_N[kept])
        assert weights @ flat == pytest.approx(float(core.agg_loss(losses, mask, theirs)))
