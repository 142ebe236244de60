"""AdamW with small or distant state: the parts give the number back, codes are near and right on average, and what is
exact is torch's AdamW to the bit."""

from __future__ import annotations

import copy
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor, nn

from isentrope.config.schema import LearnSettings
from isentrope.core.errors import TrainError
from isentrope.learning import lean_adamw
from isentrope.learning.lean_adamw import (
    FIRST,
    SECOND,
    LeanAdamW,
    Step,
    advance,
    decode,
    encode,
    joined,
    largest_move,
    split,
)
from isentrope.learning.optimiser import Optimiser, make_optimiser
from isentrope.learning.sft_step import imitate
from isentrope.loop.train import train
from isentrope.models.policy import Policy
from isentrope.runs.checkpoints import join_tensors, split_tensors
from tests.builders.episodes import make_episodes
from tests.builders.toy_runs import make_model, toy_config
from tests.learning.test_masters import half
from tests.models.helpers import small_policy


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that small weights have several, and a last one that is not full."""
    monkeypatch.setattr(lean_adamw, "CHUNK", 1024)


def drawn(count: int, seed: int = 0) -> Tensor:
    return torch.rand(count, generator=torch.Generator().manual_seed(seed))


# A float32 number in two parts


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=50))
def test_the_parts_give_any_finite_number_back(bits: list[int]) -> None:
    value = torch.tensor(bits, dtype=torch.int32).view(torch.float32)
    value = torch.where(value.isfinite(), value, torch.tensor(3.4e38))
    weight, rest = split(value)
    assert torch.equal(joined(weight, rest).view(torch.int32), value.view(torch.int32))
    assert ((weight.float() - value).abs() <= (value.bfloat16().float() - value).abs()).all()  # as near as can be


def test_halfway_cases_go_away_from_zero() -> None:
    """1 + 2^-8 lies between 1 and 1 + 2^-7, the next bfloat16 number; torch would take the even one, 1."""
    value = torch.tensor([1 + 2**-8, -1 - 2**-8, 1 + 2**-8 - 2**-20])
    weight, rest = split(value)
    assert weight.tolist() == [1 + 2**-7, -1 - 2**-7, 1.0]
    assert rest.tolist()[:2] == [-(2**15)] * 2


# Moments in eight bits


def neighbours(power: int) -> Tensor:
    levels = 127 if power == FIRST else 255
    return torch.tensor([(code / levels) ** power for code in range(levels + 1)])


@pytest.mark.parametrize("power", [FIRST, SECOND])
def test_a_number_becomes_one_of_the_two_codes_around_it(power: int) -> None:
    size = 10 ** (-9 * drawn(3000))
    values = size * 5 if power == SECOND else size * 5 * torch.sign(drawn(3000, 1) - 0.5)
    codes, scale = encode(values, power, drawn(3000, 2))
    assert codes.dtype == (torch.int8 if power == FIRST else torch.uint8)
    assert len(scale) == math.ceil(3000 / 256)
    back, every = decode(codes, scale, power), neighbours(power)
    part = values.abs() / scale.repeat_interleave(256)[:3000]
    above = torch.searchsorted(every, part).clamp(1, len(every) - 1)
    low, high = every[above - 1], every[above]
    found = back.abs() / scale.repeat_interleave(256)[:3000]
    slack = 1e-5 * part + 1e-12
    assert ((found >= low - slack) & (found <= high + slack)).all()
    assert (back * values >= 0).all()
    large = part > (1e-4 if power == FIRST else 1e-8)  # the bounds that the module tells of
    assert ((back - values).abs()[large] <= 0.38 * values.abs()[large]).all()
    assert ((back - values).abs()[part > 0.9] <= 0.034 * values.abs()[part > 0.9]).all()


@pytest.mark.parametrize("power", [FIRST, SECOND])
def test_codes_are_right_on_average(power: int) -> None:
    """A thousandth of a change is not lost: it becomes a code's change once in a while."""
    value = torch.cat([torch.ones(1), torch.full((255,), 0.1234)])
    mean = torch.stack([decode(*encode(value, power, drawn(256, seed)), power) for seed in range(400)]).mean(0)
    assert float(mean[0]) == pytest.approx(1.0)
    assert float(mean[1:].mean()) == pytest.approx(0.1234, rel=2e-3)


