"""AEM: weights within a group, and the responses that its Analysis A leaves out."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from isentrope.core.types import Episode, Shaped
from isentrope.learning.tokens import flatten
from isentrope.methods.aem import Aem, AemOptions, response_entropies, response_weights
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
from tests.methods.runs import assert_same_run, play_run, steps_of
from tests.reference import naive_methods

STRENGTHS = st.floats(0, 20)
LEVELS = st.lists(st.integers(0, 1000).map(lambda n: n / 100), min_size=1, max_size=8)  # entropies of one group


def aem(strength: float = 1.0, leave_out: str = "none") -> Aem:
    return Aem(AemOptions(strength=strength, leave_out=leave_out))


def weights_of(levels: list[float], strength: float = 1.0) -> np.ndarray:
    return response_weights(np.array(levels), np.zeros(len(levels), dtype=np.int64), strength)


def token_weights(episodes: list[Episode], strength: float) -> list[float]:
    flat = Flat.of(episodes)
    return naive_methods.aem_weights(flat.entropy, flat.turn, flat.group, strength)


def times(weights: list[float], advantages: list[float]) -> list[float]:
    return [weight * advantage for weight, advantage in zip(weights, advantages, strict=True)]


@settings(max_examples=60)
@given(EPISODES, STRENGTHS, st.integers(0, 99))
def test_equals_the_naive_reference(episodes: list[Episode], strength: float, seed: int) -> None:
    advantages = some_advantages(episodes, seed)
    theirs = times(token_weights(episodes, strength), advantages)
    assert shape(aem(strength), episodes, advantages) == pytest.approx(theirs, rel=1e-4, abs=1e-5)


@settings(max_examples=60)
@given(EPISODES, STRENGTHS, st.integers(0, 99), st.sampled_from(("falling", "rising")))
def test_left_out_are_exactly_the_stated_responses(
    episodes: list[Episode], strength: float, seed: int, leave_out: str
) -> None:
    advantages, weights = some_advantages(episodes, seed), token_weights(episodes, strength)
    assume(all(w == 1 or abs(w - 1) > 1e-9 for w in weights))  # nor a weight that rounding decides about
    method = aem(strength, leave_out)
    theirs = naive_methods.aem_left(advantages, weights, leave_out)
    assert shape(method, episodes, advantages) == theirs
    if advantages and strength:
        gone = sum(ours != before for ours, before in zip(theirs, advantages, strict=True))
        assert seen(method)["aem/left_out"] == pytest.approx(gone / len(advantages))


def test_by_hand() -> None:
    # One group, three responses with mean entropies (0.5 + 1.5)/2 = 1, 2 and 3: ĥ = 0, 1/2, 1. With λ = 2 ln 2 the raw
    # weights are 1, 1/2, 1/4, their mean 7/12, so w = 12/7, 6/7, 3/7. Another group has one response: w = 1.
    entropy_N = np.array([0.5, 1.5, 2, 3, 7], dtype=np.float32)
    episodes = with_numbers(ragged([[[2, 1], [1]], [[1]]], 0), entropy_N, entropy_N)
    method = aem(2 * math.log(2))
    assert shape(method, episodes, [1, 1, -1, 2, -3]) == pytest.approx([12 / 7, 12 / 7, -6 / 7, 6 / 7, -3])
    assert seen(method) == pytest.approx({"aem/weight_min": 3 / 7, "aem/weight_max": 12 / 7})
    # w > 1 with A > 0 and w < 1 with A < 0 let the entropy fall; the others let it rise; w = 1 is neither.
    assert shape(aem(2, "falling"), episodes, [1, 1, -1, 2, -3]) == [0, 0, 0, 2, -3]
    assert shape(aem(2, "rising"), episodes, [1, 1, -1, 2, -3]) == [1, 1, -1, 0, -3]


@given(LEVELS, STRENGTHS)
def test_weights_have_mean_one_and_fall_with_the_entropy(levels: list[float], strength: float) -> None:
    weights = weights_of(levels, strength)
    assert weights.mean() == pytest.approx(1)
    order = np.argsort(levels)
    for a, b in pairwise(order):
        if levels[a] == levels[b]:
            assert weights[a] == weights[b]
        else:
            assert weights[a] >= weights[b]
            assert weights[a] > weights[b] or strength < 1e-3 or weights[a] < 1e-6


@given(LEVELS, STRENGTHS, st.floats(-5, 5), st.floats(0.1, 10))
def test_a_constant_added_to_all_entropies_or_another_unit_changes_nothing(
    levels: list[float], strength: float, constant: float, scale: float
) -> None:
    before = weights_of(levels, strength)
    assert weights_of([h + constant for h in levels], strength) == pytest.approx(before, rel=1e-6)
    assert weights_of([h * scale for h in levels], strength) == pytest.approx(before, rel=1e-6)


@given(LEVELS, st.floats(0, 10), st.floats(0.1, 10))
def test_larger_strength_is_sharper(levels: list[float], strength: float, more: float) -> None:
    assume(len(set(levels)) > 1)
    soft, sharp = weights_of(levels, strength), weights_of(levels, strength + more)
    assert sharp.max() / sharp.min() > soft.max() / soft.min()
    assert sharp.max() > soft.max()
    assert sharp.min() < soft.min()


def test_limits_of_the_strength() -> None:
    assert weights_of([1, 2, 3], 0).tolist() == [1, 1, 1]
    assert weights_of([1, 2, 3], 1e6).tolist() == [3, 0, 0]  # one response has it all, and nothing overflows


def test_a_spread_under_a_millionth_is_none() -> None:
    assert weights_of([2.0, 2.0 + 0.9e-6, 2.0 + 0.3e-6]).tolist() == [1, 1, 1]
    assert weights_of([2.0, 2.0 + 1.1e-6])[0] > 1
    assert weights_of([5.0]).tolist() == [1]
    entropy_N = np.full(6, 1.25, dtype=np.float32)
    episodes = with_numbers(ragged([[[2, 1], [3]]], 0), entropy_N, entropy_N)
    advantages = some_advantages(episodes, 1)
    assert shape(aem(), episodes, advantages) == advantages  # exactly


@settings(max_examples=30)
@given(EPISODES, st.integers(0, 99))
def test_groups_never_mix(episodes: list[Episode], seed: int) -> None:
    # A group shaped alone gets what it gets in company.
    advantages = some_advantages(episodes, seed)
    together, groups = shape(aem(), episodes, advantages), Flat.of(episodes).group
    for group in set(groups):
        members = [i for i, other in enumerate(groups) if other == group]
        alone = shape(aem(), [e for e in episodes if e.group == group], [advantages[i] for i in members])
        assert alone == [together[i] for i in members]


@settings(max_examples=30)
@given(EPISODES, st.integers(0, 99), st.sampled_from(("none", "falling", "rising")))
def test_order_and_other_tokens_change_nothing(episodes: list[Episode], seed: int, leave_out: str) -> None:
    advantages = some_advantages(episodes, seed)
    before = shape(aem(1.0, leave_out), episodes, advantages)
    assert shape(aem(1.0, leave_out), other_prompts(episodes, seed), advantages) == before
    moved, places = shuffled(episodes, seed)
    after = shape(aem(1.0, leave_out), moved, [advantages[i] for i in places])
    assert after == pytest.approx([before[i] for i in places], rel=1e-6)


@settings(max_examples=30)
@given(EPISODES)
def test_a_response_without_a_token_is_none(episodes: list[Episode]) -> None:
    # It has entropy 0 in the table, but takes no part in the minimum, the maximum or the mean.
    tokens = flatten(episodes)[1]
    entropy_U = response_entropies(tokens)
    assert len(entropy_U) == len(tokens.episode_U)
    spoken = set(tokens.turn_N.tolist())
    assert all(entropy_U[u] == 0 for u in range(len(entropy_U)) if u not in spoken)
    flat, weights = Flat.of(episodes), shape(aem(), episodes, [1.0] * len(tokens.turn_N))
    for group in set(flat.group):
        of_turn = {t: w for t, w, g in zip(flat.turn, weights, flat.group, strict=True) if g == group}
        assert np.mean(list(of_turn.values())) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("leave_out", ["none", "falling", "rising"])
def test_the_gradient_is_that_of_the_weighted_advantages(full: bool, leave_out: str) -> None:
    policy = sharp_policy()
    episodes = sampled_by(policy, usual(1, full))
    written, plain, weights = write_down(policy, episodes), advantages_of(episodes), token_weights(episodes, 1.5)
    shaped = times(weights, plain) if leave_out == "none" else naive_methods.aem_left(plain, weights, leave_out)
    ours = one_update(policy, episodes, [aem(1.5, leave_out)])
    assert_same_gradient(ours.gradient, written.gradient(written.policy_loss(shaped)))
    assert float((ours.gradient - one_update(policy, episodes).gradient).norm() / ours.gradient.norm()) > 0.05


def test_the_entropy_is_that_of_the_policy_that_sampled() -> None:
    episodes = sampled_by(sharp_policy(1), usual(2))
    written = write_down(sharp_policy(), episodes)
    shaped = times(token_weights(episodes, 1.0), advantages_of(episodes))
    ours = one_update(sharp_policy(), episodes, [aem()])
    assert_same_gradient(ours.gradient, written.gradient(written.policy_loss(shaped)))


def test_it_adds_no_loss_of_its_own_and_leaves_its_input_alone() -> None:
    episodes = usual(3)
    assert loss_of(aem(), episodes, np.zeros(999, dtype=np.float32)) == 0
    for leave_out in ("none", "falling"):
        advantage_N = np.array(some_advantages(episodes), dtype=np.float32)
        before = advantage_N.copy()
        shaped = aem(1.0, leave_out).shape(1, flatten(episodes)[1], advantage_N)
        assert isinstance(shaped, Shaped)
        assert shaped.advantage_N.dtype == np.float32
        assert np.array_equal(advantage_N, before)


def test_packing_accumulation_and_order_do_not_change_the_gradient() -> None:
    check_packing(aem, 4)
    check_packing(lambda: aem(2.0, "falling"), 4)
    check_order(aem, 5)


def test_strength_zero_equals_the_baseline(model: Path, baseline: Path, tmp_path: Path) -> None:
    check_zero(aem(0.0), "aem/")
    check_zero(aem(0.0, "falling"), "aem/")  # all weights are 1, so nothing is left out
    assert_same_run(play_run(model, tmp_path / "zero", "methods=['aem']", "method.aem.strength=0"), baseline)
    more = play_run(model, tmp_path / "more", "methods=['aem']")
    with pytest.raises(AssertionError):
        assert_same_run(more, baseline, "aem/")
    assert all(step["aem/weight_min"] < 1 < step["aem/weight_max"] < math.e for step in steps_of(more))


def test_unusual_episodes() -> None:
    policy = sharp_policy()
    for episodes in (usual(6, equal=True), ragged([[[2, 0, 3]]], 6)):  # equal rewards, a group of one
        assert float(one_update(policy, sampled_by(policy, episodes), [aem()]).gradient.norm()) == 0
    for episodes in (ragged([[[0], []]], 7), []):
        method = aem()
        assert shape(method, episodes, []) == []
        assert seen(method) == {}
