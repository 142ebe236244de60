"""EPO: the bonus, the penalty, its schedule, its history, and the ablations."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isentrope.core.types import Episode
from isentrope.methods.entropy_bonus import EntropyBonus, EntropyBonusOptions
from isentrope.methods.epo import Epo, EpoOptions, beta_schedule, penalty
from isentrope.runs.checkpoints import join_tensors, split_tensors
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
    seen,
    shape,
    sharp_policy,
    shuffled,
    some_advantages,
    usual,
    with_numbers,
    write_down,
)
from tests.methods.runs import assert_same_run, check_resumed, play_run, records, steps_of
from tests.reference import naive_methods

BAND = {"coefficient": 0.3, "alpha": 0.7, "kappa_low": 0.6, "kappa_high": 1.3}
VARIANTS = ("full", "base", "no_dw", "decay")


def epo(*history: float, steps: int = 4, **options: float | str) -> Epo:
    """EPO with a narrow band, after steps with these mean entropies."""
    method = Epo(EpoOptions(**(BAND | options)), steps)  # type: ignore[arg-type]
    method.history = list(history)
    return method


def entropies(episodes: list[Episode]) -> np.ndarray:
    return np.array(Flat.of(episodes).entropy, dtype=np.float32)


def naive_loss(flat: Flat, now: list[float], history: float | None, method: Epo, step: int) -> float:
    """The loss of a step by its definition, in terms of the options alone."""
    o = method.options
    decayed = o.coefficient * (1 - (step - 1) / method.steps) if o.variant == "decay" else o.coefficient
    beta = naive_methods.epo_beta(step - 1, method.steps, o.beta_start, o.beta_end, o.decay)
    return naive_methods.epo_loss(
        now,
        flat.episode,
        flat.turn,
        history if o.variant in ("full", "no_dw") else None,
        coefficient=decayed,
        beta=1.0 if o.variant == "no_dw" else beta,
        alpha=o.alpha,
        low=o.kappa_low,
        high=o.kappa_high,
        indicator=o.penalty == "indicator",
    )


@settings(max_examples=60)
@given(
    st.lists(EPISODES, min_size=1, max_size=4),
    st.sampled_from(VARIANTS),
    st.sampled_from(("hinge", "indicator")),
    st.sampled_from(({}, *PACKINGS)),
)
def test_equals_the_naive_reference_over_several_steps(
    steps: list[list[Episode]], variant: str, kind: str, packing: dict[str, int]
) -> None:
    method, earlier = epo(variant=variant, penalty=kind, steps=len(steps)), []
    for step, episodes in enumerate(steps, start=1):
        flat, advantages = Flat.of(episodes), some_advantages(episodes)
        assert shape(method, episodes, advantages, step) == advantages
        now = (entropies(episodes) * np.float32(1.1)).astype(np.float32)  # the policy has moved since it sampled
        history = naive_methods.epo_history(earlier)
        ours = loss_of(method, episodes, now, **packing)
        assert ours == pytest.approx(naive_loss(flat, now.tolist(), history, method, step), abs=1e-5)
        earlier.append(flat.entropy)


def test_by_hand() -> None:
    # Entropies 0.2, 1 and 3 in one response; H̄ = 1, band [0.5, 2], α = 0.1: penalties 0.03, 0, 0.1, mean 0.13/3.
    # Bonus 4.2/3. At step 1 of 2, β = 2: L = -0.5 (1.4 - 2 · 0.0433) = -0.6567. As an indicator: penalties 0.1, 0, 0.1,
    # L = -0.5 (1.4 - 2 · 0.0667) = -0.6333. Without a history: -0.7.
    episodes, now = ragged([[[3]]], 0), np.array([0.2, 1, 3], dtype=np.float32)
    options = {"coefficient": 0.5, "alpha": 0.1, "kappa_low": 0.5, "kappa_high": 2.0, "steps": 2}
    for kind, expected in (("hinge", -0.6567), ("indicator", -0.6333)):
        method = epo(1.0, penalty=kind, **options)  # type: ignore[arg-type]
        shape(method, episodes, [1.0] * 3)
        assert loss_of(method, episodes, now) == pytest.approx(expected, abs=1e-4)
    method = epo(**options)  # type: ignore[arg-type]
    shape(method, episodes, [1.0] * 3)
    assert loss_of(method, episodes, now) == pytest.approx(-0.7)


def test_penalty_per_token_and_at_the_edges_of_the_band() -> None:
    # H̄ = 2, band [1, 4]: on the edges themselves there is no penalty.
    entropy_N = torch.tensor([0.5, 1.0, 2.0, 4.0, 4.5])
    assert penalty(entropy_N, 2.0, 0.1, 0.5, 2.0, False).tolist() == pytest.approx([0.05, 0, 0, 0, 0.05])
    assert penalty(entropy_N, 2.0, 0.1, 0.5, 2.0, True).tolist() == pytest.approx([0.1, 0, 0, 0, 0.1])


# The schedule


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5, 100])
def test_beta_at_its_ends_in_the_middle_and_past_its_end(steps: int) -> None:
    def beta(k: int, start: float = 2.0, end: float = 0.5) -> float:
        return beta_schedule(k, steps, start, end, 3.0)

    for k in range(steps + 3):
        assert beta(k) == pytest.approx(naive_methods.epo_beta(k, steps, 2.0, 0.5, 3.0), abs=1e-12)
    assert beta(0) == 2.0
    if steps > 1:
        assert beta(steps // 2) == pytest.approx(1 + math.exp(-3))
    assert beta(steps) == pytest.approx(1 - 0.5 * (1 - math.exp(-3)))
    assert beta(steps + 7) == beta(steps)


def test_beta_by_hand() -> None:
    # K = 3: the middle is 1. k = 0: 2. k = 1: 2 - (1 - e^-3) = 1.0498. k = 2: 1 - 0.5 (1 - e^-1.5) = 0.6116. K = 2:
    # middle 1, so both of its steps are in the first half. K = 1: its one step is the first.
    assert [round(beta_schedule(k, 3, 2.0, 0.5, 3.0), 4) for k in range(3)] == [2.0, 1.0498, 0.6116]
    assert [round(beta_schedule(k, 2, 2.0, 0.5, 3.0), 4) for k in range(2)] == [2.0, 1.0498]
    assert beta_schedule(0, 1, 2.0, 0.5, 3.0) == 2.0
    assert beta_schedule(5, 10, 2.0, 1.0, 0.0) == 2.0  # nothing decays


def test_beta_of_the_paper_falls_from_two_to_one() -> None:
    values = [beta_schedule(k, 150, 2.0, 1.0, 3.0) for k in range(150)]
    assert values == sorted(values, reverse=True)
    assert values[0] == 2
    assert values[-1] == 1


def test_a_step_uses_the_schedule_from_zero_on() -> None:
    for step, expected in ((1, 2.0), (2, 1.0498), (3, 0.6116), (9, 1 - 0.5 * (1 - math.exp(-3)))):
        method = epo(1.0, steps=3, beta_end=0.5)
        shape(method, usual(0), some_advantages(usual(0)), step)
        assert method.beta == pytest.approx(expected, abs=1e-4)
        assert seen(method)["epo/beta"] == method.beta


# The history


def test_the_first_step_has_no_penalty() -> None:
    method, episodes = epo(), usual(1)
    shape(method, episodes, some_advantages(episodes))
    assert method.reference is None
    assert set(seen(method)) == {"epo/coefficient"}
    bonus = EntropyBonus(EntropyBonusOptions(coefficient=0.3))
    assert loss_of(method, episodes, entropies(episodes)) == loss_of(bonus, episodes, entropies(episodes))


@given(st.lists(EPISODES, min_size=1, max_size=5))
@settings(max_examples=30)
def test_history_is_the_mean_over_earlier_steps_and_not_this_one(steps: list[list[Episode]]) -> None:
    method, means = epo(), []
    for step, episodes in enumerate(steps, start=1):
        shape(method, episodes, some_advantages(episodes), step)
        expected = sum(means) / len(means) if means else None
        assert method.reference == pytest.approx(expected) if means else method.reference is None
        own = Flat.of(episodes).entropy
        if own:  # a step without a token has no mean entropy, and leaves none behind
            means.append(sum(own) / len(own))
        assert method.history == pytest.approx(means)


def test_what_is_recorded() -> None:
    # H̄ = 1, band [0.6, 1.3]: of the entropies 0.5, 1, 2, 3 three lie outside.
    entropy_N = np.array([0.5, 1, 2, 3], dtype=np.float32)
    episodes = with_numbers(ragged([[[4]]], 0), entropy_N, entropy_N)
    method = epo(0.5, 1.5)
    shape(method, episodes, [0.0] * 4, 2)
    assert seen(method) == pytest.approx(
        {"epo/coefficient": 0.3, "epo/beta": 1 + math.exp(-1.5), "epo/history": 1.0, "epo/outside": 0.75}
    )
    assert method.history == [0.5, 1.5, 1.625]


def test_history_survives_a_checkpoint() -> None:
    method = epo(0.1, 1 / 3, 2e-17)
    tensors, tree = split_tensors(method.state_dict())
    other = epo()
    other.load_state_dict(join_tensors(json.loads(json.dumps(tree)), tensors))
    assert other.history == method.history
    method.history.append(9.0)  # the state was a copy
    assert len(other.history) == 3


def test_a_resumed_run_has_the_same_history(model: Path, tmp_path: Path) -> None:
    strong = ("methods=['epo']", "method.epo={coefficient=0.3, kappa_low=0.9, kappa_high=1.1, alpha=1.0}")
    whole = check_resumed(model, tmp_path, *strong)
    steps = steps_of(whole)
    assert "epo/history" not in steps[0]
    assert steps[1]["epo/history"] == pytest.approx(steps[0]["entropy/token"])
    assert steps[2]["epo/history"] == pytest.approx((steps[0]["entropy/token"] + steps[1]["entropy/token"]) / 2)
    assert steps[1]["epo/penalty"] > 0
    assert [step["epo/beta"] for step in steps[1:]] == pytest.approx([1 + math.exp(-3), 1.0])


# The gradient


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_gradient_is_that_of_the_equation(full: bool, variant: str) -> None:
    policy = sharp_policy()
    for equal in (True, False):  # equal rewards: EPO's term is the whole loss
        episodes = sampled_by(policy, usual(2, full, equal))
        method, written = epo(1.0, 2.0, variant=variant), write_down(policy, episodes)
        loss = written.policy_loss(advantages_of(episodes))
        loss = loss + naive_loss(written.flat, written.entropy, 1.5, method, 2)  # type: ignore[arg-type]
        ours = one_update(policy, episodes, [method], step=2)
        assert_same_gradient(ours.gradient, written.gradient(loss))
        assert ours.metrics["loss/total"] == pytest.approx(float(loss.detach()), abs=1e-5)


def test_the_hinge_moves_the_gradient_and_the_indicator_does_not() -> None:
    policy = sharp_policy()
    episodes = sampled_by(policy, usual(3))
    bonus = EntropyBonus(EntropyBonusOptions(coefficient=0.3))
    plain = one_update(policy, episodes, [bonus], step=2)
    hinge = one_update(policy, episodes, [epo(1.5)], step=2)
    indicator = one_update(policy, episodes, [epo(1.5, penalty="indicator")], step=2)
    assert float((hinge.gradient - plain.gradient).norm() / plain.gradient.norm()) > 0.05
    assert torch.equal(indicator.gradient, plain.gradient)
    assert indicator.metrics["loss/epo"] > plain.metrics["loss/entropy_bonus"] + 0.01
    assert indicator.metrics["epo/penalty"] > 0.05


def test_base_is_a_plain_bonus_at_every_step_and_decay_one_that_fades() -> None:
    policy = sharp_policy()
    episodes = sampled_by(policy, usual(4))
    for step in (1, 2, 4):
        plain = one_update(policy, episodes, [EntropyBonus(EntropyBonusOptions(coefficient=0.3))], step=step)
        base = one_update(policy, episodes, [epo(1.5, variant="base")], step=step)
        assert torch.equal(base.gradient, plain.gradient)
        assert "epo/penalty" not in base.metrics
        faded = EntropyBonus(EntropyBonusOptions(coefficient=0.3 * (1 - (step - 1) / 4)))
        decay = one_update(policy, episodes, [epo(1.5, variant="decay")], step=step)
        assert_same_gradient(decay.gradient, one_update(policy, episodes, [faded], step=step).gradient, 1e-6)
        assert decay.metrics["epo/coefficient"] == pytest.approx(0.3 * (5 - step) / 4)
    past = one_update(policy, episodes, [epo(1.5, variant="decay")], step=7)
    assert torch.equal(past.gradient, one_update(policy, episodes, step=7).gradient)


def test_without_dynamic_weight_beta_is_one() -> None:
    policy = sharp_policy()
    episodes = sampled_by(policy, usual(5))
    flat = one_update(policy, episodes, [epo(1.5, beta_start=1.0, beta_end=1.0)], step=2)
    no_dw = one_update(policy, episodes, [epo(1.5, variant="no_dw")], step=2)
    assert torch.equal(flat.gradient, no_dw.gradient)
    assert no_dw.metrics["epo/beta"] == 1


# Properties


@settings(max_examples=25)
@given(EPISODES, st.integers(0, 99))
def test_order_and_other_tokens_change_nothing(episodes: list[Episode], seed: int) -> None:
    moved, _ = shuffled(episodes, seed)
    outcomes: list[tuple[float, list[float]]] = []
    for these in (episodes, other_prompts(episodes, seed), moved):
        method = epo(1.0, 0.5)
        shape(method, these, some_advantages(these), 2)
        outcomes.append((loss_of(method, these, entropies(these)), method.history))
    for loss, history in outcomes[1:]:
        assert loss == pytest.approx(outcomes[0][0], abs=1e-6)
        assert history == pytest.approx(outcomes[0][1])


def test_packing_accumulation_and_order_do_not_change_the_gradient() -> None:
    check_packing(lambda: epo(1.5), 6, step=2, equal=True)
    check_packing(lambda: epo(1.5), 6, step=2)
    check_order(lambda: epo(1.5), 7, step=2)


def test_coefficient_zero_equals_the_baseline(model: Path, baseline: Path, tmp_path: Path) -> None:
    check_zero(epo(1.5, coefficient=0.0), "epo/")
    changes = ("methods=['epo']", "method.epo.coefficient=0")
    zero = play_run(model, tmp_path / "zero", *changes)
    assert_same_run(zero, baseline, "epo/")
    assert "epo/history" in records(zero)[-2]  # it watched all the same


def test_alpha_zero_is_a_plain_bonus() -> None:
    policy = sharp_policy()
    episodes = sampled_by(policy, usual(8))
    plain = one_update(policy, episodes, [EntropyBonus(EntropyBonusOptions(coefficient=0.3))])
    assert_same_gradient(one_update(policy, episodes, [epo(1.5, alpha=0.0)]).gradient, plain.gradient, 1e-6)


def test_unusual_episodes() -> None:
    # A group of one with equal rewards: no policy loss, the term is there. No tokens at all: no update, no history.
    policy = sharp_policy()
    alone = one_update(policy, sampled_by(policy, ragged([[[2, 0, 3]]], 9)), [epo(1.0)], step=2)
    assert alone.metrics["loss/policy"] == 0
    assert float(alone.gradient.norm()) > 0
    method = epo(1.0)
    assert shape(method, ragged([[[0], []]], 9), [], 2) == []
    assert method.history == [1.0]
    assert "epo/outside" not in seen(method)
    assert loss_of(method, ragged([[[0], []]], 9), np.zeros(0, dtype=np.float32)) == 0
