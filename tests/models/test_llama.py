"""Our Llama against transformers' Llama, packed rows against single ones, the cache against no cache."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from isentrope.models.kv_cache import Cache
from isentrope.models.llama import Llama
from tests.models.helpers import small_model


def alone(model: Llama, ids: list[int]) -> torch.Tensor:
    row = torch.tensor([ids])
    return model.hidden(row, torch.arange(len(ids))[None], torch.zeros_like(row))[0]


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_equal_to_transformers(tmp_path: Path, kv_heads: int) -> None:
    transformers = pytest.importorskip("transformers", reason="pip install 'isentrope[hf]'")
    model = small_model(3, kv_heads=kv_heads)
    model.save(tmp_path)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    ids = [5, 7, 3, 21, 8, 5, 30]
    with torch.no_grad():
        expected = theirs(torch.tensor([ids])).logits[0]
        torch.testing.assert_close(alone(model, ids) @ model.head_weight().T, expected, rtol=1e-4, atol=1e-4)


def test_saved_and_loaded(tmp_path: Path) -> None:
    model = small_model(1)
    model.save(tmp_path)
    again = Llama.load(tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))


@torch.no_grad()
def test_packed_rows_equal_single_ones() -> None:
    model = small_model()
    first, second = [5, 7, 3, 21], [9, 1, 30]
    ids = torch.tensor([[*first, *second, 0, 0]])
    segments = torch.tensor([[0] * 4 + [1] * 3 + [-1] * 2])
    positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 0, 0]])
    packed = model.hidden(ids, positions, segments)[0]
    torch.testing.assert_close(packed[:4], alone(model, first), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(packed[4:7], alone(model, second), rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_cache_equals_no_cache_with_uneven_rows_and_rows_left_out() -> None:
    model = small_model()
    generator = torch.Generator().manual_seed(0)
    cache, texts = Cache(4, torch.device("cpu")), [[] for _ in range(4)]
    for rows, counts in [(None, [3, 1, 5, 2]), ([0, 2], [1, 4]), (None, [2, 2, 1, 6]), ([3], [2])]:
        which = list(range(4)) if rows is None else rows
        ids = torch.randint(40, (len(which), max(counts)), generator=generator)
        last = model.extend(cache, ids, torch.tensor(counts), None if rows is None else torch.tensor(rows))
        for i, (row, count) in enumerate(zip(which, counts, strict=True)):
            texts[row] += ids[i, :count].tolist()
            torch.testing.assert_close(last[i], alone(model, texts[row])[-1], rtol=1e-4, atol=1e-5)
    cache.keep(torch.tensor([1, 3]))
    last = model.extend(cache, torch.tensor([[4], [6]]), torch.tensor([1, 1]))
    torch.testing.assert_close(last[1], alone(model, [*texts[3], 6])[-1], rtol=1e-4, atol=1e-5)
