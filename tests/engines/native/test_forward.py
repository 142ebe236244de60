"""The fast forward pass against each model's own, in float32: prefill, appended runs, single tokens, parts, pages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from isentrope.engines.native import attention
from isentrope.engines.native.attention import make_splits
from isentrope.engines.native.forward import Forward
from tests.builders.sizes import EXPLORE
from tests.engines.native import small
from tests.engines.native.small import (
    CONTEXT,
    DEVICE,
    MODELS,
    WORDS,
    make_forward,
    packed,
    plain_logits,
)
from tests.models.adapters import ALL_WEIGHTS, with_adapters

TOLERANCE = 2e-4  # of logits whose spread is about 20, in float32
LENGTHS = {0: 5, 1: 70, 3: 16}  # within a page, over several pages and programs, exactly one page
SHORT = {0: 3, 1: 18, 3: 16}  # as above with one program: for what does not depend on how many there are
FULL = EXPLORE or DEVICE.type == "cuda"  # the interpreter takes long for each program


def some_tokens(count: int, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(WORDS, size=count).tolist()


def place(forward: Forward, row: int, position: int, token: int) -> None:
    forward.rows.positions[row], forward.rows.ids[row] = position, token


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("as_small", [True, False], ids=["as a small model", "product by product"])
@pytest.mark.parametrize("kind", MODELS)
def test_prefill_appending_and_single_tokens_equal_the_whole_pass(kind: str, as_small: bool):
    if FULL or (kind == "ours" and not as_small):
        equals_the_whole_pass(kind, as_small, LENGTHS, appended=18, part=32)
    else:
        equals_the_whole_pass(kind, as_small, SHORT, appended=2, part=16)


@pytest.mark.parametrize("targets", [ALL_WEIGHTS, ("q_proj", "v_proj", "up_proj")], ids=["all", "some"])
@pytest.mark.parametrize("kind", ["ours", "Qwen2"])  # without and with biases
def test_adapters_are_added_to_what_they_stand_beside(kind: str, targets: tuple[str, ...]) -> None:
    pytest.importorskip("peft", reason="pip install 'isentrope[hf]'")
    model = with_adapters(MODELS[kind](), targets)
    whole_pass(model, None, LENGTHS if FULL else SHORT, appended=18 if FULL else 2, part=32 if FULL else 16)


def test_adapters_that_have_learnt_more_are_read_after_a_refresh() -> None:
    pytest.importorskip("peft", reason="pip install 'isentrope[hf]'")
    model, tokens = with_adapters(MODELS["Qwen2"]()), some_tokens(9, 0)
    forward = make_forward(model)
    with torch.no_grad():
        before = forward.prefill(packed({0: (0, tokens)}))
        for weight in model.adapters().values():
            weight *= 1.2
        forward.weights.refresh()
        after = forward.prefill(packed({0: (0, tokens)}))
    close(after[0], plain_logits(model, tokens)[-1])
    assert float((after - before).abs().max()) > 100 * TOLERANCE


def equals_the_whole_pass(kind: str, as_small: bool, lengths: dict[int, int], appended: int, part: int) -> None:
    whole_pass(MODELS[kind](), as_small, lengths, appended, part)


def whole_pass(model: Any, as_small: bool | None, lengths: dict[int, int], appended: int, part: int) -> None:
    forward = make_forward(model, as_small=as_small)
    kv, size = forward.cache.shape[3], forward.cache.shape[5]
    tokens = {row: some_tokens(length + appended + 3, row) for row, length in lengths.items()}
    expected = {row: plain_logits(model, some) for row, some in tokens.items()}
    with torch.no_grad():
        first = forward.prefill(packed({row: (0, tokens[row][:n]) for row, n in lengths.items()}, padding=7))
        for found, (row, n) in zip(first, lengths.items(), strict=True):
            close(found, expected[row][n - 1])
        more = forward.prefill(packed({row: (n, tokens[row][n : n + appended]) for row, n in lengths.items()}))
        for found, (row, n) in zip(more, lengths.items(), strict=True):
            close(found, expected[row][n + appended - 1])
        for k in range(3):
            for row, n in lengths.items():
                place(forward, row, n + appended + k, tokens[row][n + appended + k])
            # in one part, and in parts of which a long row has several and a short one has not
            splits = make_splits(4, kv, size, part if k else CONTEXT, 5 if k else 1, DEVICE)
            found = forward.decode(4, splits)
            for row, n in lengths.items():
                close(found[row], expected[row][n + appended + k])
            assert not splits.arrived.any()  # ready for the next step


def test_a_row_with_nobody_in_it_changes_nothing():
    model = MODELS["ours"]()
    forward = make_forward(model)
    tokens = some_tokens(40, 0)
    with torch.no_grad():
        forward.prefill(packed({1: (0, tokens[:39])}))
        before = forward.cache.clone()
        place(forward, 1, 39, tokens[39])
        forward.decode(4, make_splits(4, 2, 16, CONTEXT, 1, DEVICE))
    changed = (forward.cache.nan_to_num() != before.nan_to_num()).any(dim=-1).any(dim=3).any(dim=0).any(dim=0)
    assert changed.sum() == 1  # one place of one page: the new token's
    page = int(forward.rows.table[1, 39 // 16])
    assert bool(changed[page].any())


def test_a_prompt_can_begin_with_pages_that_another_fills_in_the_same_pass():
    model = MODELS["Llama"]()
    forward = make_forward(model)
    shared, ends = some_tokens(32, 0), [some_tokens(9, 1), some_tokens(20, 2)]
    forward.rows.table[2, :2] = forward.rows.table[0, :2]
    with torch.no_grad():
        found = forward.prefill(packed({0: (0, shared + ends[0]), 2: (32, ends[1])}))
    close(found[0], plain_logits(model, shared + ends[0])[-1])
    close(found[1], plain_logits(model, shared + ends[1])[-1])


@pytest.mark.skipif(DEVICE.type != "cuda", reason="needs a GPU: Triton's interpreter has no bfloat16 arithmetic")
@pytest.mark.parametrize("kind", ["ours", "Qwen2", "Qwen3"])
@pytest.mark.parametrize("held", [torch.bfloat16, torch.float32], ids=["bfloat16 weights", "float32 weights"])
@pytest.mark.parametrize("as_small", [True, False], ids=["as a small model", "product by product"])
def test_in_bfloat16_it_is_about_as_exact_as_the_models_own_pass(kind: str, held: torch.dtype, as_small: bool):
    model = MODELS[kind]()
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16().float()
    tokens = some_tokens(23, 0)
    exact = plain_logits(model, tokens)[[21, 22]]
    for parameter in model.parameters():
        parameter.data = parameter.data.to(held)
    with torch.autocast(DEVICE.type, torch.bfloat16, enabled=held == torch.float32):
        own = plain_logits(model, tokens)[[21, 22]]
    forward = make_forward(model, dtype=torch.bfloat16, as_small=as_small)
    kv, size = forward.cache.shape[3], forward.cache.shape[5]
    with torch.no_grad():
        first = forward.prefill(packed({1: (0, tokens[:22])}))[0]
        place(forward, 1, 22, tokens[22])
        found = torch.stack([first, forward.decode(4, make_splits(4, kv, size, CONTEXT, 1, DEVICE))[1]])
    apart = [float((each.float() - exact).norm() / exact.norm()) for each in (found, own)]
    assert apart[0] < 2 * apart[1] < 0.1


def test_pages_may_be_larger_than_what_is_read_at_a_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(small, "PAGE", 128)
    lengths = LENGTHS if FULL else {1: 66}  # the second half of a page is read too
    equals_the_whole_pass("ours", False, lengths, appended=2, part=128)


def test_many_programs_read_smaller_blocks_and_find_the_same(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(small, "PAGE", 64)
    monkeypatch.setattr(attention, "CROWDED", 1)
    lengths = LENGTHS if FULL else {0: 3, 1: 34}  # more than a block, which is half a page
    equals_the_whole_pass("ours", False, lengths, appended=2, part=64)
