"""SEAL: a classifier's loss whose gradient reaches the policy."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from isentrope.config.schema import RunConfig, RunSettings
from isentrope.core.types import Episode, TokenBatch
from isentrope.learning.learner import Learner
from isentrope.methods.seal import Seal, SealOptions, make_classifier
from tests.methods.helpers import (
    EPISODES,
    PACKINGS,
    SETTINGS,
    Flat,
    Written,
    advantages_of,
    assert_same_gradient,
    batches,
    check_order,
    check_packing,
    check_zero,
    made_up_stats,
    one_update,
    ragged,
    sampled_by,
    shape,
    sharp_policy,
    shuffled,
    some_advantages,
    usual,
    write_down,
)
from tests.methods.runs import assert_same_run, play_run
from tests.reference import naive_methods

GROUPS, STATES = ("all", "mixed"), ("token", "before")


def seal(alpha: float = 0.5, seed: int = 3, **options: Any) -> Seal:
    return Seal(SealOptions(alpha=alpha, width=5, **options), seed=seed)


def classifier_weights(size: int, seed: int = 3, kind: torch.dtype = torch.float64) -> list[Tensor]:
    """W1, b1, W2, b2 of a classifier that has not learnt anything yet."""
    return [p.detach().to(kind).requires_grad_() for p in make_classifier(size, 5, seed).parameters()]


def naive_loss(states: list[Tensor], flat: Flat, groups: str, weights: list[Tensor]) -> Tensor:
    logits = [naive_methods.seal_logit(state, weights) for state in states]
    counted = naive_methods.mixed_tokens(flat.group, flat.success) if groups == "mixed" else [True] * len(flat)
    return naive_methods.seal_loss(logits, flat.success, counted)


def written_loss(written: Written, state: str, groups: str, weights: list[Tensor]) -> Tensor:
    return naive_loss(written.state if state == "token" else written.before, written.flat, groups, weights)


def made_up_states(batch: TokenBatch, seed: int, size: int = 3) -> Tensor:
    """A state for every column: at the n-th response token one that depends on n alone, elsewhere noise."""
    rng = np.random.default_rng(seed)
    states = torch.from_numpy(rng.normal(size=(*batch.ids_BT.shape, size)).astype(np.float32))
    for row, column, number in zip(batch.row_N.tolist(), batch.col_N.tolist(), batch.number_N.tolist(), strict=True):
        states[row, column] = torch.from_numpy(np.random.default_rng(number).normal(size=size))
    return states


# The value


@settings(max_examples=40)
@given(EPISODES, st.sampled_from(GROUPS), st.sampled_from(({}, *PACKINGS)), st.integers(0, 9))
def test_equals_the_naive_reference(episodes: list[Episode], groups: str, packing: dict[str, int], seed: int) -> None:
    method, flat, total, bce = seal(groups=groups), Flat.of(episodes), 0.0, 0.0
    assert shape(method, episodes, some_advantages(episodes)) == some_advantages(episodes)
    for batch in batches(episodes, **packing):
        states = made_up_states(batch, seed)
        term = method.loss(batch, made_up_stats(batch, np.zeros(len(flat), dtype=np.float32), states))
        if term is None:  # no token of the mini-batch counts
            assert groups == "mixed"
            continue
        total, bce = total + float(term.loss.detach()), bce + term.metrics["seal/bce"]
        assert term.metrics["loss/seal"] == pytest.approx(float(term.loss.detach()))
    if len(flat):
        own = [torch.from_numpy(np.random.default_rng(n).normal(size=3)) for n in range(len(flat))]
        theirs = float(naive_loss(own, flat, groups, classifier_weights(3)).detach())
        assert total == pytest.approx(0.5 * theirs, abs=1e-5)
        assert bce == pytest.approx(theirs, abs=1e-5)


def test_by_hand() -> None:
    # A classifier that answers 0 to everything says p = 1/2: each token costs ln 2, whatever its episode's outcome.
    # With the last bias at ln 3, p = 3/4: won tokens cost ln(4/3), lost ones ln 4. Three won tokens and one lost one:
    # (3 · 0.28768 + 1.38629)/4 = 0.56233, times α = 0.5 is 0.28117; the classifier says "won": 3 of 4 are right.
    episodes = [replace(e, success=m < 1) for m, e in enumerate(ragged([[[2, 1], [1]]], 0))]
    method = seal()
    [batch] = batches(episodes)
    stats = made_up_stats(batch, np.zeros(4, dtype=np.float32))
    shape(method, episodes, [0.0] * 4)
    method.loss(batch, stats)
    assert method.classifier is not None
    for parameter, value in zip(method.classifier.parameters(), (0, 0, 0, 0), strict=True):
        torch.nn.init.constant_(parameter, value)
    term = method.loss(batch, stats)
    assert term is not None
    assert term.metrics["seal/bce"] == pytest.approx(math.log(2))
    torch.nn.init.constant_(method.classifier[2].bias, math.log(3))  # type: ignore[arg-type]
    term = method.loss(batch, stats)
    assert term is not None
    assert float(term.loss.detach()) == pytest.approx(0.28117, abs=1e-5)
    assert term.metrics["seal/accuracy"] == pytest.approx(0.75)


def test_mixed_leaves_out_groups_with_one_outcome() -> None:
    # Group 1 has both outcomes, group 3 only wins, group 5 one episode: 5 of the 9 tokens count, and the mean is over
    # them.
    episodes = ragged([[[2], [3]], [[1], [2]], [[1]]], 0)
    episodes = [replace(e, success=won) for e, won in zip(episodes, (True, False, True, True, False), strict=True)]
    assert naive_methods.mixed_tokens(Flat.of(episodes).group, Flat.of(episodes).success) == [True] * 5 + [False] * 4
    policy = sharp_policy()
    episodes = sampled_by(policy, [replace(e, turns=(replace(e.turns[0], reward=0.0),)) for e in episodes])
    part = one_update(policy, episodes, [seal(groups="mixed")])
    alone = one_update(policy, episodes[:2], [seal(groups="all")])
    assert_same_gradient(part.gradient, alone.gradient, 1e-5)
    for key in ("seal/bce", "seal/accuracy", "loss/seal"):
        assert part.metrics[key] == pytest.approx(alone.metrics[key], abs=1e-6)


def test_mixed_is_a_mean_in_every_mini_batch() -> None:
    # Eight tokens of a group that only wins, two of a mixed group, each group in a mini-batch of its own.
    episodes = ragged([[[4], [4]], [[1], [1]]], 0)
    episodes = [replace(e, success=won) for e, won in zip(episodes, (True, True, True, False), strict=True)]
    policy = sharp_policy()
    learn = replace(SETTINGS, lr=0.0, mini_batches=2)
    learner = Learner(policy, None, RunConfig(run=RunSettings(steps=9), learn=learn), [seal(groups="mixed")])
    alone = one_update(policy, episodes[2:], [seal()]).metrics["seal/bce"]
    assert learner.learn(1, episodes).metrics["seal/bce"] <= alone + 1e-6


def test_the_label_may_be_the_sign_of_the_advantage() -> None:
    # As in the authors' code: 1 where the advantage is not negative, whatever became of the episode.
    policy = sharp_policy()
    for equal in (True, False):
        episodes = sampled_by(policy, usual(17, equal=equal))
        written, advantages = write_down(policy, episodes), advantages_of(episodes)
        labels = [1.0 if advantage >= 0 else 0.0 for advantage in advantages]
        assert labels != written.flat.success
        logits = [naive_methods.seal_logit(state, classifier_weights(32)) for state in written.state]
        loss = written.policy_loss(advantages)
        loss = loss + 0.5 * naive_methods.seal_loss(logits, labels, [True] * len(labels))
        ours = one_update(policy, episodes, [seal(label="advantage")])
        assert_same_gradient(ours.gradient, written.gradient(loss))
        right = [(float(logit.detach()) > 0) == (label > 0) for logit, label in zip(logits, labels, strict=True)]
        assert ours.metrics["seal/accuracy"] == pytest.approx(np.mean(right), abs=1e-5)


def test_states_of_other_tokens_change_nothing_and_get_no_gradient() -> None:
    episodes = usual(1)
    [batch] = batches(episodes, row_tokens=60, micro_tokens=10**6)
    shape(seal(), episodes, some_advantages(episodes))
    for state in STATES:
        values: list[float] = []
        for seed in range(2):
            states = torch.randn(*batch.ids_BT.shape, 3, generator=torch.Generator().manual_seed(seed))
            read = torch.zeros(batch.ids_BT.shape, dtype=torch.bool)
            read[batch.row_N, batch.col_N - int(state == "before")] = True
            states[read] = torch.randn(int(read.sum()), 3, generator=torch.Generator().manual_seed(7))
            states.requires_grad_()
            term = seal(state=state).loss(batch, made_up_stats(batch, np.zeros(99, dtype=np.float32), states))
            assert term is not None
            term.loss.backward()
            assert states.grad is not None
            assert torch.all(states.grad[~read] == 0)
            assert torch.all(states.grad[read].abs().sum(-1) > 0)
            values.append(float(term.loss.detach()))
        assert values[0] == values[1]


# The gradient


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("groups", GROUPS)
def test_the_policys_gradient_is_that_of_the_equation(full: bool, state: str, groups: str) -> None:
    policy = sharp_policy()
    for equal in (True, False):  # equal rewards: the classifier's loss is the whole loss
        episodes = sampled_by(policy, usual(2, full, equal))
        written = write_down(policy, episodes)
        loss = written.policy_loss(advantages_of(episodes))
        loss = loss + 0.5 * written_loss(written, state, groups, classifier_weights(32))
        ours = one_update(policy, episodes, [seal(state=state, groups=groups)])
        assert_same_gradient(ours.gradient, written.gradient(loss))
        assert ours.metrics["loss/total"] == pytest.approx(float(loss.detach()), abs=1e-5)


def test_the_gradient_reaches_every_layer_of_the_policy() -> None:
    policy = sharp_policy()
    episodes = sampled_by(policy, usual(3, equal=True))
    gradient = one_update(policy, episodes, [seal()]).gradient
    sizes = [parameter.numel() for parameter in policy.module.parameters()]
    names = [name for name, _ in policy.module.named_parameters()]
    for name, part in zip(names, gradient.split(sizes), strict=True):
        assert float(part.norm()) > 0, name


def test_the_two_states_are_not_the_same() -> None:
    policy = sharp_policy()
    episodes = sampled_by(policy, usual(4, equal=True))
    token, before = (one_update(policy, episodes, [seal(state=state)]).gradient for state in STATES)
    assert float((token - before).norm() / token.norm()) > 0.1


# Properties


def test_packing_accumulation_and_order_do_not_change_the_gradient() -> None:
    check_packing(seal, 11, equal=True)
    check_packing(lambda: seal(groups="mixed", state="before"), 12)
    check_order(seal, 13)
    check_order(lambda: seal(groups="mixed"), 14, equal=True)


@settings(max_examples=25)
@given(EPISODES, st.integers(0, 99))
def test_which_tokens_count_moves_with_the_episodes(episodes: list[Episode], seed: int) -> None:
    first, second = seal(groups="mixed"), seal(groups="mixed")
    shape(first, episodes, some_advantages(episodes))
    moved, places = shuffled(episodes, seed)
    shape(second, moved, some_advantages(moved))
    assert second._counts_N.tolist() == first._counts_N[places].tolist()


def test_alpha_zero_equals_the_baseline(model: Path, baseline: Path, tmp_path: Path) -> None:
    check_zero(seal(alpha=0.0), "seal/")
    assert_same_run(play_run(model, tmp_path / "zero", "methods=['seal']", "method.seal.alpha=0"), baseline)
    more = play_run(model, tmp_path / "more", "methods=['seal']")
    with pytest.raises(AssertionError):
        assert_same_run(more, baseline, "seal/", "loss/seal")


def test_unusual_episodes() -> None:
    # A group of one counts, unless only mixed groups do; equal rewards leave its loss alone; no tokens, no loss.
    policy = sharp_policy()
    alone = sampled_by(policy, ragged([[[2, 0, 3]]], 15))
    assert float(one_update(policy, alone, [seal()]).gradient.norm()) > 0
    assert float(one_update(policy, alone, [seal(groups="mixed")]).gradient.norm()) == 0
    method = seal(groups="mixed")
    assert shape(method, ragged([[[0], []]], 15), []) == []
    assert list(batches(ragged([[[0], []]], 15))) == []
