"""K_ij, c_j and Σ A_j c_j against pairs of tokens, autograd and numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from isentrope.metrics.probes import interference
from isentrope.metrics.probes.interference import EpisodeStates, Group, interference_metrics, kernel
from isentrope.models import memory

Matrix = NDArray[np.float64]


def spoken(seed: int, lengths: list[int], words: int, size: int) -> tuple[list[EpisodeStates], Tensor]:
    generator = torch.Generator().manual_seed(seed)
    episodes = [
        EpisodeStates(
            torch.randn(n, size, generator=generator),
            torch.randint(words, (n,), generator=generator),
            torch.rand(n, generator=generator) + 0.5,
        )
        for n in lengths
    ]
    return episodes, torch.randn(words, size, generator=generator)


def by_pairs(episodes: list[EpisodeStates], weight: Tensor) -> Matrix:
    """Lemma 3.2 as it is written: Σ over pairs of tokens of <q, q'> <h, h'>."""

    def residuals(one: EpisodeStates) -> list[tuple[Tensor, Tensor]]:
        found: list[tuple[Tensor, Tensor]] = []
        for h, y, t in zip(one.hidden_ND.double(), one.target_N, one.temperature_N.double(), strict=True):
            q = -torch.softmax(weight.double() @ h / t, dim=0)
            q[y] += 1
            found.append((q / t, h))
        return found

    all_of = [residuals(one) for one in episodes]
    pairs = [[sum(float(q @ r) * float(h @ k) for q, h in a for r, k in b) for b in all_of] for a in all_of]
    return np.array(pairs)


def by_autograd(episodes: list[EpisodeStates], weight: Tensor) -> Matrix:
    """The whole gradient of each episode's log-likelihood, held at once."""
    gradients: list[Tensor] = []
    for one in episodes:
        leaf = weight.double().requires_grad_()
        words = torch.log_softmax(one.hidden_ND.double() @ leaf.T / one.temperature_N.double()[:, None], dim=-1)
        likelihood = words.gather(1, one.target_N[:, None]).sum()
        gradients.append(torch.autograd.grad(likelihood, leaf)[0].flatten())
    stacked = torch.stack(gradients)
    return (stacked @ stacked.T).numpy()


@given(st.integers(0, 10**6), st.lists(st.integers(1, 6), min_size=1, max_size=4), st.integers(2, 9), st.integers(1, 5))
def test_the_kernel_against_pairs_and_autograd(seed: int, lengths: list[int], words: int, size: int) -> None:
    episodes, weight = spoken(seed, lengths, words, size)
    found = kernel(episodes, weight)
    close = {"rel": 1e-4, "abs": 1e-4}
    assert found == pytest.approx(by_pairs(episodes, weight), **close)
    assert found == pytest.approx(by_autograd(episodes, weight), **close)


