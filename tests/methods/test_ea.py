"""EA: advantage for unsure tokens, bounded, and never a change of sign."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isentrope.core.types import Episode
from isentrope.learning import hooks
from isentrope.learning.tokens import flatten
from isentrope.methods.ea import Ea, EaOptions
from tests.methods.helpers import (
    EPISODES,
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
    seen,
    shape,
    sharp_policy,
    shuffled,
    some_advantages,
    usual,
    with_numbers,
    write_down,
)
from tests.methods.runs import assert_same_run, play_run
from tests.reference import naive_methods


def ea(alpha: float = 0.4, kappa: float = 2.0) -> Ea:
    return Ea(EaOptions(alpha=alpha, kappa=kappa))


@settings(max_examples=60)
@given(EPISODES, st.floats(0, 3), st.floats(0.1, 5), st.integers(0, 99))
def test_equals_the_naive_reference(episodes: list[Episode], alpha: float, kappa: float, seed: int) -> None:
    advantages = some_advantages(episodes, seed)
    theirs = naive_methods.ea(advantages, Flat.of(episodes).entropy, alpha, kappa)
    assert shape(ea(alpha, kappa), episodes, advantages) == pytest.approx(theirs, rel=1e-5, abs=1e-6)


def test_by_hand() -> None:
    # α = 0.4, κ = 2. H = 1, A = 2: min(0.4, 1) = 0.4, so 2.4. H = 5, A = 2: min(2, 1) = 1, so 3. H = 5, A = -2: -1.
    # H = 1, A = -2: -1.6. A = 0 stays 0: there is nothing to be a share of.
    entropy_N = np.array([1, 5, 5, 1, 5], dtype=np.float32)
    episodes, method = with_numbers(ragged([[[5]]], 0), entropy_N, entropy_N), ea()
    assert shape(method, episodes, [2, 2, -2, -2, 0]) == pytest.approx([2.4, 3, -1, -1.6, 0])
    assert seen(method) == pytest.approx({"ea/added": (0.4 + 1 + 1 + 0.4 + 0) / 5})


@settings(max_examples=60)
@given(EPISODES, st.floats(0, 100), st.floats(1, 5, exclude_min=True), st.integers(0, 99))
def test_it_never_changes_a_sign_and_never_takes_anything_off(
    episodes: list[Episode], alpha: float, kappa: float, seed: int
) -> None:
    before = np.array(some_advantages(episodes, seed))
    after = np.array(shape(ea(alpha, kappa), episodes, before.tolist()))
    assert np.all(after * before >= 0)
    assert np.all(after >= before)
    assert np.all((after == 0) >= (before == 0))
    slack = 1e-6 * np.abs(before)
    assert np.all(after - before <= np.abs(before) / kappa + slack)


def test_with_kappa_below_one_the_sign_may_change() -> None:
    # Which is why κ > 1: H = 5, A = -1, κ = 0.5: min(2, 2) = 2, so +1.
    entropy_N = np.array([5], dtype=np.float32)
    assert shape(ea(kappa=0.5), with_numbers(ragged([[[1]]], 0), entropy_N, entropy_N), [-1]) == pytest.approx([1])


@settings(max_examples=25)
@given(EPISODES, st.integers(0, 99))
def test_order_and_other_tokens_change_nothing(episodes: list[Episode], seed: int) -> None:
    advantages = some_advantages(episodes, seed)
    before = shape(ea(), episodes, advantages)
    assert shape(ea(), other_prompts(episodes, seed), advantages) == before
    moved, places = shuffled(episodes, seed)
    assert shape(ea(), moved, [advantages[i] for i in places]) == [before[i] for i in places]


@pytest.mark.parametrize("full", [True, False])
def test_the_gradient_is_that_of_the_shaped_advantages_and_none_goes_through_the_entropy(full: bool) -> None:
    policy = sharp_policy()
    episodes = sampled_by(policy, usual(1, full))
    written = write_down(policy, episodes)
    plain = advantages_of(episodes)
    shaped = naive_methods.ea(plain, Flat.of(episodes).entropy, 0.4, 2.0)
    ours = one_update(policy, episodes, [ea()])
    assert_same_gradient(ours.gradient, written.gradient(written.policy_loss(shaped)))
    assert float((ours.gradient - one_update(policy, episodes).gradient).norm() / ours.gradient.norm()) > 0.05
    # With gradient through the entropy it would be another one.
    through = [
        torch.minimum(0.4 * entropy, torch.tensor(abs(a) / 2.0)) + a
        for a, entropy in zip(plain, written.entropy, strict=True)
    ]
    other = written.gradient(written.policy_loss(through))  # type: ignore[arg-type]
    assert float((ours.gradient - other).norm() / ours.gradient.norm()) > 0.05
    assert ours.metrics["advantage/mean"] == pytest.approx(np.mean(plain), abs=1e-6)  # recorded before methods


def test_it_adds_no_loss_of_its_own_and_keeps_the_kind_of_number() -> None:
    episodes = usual(2)
    assert loss_of(ea(), episodes, np.zeros(999, dtype=np.float32)) == 0
    advantage_N = np.array(some_advantages(episodes), dtype=np.float32)
    before = advantage_N.copy()
    shaped_N, _ = hooks.shaped([ea()], 1, flatten(episodes)[1], advantage_N)
    assert shaped_N.dtype == np.float32
    assert np.array_equal(advantage_N, before)  # what it was given is left as it was


def test_the_entropy_is_that_of_the_policy_that_sampled() -> None:
    # So the advantages stay the same over all updates of a step, whatever the policy has become.
    episodes = sampled_by(sharp_policy(1), usual(3))
    advantages = advantages_of(episodes)
    shaped = naive_methods.ea(advantages, Flat.of(episodes).entropy, 0.4, 2.0)
    written = write_down(sharp_policy(), episodes)
    ours = one_update(sharp_policy(), episodes, [ea()])
    assert_same_gradient(ours.gradient, written.gradient(written.policy_loss(shaped)))


def test_packing_accumulation_and_order_do_not_change_the_gradient() -> None:
    check_packing(ea, 4)
    check_order(ea, 5)


def test_alpha_zero_equals_the_baseline(model: Path, baseline: Path, tmp_path: Path) -> None:
    check_zero(ea(alpha=0.0), "ea/")
    assert_same_run(play_run(model, tmp_path / "zero", "methods=['ea']", "method.ea.alpha=0"), baseline)
    with pytest.raises(AssertionError):
        assert_same_run(play_run(model, tmp_path / "more", "methods=['ea']"), baseline, "ea/")


def test_unusual_episodes() -> None:
    # Equal rewards and a group of one: all advantages are 0 and stay 0. No tokens: nothing to record.
    policy = sharp_policy()
    for episodes in (usual(6, equal=True), ragged([[[2, 0, 3]]], 6)):
        assert float(one_update(policy, sampled_by(policy, episodes), [ea()]).gradient.norm()) == 0
    method = ea()
    assert shape(method, ragged([[[0], []]], 7), []) == []
    assert seen(method) == {}
