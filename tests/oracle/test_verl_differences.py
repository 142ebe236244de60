"""Where we differ from verl 0.9.1 on purpose: one test for each difference, showing both sides."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from isentrope.core.token_weights import token_weights
from isentrope.learning.advantages.gae import whiten
from isentrope.learning.advantages.grpo import grpo
from isentrope.learning.advantages.overlong import overlong_penalty
from isentrope.learning.advantages.rloo import rloo
from isentrope.learning.losses.clipped import clipped_loss
from isentrope.learning.losses.kl import kl_estimate
from isentrope.learning.losses.sequence import sequence_loss
from isentrope.learning.losses.value import value_loss
from tests.oracle.padded import INSTALL, actor, core_algos, episodes

core = core_algos()
pytestmark = pytest.mark.verl

ONE = torch.ones(1, 1, dtype=torch.float64)


def single(number: float) -> torch.Tensor:
    """One token: their row and, flattened, ours."""
    return torch.tensor([[number]], dtype=torch.float64)


def verl_grpo(returns: list[float], groups: list[int], name: str = "grpo", dtype: torch.dtype = torch.float64) -> Any:
    rewards = torch.tensor(returns, dtype=dtype).unsqueeze(-1)
    return core.get_adv_estimator_fn(name)(rewards, torch.ones_like(rewards), np.array(groups))[0].squeeze(-1).tolist()


def test_a_group_of_equal_returns_is_exactly_zero() -> None:
    """verl divides what rounding left over by 1e-6. In float32, as it trains, that may be almost half an advantage."""
    sizes = range(2, 17)
    assert not any(grpo(np.full(size, 9.9), np.zeros(size, np.int64)).any() for size in sizes)
    theirs = [max(map(abs, verl_grpo([9.9] * size, [0] * size, dtype=torch.float32))) for size in sizes]
    assert 0.1 < max(theirs) < 1


def test_a_group_of_one_is_zero() -> None:
    """verl takes the return itself as the advantage (mean 0, std 1): a lone failure teaches nothing, a lone success a
    lot. Only its vectorised rloo gives 0."""
    returns, groups = np.array([10.0]), np.array([0])
    assert grpo(returns, groups).tolist() == rloo(returns, groups).tolist() == [0.0]
    assert verl_grpo([10.0], [0]) == pytest.approx([10.0], rel=1e-5)
    assert verl_grpo([10.0], [0], "grpo_vectorized") == pytest.approx([10.0], rel=1e-5)
    assert verl_grpo([10.0], [0], "rloo") == [10.0]
    assert verl_grpo([10.0], [0], "rloo_vectorized") == [0.0]


def test_whitening_of_equal_advantages_is_exactly_zero() -> None:
    """verl's mean has 1e-8 in its denominator and its scale is 1 / √(variance + 1e-8)."""
    assert whiten(np.full(4, 10.0)).tolist() == [0.0] * 4
    theirs = core.verl_F.masked_whiten(torch.full((1, 4), 10.0, dtype=torch.float64), torch.ones(1, 4).double())
    assert theirs.flatten().tolist() == pytest.approx([10.0 * 1e-8 / 4 * 1e4] * 4, rel=1e-3)


def test_whitening_divides_by_the_std_plus_epsilon() -> None:
    """verl adds its epsilon to the variance, which for advantages under 1e-4 is far more than ours to the std."""
    small = np.array([-1e-4, 1e-4])
    assert whiten(small) == pytest.approx([-0.7071, 0.7071], abs=1e-3)
    theirs = core.verl_F.masked_whiten(torch.from_numpy(small).unsqueeze(0), torch.ones(1, 2))
    assert theirs.flatten().tolist() == pytest.approx([-0.5774, 0.5774], abs=1e-3)


def test_a_single_token_can_be_whitened() -> None:
    assert whiten(np.array([3.0])).tolist() == [0.0]
    with pytest.raises(ValueError, match="sum of the mask is one"):
        core.verl_F.masked_whiten(single(3.0), ONE)