@pytest.mark.parametrize("room", [1, 7, 64, 10**6])
def test_slices_do_not_change_the_kernel(monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    episodes, weight = spoken(1, [5, 3, 9], 23, 4)
    monkeypatch.setitem(memory.CHUNK_VALUES, "cpu", room)
    largest = 0
    original = interference.logits

    def watched(hidden: Tensor, piece: Tensor) -> Tensor:
        nonlocal largest
        largest = max(largest, hidden.shape[0] * piece.shape[0])
        return original(hidden, piece)

    monkeypatch.setattr(interference, "logits", watched)
    assert kernel(episodes, weight) == pytest.approx(by_pairs(episodes, weight), rel=1e-4, abs=1e-4)
    assert largest <= max(room, 23)  # a row of logits, or what there is room for


def test_by_hand() -> None:
    """Two words, equally likely; h = 2. q = ±(1/2, -1/2), so K = ±(1/2) · 4."""

    def one(*targets: int) -> EpisodeStates:
        n = len(targets)
        return EpisodeStates(torch.full((n, 1), 2.0), torch.tensor(targets), torch.ones(n))

    weight = torch.zeros(2, 1)
    found = kernel([one(0), one(1), one(0, 0)], weight)
    assert found == pytest.approx(np.array([[2.0, -2, 4], [-2, 2, -4], [4, -4, 8]]))
    group = Group(found, np.array([1.0, -1.0, 0.5]), np.array([1.0, 1, 2]))
    assert group.c_G == pytest.approx(np.array([4 / 3, -4 / 3, 8 / 3]))
    assert group.c_per_token_G == pytest.approx(np.array([2 / 3, -2 / 3, 2 / 3]))
    metrics = interference_metrics([group])
    assert metrics == pytest.approx(
        {
            "probe/interference/positive": 2.0,
            "probe/interference/negative": -4 / 3,
            "probe/interference/sum": 4 / 3 + 4 / 3 + 4 / 3,
            "probe/interference/positive_per_token": 2 / 3,
            "probe/interference/negative_per_token": -2 / 3,
        }
    )


def test_a_temperature_scales_the_gradient() -> None:
    """At τ = 2 and equal words the softmax is the same and q is halved."""
    episode = EpisodeStates(torch.ones(1, 1), torch.tensor([0]), torch.tensor([2.0]))
    assert kernel([episode], torch.zeros(2, 1)) == pytest.approx(np.array([[0.125]]))


@given(st.integers(0, 10**6), st.integers(1, 5))
def test_equal_episodes_interfere_as_with_themselves(seed: int, count: int) -> None:
    (episode,), weight = spoken(seed, [4], 6, 3)
    found = kernel([episode] * count, weight)
    self_term = by_pairs([episode], weight)[0, 0]
    assert Group(found, np.ones(count), np.ones(count)).c_G == pytest.approx(np.full(count, self_term), rel=1e-4)


def some_group(seed: int) -> Group:
    rng = np.random.default_rng(seed)
    gradients = rng.normal(size=(5, 8))
    return Group(gradients @ gradients.T, rng.normal(size=5), rng.integers(1, 9, 5).astype(float))


@given(st.integers(0, 10**6))
def test_the_order_of_episodes_and_groups_does_not_matter(seed: int) -> None:
    a, b = some_group(seed), some_group(seed + 1)
    order = np.random.default_rng(seed).permutation(5)
    moved = Group(a.kernel[order][:, order], a.advantage_G[order], a.tokens_G[order])
    assert interference_metrics([b, moved]) == pytest.approx(interference_metrics([a, b]))


@given(st.integers(0, 10**6))
def test_the_sum_is_the_slope_of_the_mean_likelihood(seed: int) -> None:
    """Lemma 3.3: along Σ A_j g_j the mean of ℓ_i changes by Σ A_j c_j."""
    rng = np.random.default_rng(seed)
    gradients, advantage = rng.normal(size=(5, 8)), rng.normal(size=5)
    slope = float(np.mean([g @ (advantage @ gradients) for g in gradients]))
    found = interference_metrics([Group(gradients @ gradients.T, advantage, np.ones(5))])
    assert found["probe/interference/sum"] == pytest.approx(slope, abs=1e-9)


def test_no_advantage_no_sum_and_a_missing_sign_no_key() -> None:
    group = some_group(0)
    still = interference_metrics([Group(group.kernel, np.zeros(5), group.tokens_G)])
    assert still == {"probe/interference/sum": 0.0}
    good = interference_metrics([Group(group.kernel, np.ones(5), group.tokens_G)])
    assert not [key for key in good if "negative" in key]
    assert interference_metrics([]) == {}


def test_lower_precision_is_close() -> None:
    episodes, weight = spoken(2, [30, 40], 50, 16)
    half = [EpisodeStates(one.hidden_ND.bfloat16(), one.target_N, one.temperature_N) for one in episodes]
    assert kernel(half, weight.bfloat16()) == pytest.approx(kernel(episodes, weight), rel=0.05, abs=1.0)
