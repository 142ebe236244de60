"""Drawing tokens: the kernel against numbers worked out by hand, in numpy, and as a distribution."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isentrope.engines.native import draw as module
from isentrope.engines.native.draw import Rows, draw
from tests.builders.sizes import EXPLORE
from tests.engines.native.small import DEVICE

pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in")  # by the interpreter


def rows_of(uniforms: np.ndarray, temperatures: np.ndarray) -> Rows:
    count = len(temperatures)
    ints = torch.zeros(count, dtype=torch.int32, device=DEVICE)
    return Rows(
        ids=ints.clone(),
        positions=ints + 7,
        counts=ints.clone(),
        limits=ints + 100,
        tail=torch.zeros(count, 8, dtype=torch.int32, device=DEVICE),
        temperatures=torch.tensor(temperatures, dtype=torch.float32, device=DEVICE),
        uniforms=torch.tensor(uniforms, dtype=torch.float32, device=DEVICE),
        table=ints[:, None],
    )


def drawn(logits: np.ndarray, uniforms: np.ndarray, temperatures: np.ndarray) -> np.ndarray:
    """Token, log-prob and entropy of each row."""
    rows = rows_of(uniforms[:, None], temperatures)
    out = torch.zeros(3, len(logits), device=DEVICE)
    everyone = torch.arange(len(logits), dtype=torch.int32, device=DEVICE)
    draw(torch.tensor(logits, dtype=torch.float32, device=DEVICE), everyone, rows, out, step=True)
    return out.cpu().numpy()


def by_hand(z: np.ndarray, u: float, t: float) -> tuple[int, float, float]:
    """The plain way, in float64."""
    z = z.astype(np.float64) / (t or 1.0)
    p = np.exp(z - z.max())
    p /= p.sum()
    token = int(z.argmax()) if t == 0 else int(min(np.searchsorted(p.cumsum(), u, side="right"), np.flatnonzero(p)[-1]))
    there = p[p > 0]
    return token, float(np.log(p[token])), float(-(there * np.log(there)).sum())


def test_a_case_worked_out_by_hand():
    # probabilities 1/2, 1/4, 1/4: cumulative 0.5, 0.75, 1
    z = np.log(np.array([[2.0, 1.0, 1.0]] * 4))
    token, logp, entropy = drawn(z, np.array([0.0, 0.49, 0.51, 0.99]), np.ones(4))
    assert token.tolist() == [0, 0, 1, 2]
    np.testing.assert_allclose(logp, np.log([0.5, 0.5, 0.25, 0.25]), atol=1e-6)
    np.testing.assert_allclose(entropy, 1.5 * np.log(2), atol=1e-6)


@given(st.integers(0, 10**6), st.sampled_from([5, 97, 700]), st.sampled_from([0.0, 0.3, 1.0, 2.0]))
@settings(max_examples=6)
def test_many_blocks_of_words_give_what_the_plain_way_gives(seed: int, words: int, temperature: float):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(3, words)) * 4
    z[:, rng.integers(words)] = -np.inf  # a word that cannot be
    u = rng.random(3).astype(np.float32)
    old, module.BLOCK = module.BLOCK, 128
    try:
        found = drawn(z, u, np.full(3, temperature))
    finally:
        module.BLOCK = old
    for i in range(3):
        token, logp, entropy = by_hand(z[i], float(u[i]), temperature)
        if int(found[0, i]) != token:  # only where the uniform number falls onto the border of two words
            shares = np.exp(z[i] / (temperature or 1.0) - (z[i] / (temperature or 1.0)).max())
            border = (shares / shares.sum()).cumsum()[min(token, int(found[0, i]))]
            assert abs(border - u[i]) < 1e-5
            continue
        np.testing.assert_allclose([found[1, i], found[2, i]], [logp, entropy], atol=2e-5)


def test_frequencies_follow_the_probabilities():
    """With uniform numbers at equal distances the count of the first k words is off by one draw at most.

    The words share three blocks. Random draws would need thousands to tell as much."""
    z, count = np.random.default_rng(0).normal(size=40), 60 if EXPLORE else 24
    old, module.BLOCK = module.BLOCK, 16
    try:
        tokens = drawn(np.repeat(z[None], count, 0), (np.arange(count) + 0.5) / count, np.full(count, 0.8))[0]
    finally:
        module.BLOCK = old
    p = np.exp(z / 0.8) / np.exp(z / 0.8).sum()
    seen = np.bincount(tokens.astype(int), minlength=40)
    assert np.abs(seen.cumsum() - count * p.cumsum()).max() < 1


def test_only_named_rows_move_on_and_only_if_they_are_to():
    z = torch.zeros(2, 8, device=DEVICE)
    rows = rows_of(np.array([[0.1, 0.9], [0.3, 0.3], [0.6, 0.2]]), np.ones(3))
    rows.positions[1] = -1
    out = torch.full((3, 3), -1.0, device=DEVICE)
    named = torch.tensor([2, -1], dtype=torch.int32, device=DEVICE)
    draw(z, named, rows, out, step=True, commit=False)
    assert (out[0].tolist(), rows.counts.tolist(), rows.positions.tolist()) == ([-1, -1, 4], [0, 0, 0], [7, -1, 7])
    draw(z, named, rows, out, step=False)
    assert (rows.ids.tolist(), rows.counts.tolist(), rows.positions.tolist()) == ([0, 0, 4], [0, 0, 1], [7, -1, 7])
    draw(z, named, rows, out, step=True)  # the second number of the row
    assert (rows.ids.tolist(), rows.counts.tolist(), rows.positions.tolist()) == ([0, 0, 1], [0, 0, 2], [7, -1, 8])
