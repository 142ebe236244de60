"""EPO's theory: the entropy gradient, what the two penalties do to it, and its performance bound (docs/theory.md)."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from isentrope.models.token_head import token_head
from tests.theory.helpers import (
    all_responses,
    entropy,
    gradient,
    model_slope,
    score_one_prompt,
    simplices,
    sizes,
    tiny,
    vectors,
)

EXACT = {"rtol": 1e-10, "atol": 1e-10}
PROMPT = [0, 1]

# Lemma 8: ∇H = -E Σ_h ∇log π(a_h | s_h) Σ_{t ≥ h} log π(a_t | s_t), tokens as actions.


def weighted_scores(p: Tensor, logp_RT: Tensor, weights_RT: Tensor) -> Tensor:
    """Its gradient is E Σ_h weight_h ∇log π(a_h), over all responses."""
    return (p.detach()[:, None] * weights_RT.detach() * logp_RT).sum()


@pytest.mark.parametrize("seed", range(3))
def test_gradient_of_the_entropy_of_whole_responses(seed: int) -> None:
    model, responses = tiny(seed, 4), all_responses(4, 3)
    parameters = list(model.parameters())
    scored = score_one_prompt(model, PROMPT, responses)
    p, logp_RT = scored.logp_R.exp(), scored.logp_RT
    full = gradient(entropy(p), parameters)
    onward_RT = logp_RT.flip(1).cumsum(1).flip(1)
    torch.testing.assert_close(full, gradient(-weighted_scores(p, logp_RT, onward_RT), parameters), **EXACT)
    everything_RT = scored.logp_R[:, None].expand_as(logp_RT)  # the step before the last one of the proof
    torch.testing.assert_close(full, gradient(-weighted_scores(p, logp_RT, everything_RT), parameters), **EXACT)
    measured = model_slope(model, full, lambda: entropy(score_one_prompt(model, PROMPT, responses).logp_R.exp()))
    assert measured == pytest.approx(float(full @ full), rel=1e-6)


def test_a_loss_on_sampled_tokens_has_only_the_terms_t_equals_h() -> None:
    # L_H averages the entropies of sampled tokens and differentiates those, not the sampling. That is the part t = h of
    # the lemma; the rest is how a token leads to states of higher or lower entropy.
    model, responses = tiny(1, 4), all_responses(4, 3)
    parameters = list(model.parameters())
    scored = score_one_prompt(model, PROMPT, responses)
    p, logp_RT = scored.logp_R.exp(), scored.logp_RT
    sampled = gradient((p.detach() * scored.entropy_RT.sum(1)).sum(), parameters)
    torch.testing.assert_close(sampled, gradient(-weighted_scores(p, logp_RT, logp_RT), parameters), **EXACT)
    later_RT = logp_RT.flip(1).cumsum(1).flip(1) - logp_RT
    visits = gradient(-weighted_scores(p, logp_RT, later_RT), parameters)
    full = gradient(entropy(p), parameters)
    torch.testing.assert_close(sampled + visits, full, **EXACT)
    assert float(visits.norm()) > 0.1 * float(full.norm())


@given(sizes.flatmap(vectors), st.integers(0, 10**6))
def test_the_token_heads_entropy_gradient_is_the_lemma_for_one_token(hidden: Tensor, seed: int) -> None:
    h = hidden.float()[None].requires_grad_()
    weight = torch.randn(4, len(hidden), generator=torch.Generator().manual_seed(seed)) * 0.5
    ones = torch.ones(1)
    _, token_entropy = token_head(h, weight, torch.tensor([0]), ones)
    expected = torch.zeros_like(h)
    for word in range(4):
        logp, _ = token_head(h, weight, torch.tensor([word]), ones)
        expected -= (logp.exp() * logp).detach() * torch.autograd.grad(logp, h)[0]
    torch.testing.assert_close(torch.autograd.grad(token_entropy, h)[0], expected, rtol=1e-4, atol=1e-5)


# The penalty: a hinge (Eq 5) or, in the appendix, 0 or α.


def hinge(h: Tensor, low: float, high: float, alpha: float) -> Tensor:
    return alpha * (torch.relu(low - h) + torch.relu(h - high))


def indicator(h: Tensor, low: float, high: float, alpha: float) -> Tensor:
    return alpha * ((h < low) | (h > high)).to(h.dtype)


Band = tuple[float, float]
Penalty = Callable[[Tensor, float, float, float], Tensor]
either = pytest.mark.parametrize("penalty", [hinge, indicator])
bands = st.tuples(st.floats(0.0, 0.8), st.floats(0.8, 1.6))


@given(sizes.flatmap(vectors), bands, st.floats(0.01, 3))
def test_the_hinge_pulls_towards_the_band_with_strength_alpha(logits: Tensor, band: Band, alpha: float) -> None:
    z = logits.clone().requires_grad_()
    words = torch.log_softmax(z, 0)
    h = -(words.exp() * words).sum()
    assume(min(abs(float(h.detach()) - edge) for edge in band) > 1e-9)
    gradient_of_h = (-words.exp() * (words + h)).detach()
    sign = -1 if float(h.detach()) < band[0] else 1 if float(h.detach()) > band[1] else 0
    of_penalty = torch.autograd.grad(hinge(h, *band, alpha), z)[0]
    torch.testing.assert_close(of_penalty, sign * alpha * gradient_of_h, rtol=1e-10, atol=1e-12)


@given(sizes.flatmap(vectors), bands, st.integers(0, 10**6))
def test_the_indicator_has_no_slope_away_from_the_edges(logits: Tensor, band: Band, seed: int) -> None:
    direction = torch.randn(len(logits), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)

    def penalty(step: float) -> float:
        return float(indicator(entropy(torch.softmax(logits + step * direction, 0)), *band, 0.1))

    here = float(entropy(torch.softmax(logits, 0)))
    assume(min(abs(here - edge) for edge in band) > 1e-3)
    assert penalty(1e-5) == penalty(-1e-5) == penalty(0.0)  # no step so short leaves its side of an edge


@pytest.mark.parametrize("beta", [1.0, 2.0])
def test_what_reaches_the_token_head(beta: float) -> None:
    # λ [H - β P] for three tokens: below, inside and above the band. The indicator leaves the plain bonus, bit for bit.
    # The hinge scales it, by 1 + βα below and by 1 - βα above: with the published α = 0.1 and β between 2 and 1 it
    # weakens the push upwards by 10 to 20 % and never turns it round.
    alpha, lam, weight = 0.1, 0.001, torch.eye(3)
    logits = torch.tensor([[4.0, 0.0, 0.0], [2.0, 0.0, 0.0], [0.2, 0.0, 0.1]])
    targets, ones = torch.zeros(3, dtype=torch.long), torch.ones(3)

    def bonus(penalty: Penalty | None) -> Tensor:
        z = logits.clone().requires_grad_()
        _, h = token_head(z, weight, targets, ones)
        p = penalty(h, 0.3, 0.9, alpha) if penalty else torch.zeros(3)
        return torch.autograd.grad((lam * (h - beta * p)).sum(), z)[0]

    plain = bonus(None)
    assert torch.equal(bonus(indicator), plain)
    factors = torch.tensor([1 + beta * alpha, 1.0, 1 - beta * alpha])
    torch.testing.assert_close(bonus(hinge), factors[:, None] * plain, rtol=1e-5, atol=1e-9)


@given(sizes.flatmap(simplices), st.floats(0.0, 3.0), st.floats(0.01, 1.0))
def test_with_kappa_left_zero_nothing_is_too_low(p: Tensor, history: float, alpha: float) -> None:
    assert float(hinge(entropy(p), 0.0 * history, math.inf, alpha)) == 0


def test_in_an_expectation_the_indicator_does_have_a_gradient() -> None:
    # The appendix's objective has E_π[L_smooth]: there the penalty acts like a reward, through what is sampled. A loss
    # on sampled tokens has no such term.
    model, responses = tiny(2, 4), all_responses(4, 3)
    parameters = list(model.parameters())
    scored = score_one_prompt(model, PROMPT, responses)
    edge = float(scored.entropy_RT[scored.mask_RT].detach().median()) + 1e-3
    # A response's padding has entropy 0, inside the band.
    penalty_R = indicator(scored.entropy_RT, 0.0, edge, 0.1).sum(1)
    assert not penalty_R.requires_grad
    through_sampling = gradient((scored.logp_R.exp() * penalty_R).sum(), parameters)
    assert float(through_sampling.norm()) > 0.01

    def expected_penalty() -> Tensor:
        again = score_one_prompt(model, PROMPT, responses)
        return (again.logp_R.exp() * indicator(again.entropy_RT, 0.0, edge, 0.1).sum(1)).sum()

    measured = model_slope(model, through_sampling, expected_penalty)
    assert measured == pytest.approx(float(through_sampling @ through_sampling), rel=1e-5)


def test_the_published_schedule_weakens() -> None:
    # Eq 7 with β from 2 to 1: it falls to 1.05 at the middle, jumps to 1, and stays. The text has it growing.
    def beta(k: int, total: int = 100, start: float = 2.0, end: float = 1.0, decay: float = 3.0) -> float:
        middle = total // 2
        if k <= middle:
            return start + (1 - start) * (1 - math.exp(-decay * k / middle))
        return 1 + (end - 1) * (1 - math.exp(-decay * (k - middle) / (total - middle)))

    values = [beta(k) for k in range(101)]
    assert values == sorted(values, reverse=True)
    assert (values[0], round(values[50], 2), values[51], values[100]) == (2.0, 1.05, 1.0, 1.0)


# Lemmas 5 to 7 and Proposition 1, on one state unless said otherwise. φ = H - β P(H).


def regularised(p: Tensor, rewards: Tensor, lam: float, beta: float, band: Band, alpha: float) -> Tensor:
    h = -torch.special.xlogy(p, p).sum()
    return p @ rewards + lam * (h - beta * hinge(h, *band, alpha))


def test_performance_difference() -> None:
    # Two steps, two actions each: V^π - V^π' = E_π Σ_t A'_t.
    generator = torch.Generator().manual_seed(1)
    reward, later = torch.randn(2, generator=generator), torch.randn(2, 2, generator=generator)
    first = torch.softmax(torch.randn(2, 2, generator=generator), 1)  # [policy, action]
    second = torch.softmax(torch.randn(2, 2, 2, generator=generator), 2)  # [policy, state, action]
    values = (second * later).sum(2)
    q = reward + values  # of the first step
    v = (first * q).sum(1)
    gain = (first[0] * (q[1] - v[1])).sum() + (first[0][:, None] * second[0] * (later - values[1][:, None])).sum()
    torch.testing.assert_close(v[0] - v[1], gain)


@given(st.data(), st.sampled_from([0.0, 0.2, 1.0, 3.0]))
def test_the_bound_before_optimisation_holds_for_the_uniform_optimum(data: st.DataObject, beta: float) -> None:
    # Eq 13: V* - V ≤ [V_EPO(best) - V_EPO] + λ (log |A| - log |A*|) - λ β Φ, and V_EPO(best) ≥ V_EPO(π*). With
    # β = 0 this is Lemma 6.
    size = data.draw(sizes)
    rewards = torch.tensor(data.draw(st.lists(st.integers(0, 2), min_size=size, max_size=size)), dtype=torch.float64)
    p, band, lam, alpha = data.draw(simplices(size)), data.draw(bands), data.draw(st.floats(0.01, 2)), 1.0
    best = (rewards == rewards.max()).double()
    optimum = best / best.sum()
    gap = regularised(optimum, rewards, lam, beta, band, alpha) - regularised(p, rewards, lam, beta, band, alpha)
    smooth = [hinge(-torch.special.xlogy(q, q).sum(), *band, alpha) for q in (p, optimum)]
    bound = gap + lam * math.log(size / float(best.sum())) - lam * beta * (smooth[0] - smooth[1])
    assert float(rewards.max() - p @ rewards) <= float(bound) + 1e-12


def two_actions(chance: Tensor, gain: float, strength: float, penalty: Penalty) -> Tensor:
    """V_EPO / λ of an action worth `gain` λ and one worth nothing; band [0, 0.3], βα = strength."""
    h = -torch.special.xlogy(chance, chance) - torch.special.xlogy(1 - chance, 1 - chance)
    return gain * chance + h - penalty(h, 0.0, 0.3, strength)


GRID = torch.linspace(0, 1, 100_001, dtype=torch.float64)


@either
@pytest.mark.parametrize("strength", [0.2, 2.0])
def test_the_bound_fails_for_another_optimal_policy(strength: float, penalty: Penalty) -> None:
    # Both actions are equally good, so every policy is optimal and |A| = |A*|: the entropy bias is 0. The proof needs
    # H(π*) ≥ log |A*| and shows ≤; only the uniform optimum has both. With π* = "always the first" (H = 0, no
    # penalty) and π = uniform the right side of Eq 13 is negative, at any strength, and V* - V = 0.
    uniform, sure = (torch.tensor(p, dtype=torch.float64) for p in (0.5, 1.0))
    optimisation = float(two_actions(GRID, 0.0, strength, penalty).max() - two_actions(uniform, 0, strength, penalty))
    penalties = [float(penalty(h, 0.0, 0.3, strength)) for h in (math.log(2) * torch.ones(()), torch.zeros(()))]
    assert float(two_actions(sure, 0.0, strength, penalty)) == 0
    assert optimisation + math.log(2 / 2) - (penalties[0] - penalties[1]) < -0.05


def bound_from_gradient(logits: Tensor, gain: float, strength: float, penalty: Penalty) -> float:
    """|∇V|² / (2 λ C) over λ, with C = (min π)² / |A|: Eq 16 for one state and one query."""
    z = logits.clone().requires_grad_()
    p = torch.softmax(z, 0)
    squared = float(gradient(two_actions(p[0], gain, strength, penalty), [z]).square().sum())
    return squared / (2 * float(p.min().detach()) ** 2 / 2)


@given(st.data(), st.floats(0.05, 3))
def test_a_small_gradient_means_a_small_gap_without_smoothing(data: st.DataObject, lam: float) -> None:
    # Lemma 7. The best regularised value is λ log Σ exp(r/λ).
    size = data.draw(sizes)
    rewards, z = data.draw(vectors(size)), data.draw(vectors(size)).requires_grad_()
    p = torch.softmax(z, 0)
    value = p @ rewards + lam * entropy(p)
    gap = lam * torch.logsumexp(rewards / lam, 0) - value
    concentration = float(p.min().detach()) ** 2 / size
    bound = gradient(value, [z]).square().sum() / (2 * lam * concentration)
    assert float(gap.detach()) <= float(bound) + 1e-9


@pytest.mark.parametrize(
    ("penalty", "strength", "gain", "slant"),
    [(hinge, 0.9, 0.1, 0.0), (hinge, 2.0, 0.1, 0.0), (indicator, 0.2, 2.2, 2.2)],
)
def test_with_smoothing_a_small_gradient_need_not_mean_a_small_gap(
    penalty: Penalty, strength: float, gain: float, slant: float
) -> None:
    # Eq 16 keeps Lemma 7's constant. But above the band the hinge leaves entropy a weight of 1 - βα: the objective is
    # flatter than the constant allows (0.9) or curved the other way (2.0). The indicator is a step, which no gradient
    # sees: the policy here is stationary, and a little below the step it would have nearly 0.2 λ more.
    logits = torch.tensor([slant, 0.0], dtype=torch.float64)
    here = two_actions(torch.softmax(logits, 0)[0], gain, strength, penalty)
    gap = float(two_actions(GRID, gain, strength, penalty).max() - here)
    assert gap > 0.01
    assert gap > 2 * bound_from_gradient(logits, gain, strength, penalty)


@pytest.mark.parametrize("strength", [0.0, 0.2, 0.5, 0.7, 0.8, 0.9])
def test_the_gradient_bound_holds_up_to_three_quarters_at_the_even_policy(strength: float) -> None:
    # For a small gain δ: gap = δ²/(8 (1 - βα)), bound = δ²/2. A bound with λ (1 - βα) in place of λ would hold.
    even, gain = torch.zeros(2, dtype=torch.float64), 0.01
    values = two_actions(GRID, gain, strength, hinge)
    ratio = float(values.max() - values[50_000]) / bound_from_gradient(even, gain, strength, hinge)
    assert ratio == pytest.approx(1 / (4 * (1 - strength)), rel=1e-3)


@settings(max_examples=60)
@given(st.floats(-3, 3), st.floats(-3, 3))
def test_the_gradient_bound_holds_at_the_published_strength(gain: float, slant: float) -> None:
    logits = torch.tensor([slant, 0.0], dtype=torch.float64)
    here = two_actions(torch.softmax(logits, 0)[0], gain, 0.2, hinge)
    gap = float(two_actions(GRID, gain, 0.2, hinge).max() - here)
    assert gap <= bound_from_gradient(logits, gain, 0.2, hinge) + 1e-9


@pytest.mark.parametrize(("penalty", "strength", "slant"), [(hinge, 2.0, -0.01), (indicator, 1.0, 0.01)])
def test_the_proposition_fails_at_a_stationary_point(penalty: Penalty, strength: float, slant: float) -> None:
    # One best action, worth λ/100, so |A*| = 1 and π* is the only optimum. The policy with these logits has gradient 0,
    # hence no optimisation error; ln 2 - βΦ is then negative: by the bound it would be better than the optimal policy.
    logits = torch.tensor([slant, 0.0], dtype=torch.float64)
    p = torch.softmax(logits, 0)
    optimisation = bound_from_gradient(logits, 0.01, strength, penalty)
    assert optimisation == pytest.approx(0.0, abs=1e-20)
    bound = optimisation + math.log(2) - float(penalty(entropy(p), 0.0, 0.3, strength))
    assert bound < -0.05
    assert 0.01 * float(p[1]) > bound


@given(sizes.flatmap(lambda n: st.tuples(simplices(n), simplices(n))), bands, st.floats(0, 1))
def test_up_to_strength_one_the_objective_is_concave(pair: tuple[Tensor, Tensor], band: Band, strength: float) -> None:
    # The hinge then has no such stationary points on one state. The published settings have βα ≤ 0.2.
    def value(p: Tensor) -> float:
        return float(entropy(p) - strength * hinge(entropy(p), *band, 1.0))

    middle = value((pair[0] + pair[1]) / 2)
    assert middle >= (value(pair[0]) + value(pair[1])) / 2 - 1e-12


@given(sizes.flatmap(lambda n: st.tuples(vectors(n), vectors(n))))
def test_kl_between_softmaxes(pair: tuple[Tensor, Tensor]) -> None:
    # KL ≤ |θ - Q/λ - c|² / 2 in the largest entry, for any c. Lemma 7's own proof prints 1/(2λ²) before the same norm.
    difference = pair[0] - pair[1]
    centred = difference - (difference.max() + difference.min()) / 2
    words = [torch.log_softmax(logits, 0) for logits in pair]
    kl = (words[0].exp() * (words[0] - words[1])).sum()
    assert float(kl) <= float(centred.abs().max()) ** 2 / 2 + 1e-12


def test_kl_between_softmaxes_as_printed_in_lemma_7_fails_above_one() -> None:
    # θ = 0 and Q/λ = (1, -1): KL = log cosh 1 = 0.434; with λ = 3 the printed bound is 1/18.
    kl = -0.5 * float(torch.log_softmax(torch.tensor([1.0, -1.0]), 0).sum()) - math.log(2)
    assert kl == pytest.approx(math.log(math.cosh(1)), abs=1e-6)
    assert kl > 1 / 18
