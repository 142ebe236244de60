"""Beginnings that a group shares: found, laid out once, and the same numbers and gradients as without."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isentrope.core.types import Episode
from isentrope.learning import prefix_sharing
from isentrope.learning.packing import micro_batches
from isentrope.learning.prefix_sharing import PARENT_COST, Beginning, bundles
from isentrope.learning.tokens import flatten
from isentrope.models.policy import before
from tests.builders.episodes import make_episodes
from tests.models.helpers import small_model, small_policy


def beginnings(prompts: list[list[int]], rest: int = 3, group: int = 0) -> list[Beginning]:
    return [
        Beginning(i, group, np.array(prompt, dtype=np.int64), len(prompt) + rest) for i, prompt in enumerate(prompts)
    ]


def test_a_shared_prompt_is_one_bundle_and_others_stay_alone() -> None:
    long, other = list(range(100)), list(range(500, 580))
    found = bundles(beginnings([long, other, [*long, 7], long]), 10_000)
    assert [(b.members, b.shared, b.width) for b in found] == [((0, 2, 3), 100, 110), ((1,), 0, 83)]


def test_two_prompts_of_one_group_are_two_bundles() -> None:
    """They have 40 tokens in common, but each pair has 200."""
    start = list(range(40))
    a, b = [*start, *range(1000, 1160)], [*start, *range(2000, 2160)]
    found = bundles(beginnings([a, b, a, b]), 10_000)
    assert [(x.members, x.shared) for x in found] == [((0, 2), 200), ((1, 3), 200)]


def test_groups_do_not_mix_and_a_bundle_fits_a_row() -> None:
    prompt = list(range(100))
    first = beginnings([prompt] * 6)
    second = [replace(b, number=b.number + 6, group=1) for b in first]
    found = bundles([*first, *second], 112)
    assert sorted(number for b in found for number in b.members) == list(range(12))
    for b in found:
        assert b.width <= 112
        assert len({number // 6 for number in b.members}) == 1
    assert sum(b.width for b in found) == 4 * (100 + 3 * 3)


def test_nothing_is_shared_where_it_does_not_pay() -> None:
    """Little in common with long answers, or a beginning shorter than what one more parent costs."""
    assert all(not b.shared for b in bundles(beginnings([list(range(60))] * 3, rest=2000), 10_000))
    assert all(not b.shared for b in bundles(beginnings([list(range(PARENT_COST // 2))] * 2, rest=1), 10_000))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.integers(0, 2), min_size=0, max_size=9), min_size=1, max_size=7), st.integers(1, 60))
def test_members_really_begin_alike_and_everyone_is_there_once(prompts: list[list[int]], capacity: int) -> None:
    known, price = beginnings(prompts), prefix_sharing.PARENT_COST
    prefix_sharing.PARENT_COST = 0
    try:
        found = bundles(known, capacity)
    finally:
        prefix_sharing.PARENT_COST = price
    assert sorted(n for b in found for n in b.members) == list(range(len(prompts)))
    for b in found:
        heads = [prompts[n][: b.shared] for n in b.members]
        assert all(len(head) == b.shared and head == heads[0] for head in heads)
        assert b.width == b.shared + sum(known[n].length - b.shared for n in b.members)
        assert len(b.members) == 1 or b.width <= capacity


def alike(seed: int, full: bool, prompt: int = 30) -> list[Episode]:
    """Episodes whose turns that do not continue begin with their group's own prompt; group 0 has nothing else."""
    rng = np.random.default_rng(seed + 100)
    prompts = {group: rng.integers(0, 40, prompt).astype(np.int32) for group in range(3)}
    return [
        replace(
            e,
            turns=tuple(
                t
                if t.continues
                else replace(t, context_ids=np.concatenate([prompts[e.group], t.context_ids[: 9 * e.group]]))
                for t in e.turns
            ),
        )
        for e in make_episodes(seed, full=full)
    ]


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("row", [0, 150, 400])
def test_shared_rows_give_the_same_numbers_states_and_gradients(full: bool, row: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(prefix_sharing, "PARENT_COST", 4)
    policy = small_policy()
    sequences, tokens = flatten(alike(5, full))
    found: list[tuple[dict[int, tuple[Any, ...]], torch.Tensor]] = []
    sizes: list[int] = []
    for share, fast in ((False, False), (False, True), (True, False), (True, True)):  # without: dense, under a mask
        monkeypatch.setattr("isentrope.models.policy.trains_fast", lambda *_, fast=fast: fast)
        policy.module.zero_grad()
        numbers: dict[int, tuple[Any, ...]] = {}
        size = 0
        for batch in micro_batches(sequences, tokens, row_tokens=row, micro_tokens=500, share=share):
            size += int((batch.segments_BT >= 0).sum())
            assert (batch.parents_BT is not None) <= share
            stats = policy.stats(batch)
            at = stats.states_BTD[batch.row_N, batch.col_N]
            (batch.weights["turn"] * (stats.logp_N.sin() + stats.entropy_N + at.sum(-1))).sum().backward()
            torch.testing.assert_close(batch.ids_BT[batch.row_N, batch.col_N], batch.target_N)
            torch.testing.assert_close(before(stats.states_BTD, batch), stats.hidden_ND)
            columns = zip(
                batch.number_N.tolist(), stats.logp_N.tolist(), stats.entropy_N.tolist(), at.sum(-1).tolist(),
                strict=True,
            )  # fmt: skip
            numbers |= {number: rest for number, *rest in columns}
        sizes.append(size)
        found.append((numbers, torch.cat([p.grad.flatten() for p in policy.module.parameters() if p.grad is not None])))
    (plain, plain_grad), *others = found
    assert sizes[3] < 0.9 * sizes[0] or row == 0
    for other, other_grad in others:
        assert sorted(plain) == sorted(other) == list(range(len(tokens.target_N)))
        for number, values in plain.items():
            assert other[number] == pytest.approx(values, abs=2e-4)
        assert float((other_grad - plain_grad).norm() / plain_grad.norm()) < 1e-5


def test_in_float64_shared_and_whole_agree_to_the_last_digits() -> None:
    """One prompt of 50 tokens and three endings, against each sequence in a row of its own."""
    model = small_model().double()
    model.frequencies = model.get_buffer("frequencies").double()
    rng = np.random.default_rng(0)
    prompt, endings = rng.integers(0, 40, 50), [rng.integers(0, 40, n) for n in (4, 1, 7)]
    ids = np.concatenate([prompt, *endings])
    segments = np.repeat(np.arange(4), [50, 4, 1, 7])
    parents = np.where(segments > 0, 0, -2)
    positions = np.concatenate([np.arange(50), *(50 + np.arange(len(e)) for e in endings)])
    together = model.hidden(*(torch.from_numpy(x)[None] for x in (ids, positions, segments, parents)))[0]
    for number, ending in enumerate(endings, 1):
        row = torch.from_numpy(np.concatenate([prompt, ending]))[None]
        alone = model.hidden(row, torch.arange(row.shape[1])[None], torch.zeros_like(row))[0, 50:]
        torch.testing.assert_close(together[torch.from_numpy(segments == number)], alone, rtol=1e-6, atol=1e-6)


def test_language_modelling_shares_nothing() -> None:
    sequences, tokens = flatten(alike(1, True), all_tokens=True)
    for batch in micro_batches(sequences, tokens, share=True):
        assert batch.parents_BT is None