def test_codes_stay_what_they_are() -> None:
    """What was decoded is encoded as it was, whatever the dice: no drift while nothing changes."""
    for power, kind in ((FIRST, torch.int8), (SECOND, torch.uint8)):
        lowest = -127 if power == FIRST else 0
        codes = torch.cat([torch.arange(lowest, 128 if power == FIRST else 256), torch.tensor([127, 0])]).to(kind)
        codes = codes[codes != 0]
        scale = torch.full((-(-len(codes) // 256),), 0.37)
        codes[-1] = 127 if power == FIRST else 255
        again, scale_again = encode(decode(codes, scale, power), power, torch.full((len(codes),), 0.5))
        torch.testing.assert_close(scale_again, scale, rtol=1e-6, atol=0)
        assert int((again.int() - codes.int()).abs().max()) == 0


def test_zeros_stay_zeros_and_no_second_moment_becomes_one() -> None:
    zeros = torch.zeros(300)
    for power in (FIRST, SECOND):
        codes, scale = encode(zeros, power, drawn(300))
        assert not codes.any()
        assert torch.equal(decode(codes, scale, power), zeros)
    tiny = torch.full((256,), 1e-30)
    tiny[0] = 1.0
    assert (encode(tiny, SECOND, torch.full((256,), 0.999))[0] > 0).all()


# The update


@given(
    st.floats(0.5, 0.99), st.floats(0.9, 0.9999), st.lists(st.floats(-1, 1), min_size=1, max_size=30)
)  # fmt: skip
def test_no_gradients_move_a_weight_further_than_the_bound(b1: float, b2: float, grads: list[float]) -> None:
    m = v = 0.0
    for g in grads:
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        if v > 1e-30:
            assert abs(m) / math.sqrt(v) <= largest_move(b1, b2) * (1 + 1e-9)


def test_the_bound_is_reached() -> None:
    """By gradients in proportion to (b1 / b2)^i, i updates ago: Cauchy and Schwarz's case of equality."""
    b1, b2, m, v = 0.9, 0.999, 0.0, 0.0
    for i in range(2000, -1, -1):
        g = (b1 / b2) ** i
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
    assert m / math.sqrt(v) == pytest.approx(largest_move(b1, b2), rel=1e-6)
    assert largest_move(0.9, 0.5) == math.inf


def test_rounded_moments_are_held_to_the_bound() -> None:
    """A first moment beside a second one that is far too small would move a weight by a million rates."""
    for rounded, most in ((True, 7.3 * 1e-3), (False, math.inf)):
        value, m, v = torch.zeros(1), torch.ones(1), torch.full((1,), 1e-12)
        advance(value, torch.zeros(1), m, v, Step(10_000, 1e-3, (0.9, 0.999), 0.0), rounded=rounded)
        assert (abs(float(value)) < most) == rounded or not rounded
        assert rounded or abs(float(value)) > 100


def pair(make: Callable[[Any], Any], sizes: tuple[tuple[int, ...], ...] = ((50, 70), (7,))) -> Iterator[Any]:
    """The same weights twice: with torch's AdamW and with ours, and gradients for both, many times."""
    weights = [nn.Parameter(torch.randn(size, generator=torch.Generator().manual_seed(1))) for size in sizes]
    theirs = [nn.Parameter(weight.detach().clone()) for weight in weights]
    exact = torch.optim.AdamW(theirs, lr=1e-3, weight_decay=0.1, foreach=False)
    ours = make(weights)
    ours.param_groups[0]["lr"] = 1e-3
    generator = torch.Generator().manual_seed(2)
    for _ in range(30):
        for mine, other in zip(weights, theirs, strict=True):
            mine.grad = torch.randn(mine.shape, generator=generator) * 10 ** (
                3 * torch.rand(mine.shape, generator=generator)
            )
            other.grad = mine.grad.clone()
        exact.step()
        ours.step()
        yield weights, theirs


def test_with_moments_on_the_host_it_is_torchs_adamw_to_the_bit() -> None:
    for mine, theirs in pair(lambda weights: LeanAdamW(weights, (0.9, 0.999), 0.1, eight_bits=False, on_host=True)):
        assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


def test_with_eight_bits_updates_are_near() -> None:
    before: list[Tensor] = []
    apart: list[float] = []
    for mine, theirs in pair(lambda weights: LeanAdamW(weights, (0.9, 0.999), 0.1, eight_bits=True, on_host=False)):
        a, b = (torch.cat([p.detach().flatten() for p in side]) for side in (mine, theirs))
        if before:
            exact = b - before[1]
            apart.append(float(((a - before[0]) - exact).norm() / exact.norm()))
        before = [a.clone(), b.clone()]
    assert max(apart) < 0.2
    assert sum(apart) / len(apart) < 0.1


def test_bfloat16_weights_learn_as_float32_ones_with_their_rests() -> None:
    """The number that learns is float32's to the bit, and the weight is that number rounded."""
    start = torch.randn(40, 40, generator=torch.Generator().manual_seed(0)).bfloat16()
    weight, exact = nn.Parameter(start.clone()), nn.Parameter(start.float())
    ours = Optimiser([weight], kind="adamw", moments="host")
    theirs = torch.optim.AdamW([exact], lr=1e-4, weight_decay=0.0, foreach=False)
    for seed in range(20):
        push = torch.randn(40, 40, generator=torch.Generator().manual_seed(seed)).bfloat16()
        for at in (slice(0, 20), slice(20, 40)):  # two passes, added up
            (weight[at] * push[at]).sum().backward()
        assert weight.grad is None
        exact.grad = push.float()
        torch.nn.utils.clip_grad_norm_([exact], 1.0)
        ours.step(0.0, 1e-4)
        theirs.step()
        held = ours.parameters[0]
        assert torch.equal(held.number(), exact.detach())
        assert torch.equal(weight.detach(), split(exact.detach())[0])


# In a run


def learn(policy: Policy, settings: LearnSettings, updates: int) -> Optimiser:
    optimiser = make_optimiser(policy, settings)
    for _ in range(updates):
        imitate(policy, optimiser, make_episodes(2), 1e-3, 10**6)
    return optimiser


@pytest.mark.parametrize("settings", [LearnSettings(optimiser="adamw8"), LearnSettings(moments="host")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_run_goes_on_from_its_checkpoint_to_the_bit(settings: LearnSettings, dtype: torch.dtype) -> None:
    def policy() -> Policy:
        return small_policy() if dtype == torch.float32 else half(small_policy())

    one = policy()
    optimiser = learn(one, settings, 3)
    tensors, tree = split_tensors(optimiser.state_dict())
    other = policy()
    other.module.load_state_dict(one.module.state_dict())
    again = make_optimiser(other, settings)
    again.load_state_dict(join_tensors(tree, tensors))
    for side, with_state in ((one, optimiser), (other, again)):
        for _ in range(2):
            imitate(side, with_state, make_episodes(2), 1e-3, 10**6)
    for a, b in zip(one.module.parameters(), other.module.parameters(), strict=True):
        assert torch.equal(a, b)
    for a, b in zip(optimiser.parameters, again.parameters, strict=True):
        assert torch.equal(a.number(), b.number())
    assert again.updates == 5


@pytest.mark.parametrize("setting", ["learn.optimiser=adamw8", "learn.moments=host"])
def test_a_whole_run_that_is_resumed_is_the_one_that_was_not(tmp_path: Path, setting: str) -> None:
    config = toy_config(make_model(tmp_path / "model"), "run.steps=4", "run.checkpoint_every=2", setting)
    train(config, tmp_path / "whole", quiet=True)
    shutil.copytree(tmp_path / "whole", tmp_path / "again")
    shutil.rmtree(tmp_path / "again" / "checkpoints" / "step-000004")
    train(config, tmp_path / "again", resume=True, quiet=True)
    files = ("metrics.jsonl", "checkpoints/step-000004/state.safetensors")
    one, other = ([(tmp_path / name / file).read_bytes() for file in files] for name in ("whole", "again"))
    assert one == other
    kinds = {tensor.dtype for tensor in load_file(tmp_path / "whole" / files[1]).values()}
    assert (torch.int8 in kinds) == ("adamw8" in setting)


def test_it_learns_as_float32_does() -> None:
    """The loss after some updates of a small model, beside how far it falls."""
    losses = dict[str, list[float]]()
    for name, settings in (("exact", LearnSettings()), ("8", LearnSettings(optimiser="adamw8"))):
        policy = small_policy()
        optimiser = make_optimiser(policy, settings)
        losses[name] = [imitate(policy, optimiser, make_episodes(4), 1e-3, 10**6)[0] for _ in range(15)]
    fall = losses["exact"][0] - losses["exact"][-1]
    assert fall > 0.1
    assert abs(losses["8"][-1] - losses["exact"][-1]) < 0.05 * fall


def test_gradients_are_clipped_and_updates_that_are_not_finite_left_out() -> None:
    weight = nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    optimiser = Optimiser([weight], kind="adamw8", grad_clip=1.0)
    (weight * 3).sum().backward()
    assert optimiser.step(0.0, 1e-2) == pytest.approx(6.0)
    assert optimiser.parameters[0].grad is None
    moved = weight.detach().clone()
    assert (moved < 1).all()
    (weight * float("inf")).sum().backward()
    optimiser.step(0.0, 1e-2)
    assert optimiser.skipped == 1
    assert torch.equal(weight.detach(), moved)


def test_a_weight_without_a_gradient_stays_and_keeps_its_count() -> None:
    one, two = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    optimiser = Optimiser([one, two], kind="adamw8")
    one.sum().backward()
    optimiser.step(0.0, 0.1)
    assert torch.equal(two.detach(), torch.ones(3))
    assert [held.count for held in optimiser.parameters] == [1, 0]


def test_the_state_of_another_optimiser_is_refused() -> None:
    def state(**kind: Any) -> dict[str, object]:
        weight = nn.Parameter(torch.ones(2))
        optimiser = Optimiser([weight], **kind)
        weight.sum().backward()
        optimiser.step(0.0, 0.1)
        return copy.deepcopy(optimiser.state_dict())

    with pytest.raises(TrainError, match="another kind of optimiser"):
        Optimiser([nn.Parameter(torch.ones(2))]).load_state_dict(state(kind="adamw8"))
    with pytest.raises(TrainError, match="another kind of optimiser"):
        Optimiser([nn.Parameter(torch.ones(2))], kind="adamw8").load_state_dict(state())
    with pytest.raises(TrainError, match="has Adam's moments in float32, and"):
        Optimiser([nn.Parameter(torch.ones(2))], kind="adamw8").load_state_dict(state(moments="host"))
