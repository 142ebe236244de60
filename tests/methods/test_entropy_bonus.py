"""The entropy bonus: its value, its gradient, and nothing at all at coefficient 0."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isentrope.core.types import Episode
from isentrope.methods.entropy_bonus import EntropyBonus, EntropyBonusOptions
from tests.methods.helpers import (
    EPISODES,
    PACKINGS,
    Flat,
    advantages_of,
    assert_same_gradient,
    check_order,
    check_packing,
    check_zero,
    loss_of,
    one_update,
    other_prompts,
    ragged,
    sampled_by,
    sharp_policy,
    shuffled,
    usual,
    write_down,
)
from tests.methods.runs import assert_same_run, play_run
from tests.reference import naive_methods

MODES = ("token", "turn", "sequence")


def bonus(coefficient: float = 0.3, mode: str = "turn") -> EntropyBonus:
    return EntropyBonus(EntropyBonusOptions(coefficient=coefficient, aggregation=mode))


def now(episodes: list[Episode]) -> np.ndarray:
    """The entropies that the policy has now: in these tests, those it sampled with."""
    return np.array(Flat.of(episodes).entropy, dtype=np.float32)


@settings(max_examples=60)
@given(EPISODES, st.sampled_from(MODES), st.floats(0, 2), st.sampled_from(({}, *PACKINGS)))
def test_equals_the_naive_reference(
    episodes: list[Episode], mode: str, coefficient: float, packing: dict[str, int]
) -> None:
    flat = Flat.of(episodes)
    theirs = naive_methods.entropy_bonus(flat.entropy, flat.episode, flat.turn, coefficient, mode)
    assert loss_of(bonus(coefficient, mode), episodes, now(episodes), **packing) == pytest.approx(theirs, abs=1e-5)


def test_by_hand() -> None:
    # Episode 1: turns with entropies (1, 3) and (4), means 2 and 4, so 3. Episode 2: one turn, 1. The mean is 2, times
    # -0.5 is -1. Over tokens: (1 + 3 + 4 + 1)/4 = 2.25, so -1.125. Over responses: (2 + 4 + 1)/3 = 7/3, so -7/6.
    episodes = ragged([[[2, 1], [1]]], 0)
    entropy_N = np.array([1, 3, 4, 1], dtype=np.float32)
    assert loss_of(bonus(0.5), episodes, entropy_N) == pytest.approx(-1)
    assert loss_of(bonus(0.5, "token"), episodes, entropy_N) == pytest.approx(-1.125)
    assert loss_of(bonus(0.5, "sequence"), episodes, entropy_N) == pytest.approx(-7 / 6)


@settings(max_examples=25)
@given(EPISODES, st.integers(0, 99))
def test_order_and_other_tokens_change_nothing(episodes: list[Episode], seed: int) -> None:
    before = loss_of(bonus(), episodes, now(episodes))
    assert loss_of(bonus(), other_prompts(episodes, seed), now(episodes)) == pytest.approx(before, abs=1e-6)
    moved, places = shuffled(episodes, seed)
    assert now(moved).tolist() == now(episodes)[places].tolist()
    assert loss_of(bonus(), moved, now(moved)) == pytest.approx(before, abs=1e-6)


def test_it_leaves_advantages_plan_and_state_alone() -> None:
    advantage_N, method = np.ones(3, dtype=np.float32), bonus()
    assert method.shape(1, None, advantage_N) is advantage_N  # type: ignore[arg-type]
    assert method.plan(1, "plan") == method.evaluation("plan") == "plan"  # type: ignore[arg-type, comparison-overlap]
    assert method.state_dict() == {}
    with pytest.raises(ValueError, match=r"'entropy_bonus' keeps no state, but the checkpoint has some: \['x'\]"):
        method.load_state_dict({"x": 1})


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("full", [True, False])
def test_the_gradient_is_that_of_the_equation(full: bool, mode: str) -> None:
    policy = sharp_policy()
    for equal in (True, False):  # equal rewards: the bonus is the whole loss
        episodes = sampled_by(policy, usual(1, full, equal))
        written, flat = write_down(policy, episodes), Flat.of(episodes)
        loss = written.policy_loss(advantages_of(episodes))
        loss = loss + naive_methods.entropy_bonus(written.entropy, flat.episode, flat.turn, 0.3, mode)
        ours = one_update(policy, episodes, [bonus(mode=mode)])
        assert_same_gradient(ours.gradient, written.gradient(loss))
        assert ours.metrics["loss/total"] == pytest.approx(float(loss.detach()), abs=1e-5)
        assert ours.metrics["loss/total"] == pytest.approx(
            ours.metrics["loss/policy"] + ours.metrics["loss/entropy_bonus"], abs=1e-6
        )


def test_it_pushes_entropy_up() -> None:
    policy = sharp_policy()
    episodes = sampled_by(policy, usual(2, equal=True))
    before = np.mean(Flat.of(episodes).entropy)
    step = one_update(policy, episodes, [bonus()]).gradient
    with torch.no_grad():
        torch.nn.utils.vector_to_parameters(
            torch.nn.utils.parameters_to_vector(policy.module.parameters()) - 1e-2 * step / step.norm(),
            policy.module.parameters(),
        )
    assert np.mean(Flat.of(sampled_by(policy, episodes)).entropy) > before


def test_packing_accumulation_and_order_do_not_change_the_gradient() -> None:
    check_packing(bonus, 3, equal=True)
    check_packing(bonus, 3)
    check_order(bonus, 4)


def test_coefficient_zero_equals_the_baseline(model: Path, baseline: Path, tmp_path: Path) -> None:
    check_zero(bonus(0.0), "loss/entropy_bonus")
    changes = ("methods=['entropy_bonus']", "method.entropy_bonus.coefficient=0")
    assert_same_run(play_run(model, tmp_path / "zero", *changes), baseline)
    changes = ("methods=['entropy_bonus']", "method.entropy_bonus.coefficient=0.1")
    with pytest.raises(AssertionError):
        assert_same_run(play_run(model, tmp_path / "more", *changes), baseline, "loss/entropy_bonus")


def test_unusual_episodes() -> None:
    # Equal rewards, a group of one, and responses without a token, which count neither as a turn nor as an episode.
    policy = sharp_policy()
    alone = one_update(policy, sampled_by(policy, ragged([[[2, 3]]], 5)), [bonus()])
    assert alone.metrics["loss/policy"] == 0
    assert float(alone.gradient.norm()) > 0
    with_empty = sampled_by(policy, ragged([[[2, 0, 1], [0], []], [[3], [2]]], 6, full=False, equal=True))
    without = [
        replace(e, turns=tuple(turn for turn in e.turns if len(turn.response_ids)))
        for e in with_empty
        if any(len(turn.response_ids) for turn in e.turns)
    ]
    first, second = one_update(policy, with_empty, [bonus()]), one_update(policy, without, [bonus()])
    assert torch.equal(first.gradient, second.gradient)
    assert loss_of(bonus(), ragged([[[0], []]], 7), np.zeros(0, dtype=np.float32)) == 0


def test_the_entropy_is_that_of_the_policy_as_it_is_now() -> None:
    policy, other = sharp_policy(), sharp_policy(1)
    episodes = sampled_by(other, usual(8))
    was, now_is = (np.mean(Flat.of(sampled_by(p, episodes)).entropy) for p in (other, policy))
    assert abs(was - now_is) > 0.01
    reported = one_update(policy, episodes, [bonus(mode="token")]).metrics["loss/entropy_bonus"]
    assert reported == pytest.approx(-0.3 * now_is, rel=1e-5)