def test_there_is_no_third_clip() -> None:
    """verl's dual clip (arXiv:1912.09729) stops negative advantages at a ratio of 3; the equation of PPO does not."""
    logp, old, advantage = single(math.log(5)).requires_grad_(), single(0.0), single(-2.0)
    ours = clipped_loss(logp[0], old[0], advantage[0], 0.2, 0.2).sum()
    theirs, _ = core.compute_policy_loss_vanilla(old, logp, advantage, ONE, "token-mean", actor(core, dual=3.0))
    assert (ours.item(), theirs.item()) == pytest.approx((10.0, 6.0))
    slopes = [float(torch.autograd.grad(loss, logp)[0]) for loss in (ours, theirs)]
    assert slopes == pytest.approx([10.0, 0.0])


def test_k3_has_no_bound_of_ten() -> None:
    """verl's low_var_kl is cut at 10, and a token that far below the reference is no longer pulled back."""
    logp, ref = single(-5.0).requires_grad_(), single(0.0)
    ours, theirs = kl_estimate(logp[0], ref[0], "k3"), core.kl_penalty(logp, ref, "low_var_kl")
    assert (ours.item(), theirs.item()) == pytest.approx((math.exp(5) - 6, 10.0))
    slopes = [float(torch.autograd.grad(loss.sum(), logp)[0]) for loss in (ours, theirs)]
    assert slopes == pytest.approx([1 - math.exp(5), 0.0])


def test_far_above_the_reference_k3_goes_on_growing() -> None:
    """verl bounds the linear term too; ours bounds the exponential only."""
    logp, ref = single(30.0).requires_grad_(), single(0.0)
    ours, theirs = kl_estimate(logp[0], ref[0], "k3"), core.kl_penalty(logp, ref, "low_var_kl")
    assert (ours.item(), theirs.item()) == pytest.approx((29.0, 10.0))
    slopes = [float(torch.autograd.grad(loss.sum(), logp)[0]) for loss in (ours, theirs)]
    assert slopes == pytest.approx([1.0, 0.0])


def test_the_ratio_of_a_response_is_bounded_later_and_keeps_its_gradient() -> None:
    """verl bounds a response's log-ratio from above at 10, without a gradient beyond; ours at ±20, with one."""
    logp, old, advantage = single(12.0).requires_grad_(), single(0.0), single(-1.0)
    ours = sequence_loss(logp[0], old[0], advantage[0], torch.tensor([0]), 0.2, 0.2).sum()
    theirs, _ = core.compute_policy_loss_gspo(old, logp, advantage, ONE, "seq-mean-token-mean", actor(core))
    assert (ours.item(), theirs.item()) == pytest.approx((math.exp(12), math.exp(10)), rel=1e-6)
    slopes = [float(torch.autograd.grad(loss, logp)[0]) for loss in (ours, theirs)]
    assert slopes == pytest.approx([math.exp(12), 0.0])


def test_a_value_clip_of_zero_is_no_clip() -> None:
    """verl takes 0 as a range: a value may not move at all."""
    value, old, target = single(0.5), single(0.0), single(1.0)
    theirs, _ = core.compute_value_loss(value, target, old, ONE, 0.0)
    assert value_loss(value[0], old[0], target[0], 0.0).item() == pytest.approx(0.125)
    assert float(theirs) == pytest.approx(0.5)


def test_a_sequence_is_a_response_not_a_row() -> None:
    """verl averages over rows. Where a row holds a whole episode, `sequence` still counts its responses one by one, and
    `turn` averages them within their episode; `episode` is that row."""
    batch = episodes(1)
    losses = batch.normal()
    theirs = float(core.agg_loss(batch.pad(losses), batch.mask, "seq-mean-token-mean"))
    by_mode = {
        mode: token_weights(mode, batch.episode_N, batch.turn_N) @ losses.numpy() for mode in ("sequence", "turn")
    }
    assert all(abs(ours - theirs) > 1e-3 for ours in by_mode.values())
    rows = token_weights("sequence", batch.episode_N, batch.row_N) @ losses.numpy()
    assert rows == pytest.approx(theirs, rel=1e-7)


