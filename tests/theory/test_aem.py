"""AEM's theorems: entropies of tokens, responses and episodes, and where an update moves them (docs/theory.md)."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from isentrope.models.llama import Llama
from isentrope.models.token_head import token_head
from tests.theory.helpers import (
    Response,
    all_responses,
    covariance,
    entropy,
    gradient,
    gradients,
    model_slope,
    natural,
    plain_gradient,
    score_one_prompt,
    simplex_slope,
    simplices,
    sizes,
    tiny,
    vectors,
)

EXACT = {"rtol": 0.0, "atol": 1e-12}
SINGLE = {"rtol": 1e-4, "atol": 1e-5}  # where the production head, float32, is in it
SLOPE = 1e-6  # finite differences

Bonus = Callable[[Tensor], Tensor]


# Theorem 3.2.1: H(response | s) = E Σ_k H(token_k), and the episode's entropy = E Σ_t H(response | s_t).


@pytest.mark.parametrize("seed", range(4))
def test_response_entropy_is_the_expected_sum_of_token_entropies(seed: int) -> None:
    scored = score_one_prompt(tiny(seed), [0, 1], all_responses(4, 3))
    p = scored.logp_R.exp()
    torch.testing.assert_close(p.sum(), torch.ones_like(p[0]), **EXACT)  # nothing was left out of the list
    torch.testing.assert_close((p * scored.entropy_RT.sum(1)).sum(), entropy(p), **EXACT)


def test_the_token_head_gives_the_same_two_sides() -> None:
    model = tiny(5)
    scored = score_one_prompt(model, [0, 1], all_responses(4, 3))
    mask, weight = scored.mask_RT, model.head_weight().float()
    ones = torch.ones(int(mask.sum()))
    logp_N, entropy_N = token_head(scored.hidden_RTD[mask].float(), weight, scored.target_RT[mask], ones)
    logp_R = torch.zeros(mask.shape).masked_scatter(mask, logp_N.detach()).sum(1)
    sums_R = torch.zeros(mask.shape).masked_scatter(mask, entropy_N.detach()).sum(1)
    torch.testing.assert_close((logp_R.exp() * sums_R).sum(), entropy(logp_R.exp()), **SINGLE)


@torch.no_grad()
def play(model: Llama, chances: tuple[float, float]) -> list[tuple[float, float, float, float]]:
    """Every episode of a small world: (probability, Σ token entropies, Σ response entropies, Σ surprisals).

    Two starts. An empty answer ends the episode; after any other the world says 0 or 1, with these chances,
    and the model answers once more.
    """
    responses = all_responses(3, 2)
    episodes: list[tuple[float, float, float, float]] = []
    for start in ([0], [1, 0]):
        first = score_one_prompt(model, start, responses)
        for i, response in enumerate(responses):
            one = float(first.logp_R[i]), float(first.entropy_RT[i].sum()), float(entropy(first.logp_R.exp()))
            if response == (2,):
                episodes.append((0.5 * math.exp(one[0]), one[1], one[2], -one[0]))
                continue
            for word, chance in enumerate(chances):
                second = score_one_prompt(model, [*start, *response, word], responses)
                two = float(entropy(second.logp_R.exp()))
                for logp, tokens in zip(second.logp_R.tolist(), second.entropy_RT.sum(1).tolist(), strict=True):
                    p = 0.5 * math.exp(one[0] + logp) * chance
                    episodes.append((p, one[1] + tokens, one[2] + two, -one[0] - logp))
    return [episode for episode in episodes if episode[0] > 0]


@pytest.mark.parametrize("chances", [(1.0, 0.0), (0.3, 0.7)])
def test_global_entropy_is_the_expected_sum_of_response_entropies(chances: tuple[float, float]) -> None:
    p, tokens, responses, surprisals = torch.tensor(play(tiny(1, 3), chances), dtype=torch.float64).T
    torch.testing.assert_close(p.sum(), torch.ones_like(p[0]), **EXACT)
    torch.testing.assert_close((p * tokens).sum(), (p * responses).sum(), **EXACT)
    torch.testing.assert_close((p * tokens).sum(), (p * surprisals).sum(), **EXACT)
    # It is the entropy of what the policy says. The entropy of whole episodes also has the start and the world in it.
    of_episodes, of_start = float(entropy(p)), math.log(2)
    if 0.0 in chances:
        assert of_episodes == pytest.approx(float((p * tokens).sum()) + of_start, abs=1e-12)
    else:
        assert of_episodes > float((p * tokens).sum()) + of_start + 0.1


# Theorem 3.2.2. Ascent on J = A log π(a), Fisher-Rao gradient A (e_a - π): dH = A (S(a) - H), S = -log π.


@st.composite
def updates(draw: st.DrawFn) -> tuple[Tensor, int, float]:
    size = draw(sizes)
    return draw(simplices(size)), draw(st.integers(0, size - 1)), draw(st.floats(-3, 3, allow_subnormal=False))


@given(st.data())
def test_fisher_rao_is_the_curvature_of_kl_and_natural_is_its_gradient(data: st.DataObject) -> None:
    size = data.draw(sizes)
    p, plain, other = data.draw(simplices(size)), data.draw(vectors(size)), data.draw(vectors(size))
    tangent = other - other.mean()
    curvature = torch.autograd.functional.hessian(lambda q: (q * (q / p).log()).sum(), p)
    assert isinstance(curvature, Tensor)
    torch.testing.assert_close(tangent @ curvature @ tangent, (tangent**2 / p).sum(), rtol=1e-9, atol=1e-9)
    direction = natural(p, plain)
    assert float(direction.sum()) == pytest.approx(0.0, abs=1e-12)
    torch.testing.assert_close((direction * tangent / p).sum(), plain @ tangent, rtol=1e-9, atol=1e-9)


@given(updates())
def test_entropy_drift_is_advantage_times_relative_surprisal(update: tuple[Tensor, int, float]) -> None:
    p, a, advantage = update
    direction = natural(p, plain_gradient(lambda q: advantage * q[a].log(), p))
    torch.testing.assert_close(direction, advantage * (torch.eye(len(p), dtype=p.dtype)[a] - p), **EXACT)
    relative = float(-p[a].log() - entropy(p))
    assert simplex_slope(entropy, p, direction) == pytest.approx(advantage * relative, abs=SLOPE)


def test_entropy_drift_by_hand() -> None:
    # π = (3/4, 1/4): H = 0.5623. Reinforcing the rare response, S = ln 4 = 1.3863, raises H by 0.8240 per unit of A;
    # reinforcing the common one, S = ln(4/3) = 0.2877, lowers it by 0.2747.
    p = torch.tensor([0.75, 0.25], dtype=torch.float64)
    eye = torch.eye(2, dtype=torch.float64)
    assert simplex_slope(entropy, p, eye[1] - p) == pytest.approx(0.8240, abs=1e-4)
    assert simplex_slope(entropy, p, eye[0] - p) == pytest.approx(-0.2747, abs=1e-4)


@given(updates())
def test_the_token_heads_gradients_give_the_same_drift(update: tuple[Tensor, int, float]) -> None:
    p, a, advantage = update
    logits = p.log().float()[None].requires_grad_()
    eye = torch.eye(len(p))
    logp, h = token_head(logits, eye, torch.tensor([a]), torch.ones(1))
    score_z, entropy_z = torch.autograd.grad(logp, logits, retain_graph=True)[0], torch.autograd.grad(h, logits)[0]
    fisher = torch.diag(p) - torch.outer(p, p)
    step = torch.linalg.pinv(fisher, hermitian=True, rtol=1e-9) @ (advantage * score_z[0].double())
    expected = torch.tensor(advantage * float(-p[a].log() - entropy(p)), dtype=torch.float64)
    torch.testing.assert_close(entropy_z[0].double() @ step, expected, **SINGLE)


def drift_in_parameters(p: Tensor, a: int, features: Tensor) -> float:
    """dH along the natural gradient of log π(a), for logits = features · θ: Fisher matrix and all in θ."""
    jacobian = (torch.diag(p) - torch.outer(p, p)) @ features
    fisher = jacobian.T @ torch.diag(1 / p) @ jacobian
    step = torch.linalg.pinv(fisher, hermitian=True, rtol=1e-10) @ (jacobian.T[:, a] / p[a])
    return float(plain_gradient(entropy, p) @ jacobian @ step)


def test_the_natural_gradient_does_not_see_the_parameters_unless_there_are_too_few() -> None:
    generator = torch.Generator().manual_seed(0)
    p = torch.softmax(torch.randn(4, generator=generator, dtype=torch.float64), 0)
    relative = float(-p[1].log() - entropy(p))
    for count in (4, 7):
        features = torch.randn(4, count, generator=generator, dtype=torch.float64)
        assert drift_in_parameters(p, 1, features) == pytest.approx(relative, abs=1e-9)
    # One parameter cannot reach every direction of the simplex, and the theorem no longer holds.
    features = torch.randn(4, 1, generator=generator, dtype=torch.float64)
    assert abs(drift_in_parameters(p, 1, features) - relative) > 0.1


@settings(max_examples=30)
@given(st.data())
def test_global_drift_with_and_without_frozen_visits(data: st.DataObject) -> None:
    # One start, three responses, each of which leads to a state of its own with three responses.
    states = [data.draw(simplices(3)) for _ in range(4)]
    picks = [(data.draw(st.integers(0, 2)), data.draw(st.floats(-2, 2, allow_subnormal=False))) for _ in states]
    eye = torch.eye(3, dtype=torch.float64)
    moves = [advantage * (eye[a] - p) for p, (a, advantage) in zip(states, picks, strict=True)]
    drifts = torch.stack([A * (-p[a].log() - entropy(p)) for p, (a, A) in zip(states, picks, strict=True)])
    entropies = torch.stack([entropy(p) for p in states])
    one = torch.ones(1, dtype=torch.float64)

    def visits(flat: Tensor) -> Tensor:
        return torch.cat([one, flat[:3]])  # the start for certain, the rest by the first response

    def total(flat: Tensor, weights: Tensor) -> Tensor:
        return (weights * torch.stack([entropy(p) for p in flat.view(4, 3)])).sum()

    here, direction = torch.cat(states), torch.cat(moves)
    frozen = visits(here)
    expected = float((frozen * drifts).sum())
    assert simplex_slope(lambda flat: total(flat, frozen), here, direction) == pytest.approx(expected, abs=4 * SLOPE)
    # If the visits are not frozen, the states that become more frequent bring their entropy with them.
    moving = float((moves[0] * entropies[1:]).sum())
    full = simplex_slope(lambda flat: total(flat, visits(flat)), here, direction)
    assert full == pytest.approx(expected + moving, abs=4 * SLOPE)


# Theorem C.3.1: J = A log π(a) + λ g(H) - β KL(π || ρ). With V = Var log π:
# dH = A (S(a) - H) + λ g'(H) V + β V - β Cov(log π, log ρ).

BONUSES: dict[str, tuple[Bonus, Bonus]] = {
    "linear": (lambda h: h, torch.ones_like),
    "square": (lambda h: h**2, lambda h: 2 * h),
    "exp": (torch.exp, torch.exp),
}


@pytest.mark.parametrize("name", BONUSES)
@given(updates(), st.data())
def test_regularised_drift(name: str, update: tuple[Tensor, int, float], data: st.DataObject) -> None:
    (p, a, advantage), (g, slope_of_g) = update, BONUSES[name]
    reference = data.draw(simplices(len(p)))
    lam, beta = data.draw(st.floats(0, 2)), data.draw(st.floats(0, 2))

    def objective(q: Tensor) -> Tensor:
        return advantage * q[a].log() + lam * g(entropy(q)) - beta * (q * (q / reference).log()).sum()

    log_p, h = p.log(), entropy(p)
    spread = covariance(p, log_p, log_p)
    expected = advantage * (-log_p[a] - h) + lam * slope_of_g(h) * spread
    expected = expected + beta * spread - beta * covariance(p, log_p, reference.log())
    direction = natural(p, plain_gradient(objective, p))
    assert simplex_slope(entropy, p, direction) == pytest.approx(float(expected), rel=SLOPE, abs=10 * SLOPE)
    assert float(lam * slope_of_g(h) * spread) >= -1e-12  # an increasing bonus never lowers entropy


def test_the_kl_term_pulls_either_way() -> None:
    p = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)
    for reference, sign in (([1 / 3, 1 / 3, 1 / 3], 1), ([0.9, 0.09, 0.01], -1)):
        log_ratio = p.log() - torch.tensor(reference, dtype=torch.float64).log()
        assert float(covariance(p, p.log(), log_ratio)) * sign > 0.05


# Proposition C.4.1: S = C + M, C_n = Σ_k H_k known one token ahead, M a martingale of mean 0.


@torch.no_grad()
def test_doob_decomposition() -> None:
    responses = all_responses(4, 3)
    scored = score_one_prompt(tiny(2), [1, 0], responses)
    p, noise_RT = scored.logp_R.exp(), -scored.logp_RT - scored.entropy_RT
    of: dict[Response, Tensor] = {}
    for row, response in enumerate(responses):
        for k in range(len(response)):
            of[response[:k]] = of.get(response[:k], torch.zeros(())) + p[row] * noise_RT[row, k]
    assert len(of) == 1 + 3 + 9  # every prefix that goes on
    for left in of.values():  # probability of the prefix times E[noise of the next token | prefix]
        torch.testing.assert_close(left, torch.zeros_like(left), **EXACT)
    martingale, proxy = noise_RT.sum(1), scored.entropy_RT.sum(1)
    assert float(martingale.abs().max()) > 0.5  # not zero for want of noise
    torch.testing.assert_close((p * martingale).sum(), torch.zeros_like(p[0]), **EXACT)
    torch.testing.assert_close((p * proxy).sum(), entropy(p), **EXACT)


def test_the_predictable_part_can_have_the_opposite_sign() -> None:
    # "a" with 0.3, "ba" and "bb" with 0.35 each. "a" is the rarest: S - H = 1.2040 - 1.0961 > 0. But it ends after a
    # token of entropy 0.6109, and the others go on to one more of ln 2: C - H < 0. C also varies more than S does.
    p = torch.tensor([0.3, 0.35, 0.35], dtype=torch.float64)
    first = float(entropy(torch.tensor([0.3, 0.7], dtype=torch.float64)))
    predictable = first + torch.tensor([0.0, math.log(2), math.log(2)], dtype=torch.float64)
    torch.testing.assert_close((p * predictable).sum(), entropy(p), **EXACT)
    assert float(-p[0].log() - entropy(p)) == pytest.approx(0.1079, abs=1e-4)
    assert float(predictable[0] - entropy(p)) == pytest.approx(-0.4852, abs=1e-4)
    assert float(covariance(p, predictable, predictable)) > 10 * float(covariance(p, p.log(), p.log()))


# Theorem C.5.1: one Euclidean step in shared parameters. K(a, b) = <∇log π(a), ∇log π(b)>, u = S - H, l = log(π/ρ):
# <∇H, ∇J> = A Σ_b π_b u_b K(a, b) + λ g'(H) Σ_bc π_b π_c u_b u_c K(b, c) - β Σ_bc π_b π_c u_b l_c K(b, c).


def test_drift_in_parameter_space() -> None:
    model, responses, prompt = tiny(3, 3), all_responses(3, 2), [0, 1]
    parameters = list(model.parameters())
    reference = score_one_prompt(tiny(4, 3), prompt, responses).logp_R.detach()
    a, advantage, lam, beta = 3, -1.3, 0.4, 0.7
    logp = score_one_prompt(model, prompt, responses).logp_R
    p, h = logp.exp(), entropy(logp.exp())
    objective = advantage * logp[a] + lam * h**2 - beta * (p * (logp - reference)).sum()
    scores = gradients(logp, parameters)
    kernel = scores @ scores.T
    u, ratio = (-logp - h).detach(), (logp - reference).detach()
    weighted_u, weighted_ratio = p.detach() * u, p.detach() * ratio
    own = advantage * weighted_u[a] * kernel[a, a]
    others = advantage * (weighted_u @ kernel[a]) - advantage * weighted_u[a] * kernel[a, a]
    states = lam * 2 * h.detach() * (weighted_u @ kernel @ weighted_u) - beta * (weighted_u @ kernel @ weighted_ratio)
    step = gradient(objective, parameters)
    torch.testing.assert_close(gradient(h, parameters) @ step, own + others + states, rtol=1e-10, atol=1e-10)
    assert min(abs(float(part)) for part in (own, others, states)) > 0.01  # none of them idle
    after = model_slope(model, step, lambda: entropy(score_one_prompt(model, prompt, responses).logp_R.exp()))
    assert after == pytest.approx(float(own + others + states), rel=1e-6)


def test_a_euclidean_step_can_turn_the_sign_even_without_shared_parameters() -> None:
    # One logit per response, π = (0.4, 0.3, 0.2, 0.1). The second is a little less surprising than average, S - H =
    # -0.0759; a natural step towards it lowers entropy. A Euclidean step raises it, by 0.0188: normalisation alone
    # makes K(a, b) = 1[a = b] - π_a - π_b + |π|², so the threshold is not S = H.
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64).log().requires_grad_()
    words = torch.log_softmax(logits, 0)
    scores = gradients(words, [logits])
    p = words.exp().detach()
    kernel = torch.eye(4, dtype=torch.float64) - p[:, None] - p[None] + (p**2).sum()
    torch.testing.assert_close(scores @ scores.T, kernel, **EXACT)
    assert float(-p[1].log() - entropy(p)) == pytest.approx(-0.0759, abs=1e-4)
    assert float(gradient(entropy(words.exp()), [logits]) @ scores[1]) == pytest.approx(0.0188, abs=1e-4)


# The method's weights, w = exp(-λ ĥ) / mean, against the theorem.


def weights(values: Tensor, sharpness: float) -> Tensor:
    scaled = (values - values.min()) / (values.max() - values.min())
    w = torch.exp(-sharpness * scaled)
    return w / w.mean()


@given(st.lists(st.integers(0, 50), min_size=2, max_size=8, unique=True), st.floats(0.1, 3), st.sampled_from([1, -1]))
def test_weights_lower_the_drift_of_good_responses_and_raise_that_of_bad_ones(
    surprisals: list[int], sharpness: float, advantage: int
) -> None:
    # Of one state, with one advantage: Σ A (w - 1)(S - H) = A · n · Cov(w, S), and w falls with S.
    s, h = torch.tensor(surprisals, dtype=torch.float64), 3.0
    change = advantage * ((weights(s, sharpness) - 1) * (s - h)).sum()
    assert float(change) * advantage < 0


def test_across_states_the_weights_can_do_the_opposite() -> None:
    # The group mixes states, and H differs between them. Here the response with the larger S is the one that is
    # less surprising where it was said (S - H = -1 against +1), so weighting by S raises the drift of good responses.
    s, h = torch.tensor([5.0, 2.0]), torch.tensor([6.0, 1.0])
    assert float(((weights(s, 1.0) - 1) * (s - h)).sum()) > 0.5