def test_a_constant_length_does_not_depend_on_the_padding() -> None:
    """verl's default divides by the columns of the batch, so that more padding makes the same loss smaller."""
    batch = episodes(2)
    losses, mask = batch.pad(batch.normal()), batch.mask
    wider, wider_mask = (torch.cat([matrix, torch.zeros_like(matrix)], dim=1) for matrix in (losses, mask))
    narrow, wide = (
        float(core.agg_loss(*pair, "seq-mean-token-sum-norm")) for pair in ((losses, mask), (wider, wider_mask))
    )
    assert wide == pytest.approx(narrow / 2)
    weights = token_weights("constant", batch.episode_N, batch.turn_N, float(mask.shape[1]))
    assert weights @ batch.flat(losses) == pytest.approx(narrow)


@pytest.mark.parametrize("mode", ["token", "sequence", "turn", "episode", "constant"])
def test_denominators_are_those_of_the_whole_batch(mode: str) -> None:
    """Our weights are split with the tokens. verl's mean of a half is over that half, unless told the counts."""
    batch = episodes(3)
    losses = batch.normal().numpy()
    weights = token_weights(mode, batch.episode_N, batch.turn_N, 9.0)
    halves = [batch.row_N < 3, batch.row_N >= 3]
    assert sum(weights[half] @ losses[half] for half in halves) == pytest.approx(weights @ losses)
    matrix = batch.pad(losses)
    parts = [core.agg_loss(matrix[rows], batch.mask[rows], "token-mean") for rows in (slice(3), slice(3, None))]
    whole = core.agg_loss(matrix, batch.mask, "token-mean")
    assert abs(float(sum(parts)) / 2 - float(whole)) > 1e-3


class Reader:
    """As much of a tokenizer as their reward manager asks for."""

    eos_token = "."

    def decode(self, ids: torch.Tensor, skip_special_tokens: bool) -> str:
        del skip_special_tokens
        return "x" * len(ids)


def verl_overlong(lengths: list[int], limit: int, buffer: int) -> list[float]:
    """The reward of their DAPO manager for answers that are worth 0."""
    dapo = pytest.importorskip("verl.workers.reward_manager.dapo", reason=INSTALL)
    shaping = SimpleNamespace(enable=True, len=buffer, penalty_factor=1.0, log=False)
    manager = dapo.DAPORewardManager(Reader(), 0, lambda **_: 0.0, max_resp_len=limit, overlong_buffer_cfg=shaping)
    columns = max(lengths)
    attention = torch.tensor([[1] + [1] * length + [0] * (columns - length) for length in lengths])
    tensors = {"prompts": torch.ones(len(lengths), 1, dtype=torch.long), "attention_mask": attention}
    tensors["responses"] = torch.ones(len(lengths), columns, dtype=torch.long)
    others = {name: np.array([value] * len(lengths), dtype=object) for name, value in (("data_source", "none"),)}
    others["reward_model"] = np.array([{"ground_truth": ""} for _ in lengths], dtype=object)
    return manager(dapo.DataProto.from_dict(tensors, non_tensors=others)).sum(-1).tolist()


def test_overlong_shaping_ends_at_minus_one() -> None:
    """The same up to the limit. Beyond it, which verl's sampler does not reach, theirs goes on falling."""
    lengths = [1, 80, 81, 90, 99, 100]
    assert overlong_penalty(np.array(lengths), 100, 20) == pytest.approx(verl_overlong(lengths, 100, 20))
    assert overlong_penalty(np.array([120]), 100, 20).tolist() == [-1.0]
    assert verl_overlong([120], 100, 20) == pytest.approx([-2.0])
