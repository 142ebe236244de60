"""Joined weights: the model is saved, loaded, copied and trained as if nothing had been joined."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from isentrope.engines.native.weights import Weights
from isentrope.learning.optimiser import Optimiser
from isentrope.models.hugging_face import HuggingFaceModel
from isentrope.models.llama import Llama
from isentrope.models.model_adapter import adapt_model
from tests.engines.native.small import MODELS, our_llama


def joined(model: Any, dtype: torch.dtype) -> Weights:
    parts = adapt_model(model)
    assert parts is not None
    return Weights(parts, dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("kind", ["ours", "Llama", "Qwen3"])  # Qwen3's head is not tied
def test_a_checkpoint_holds_the_same_as_without(kind: str, dtype: torch.dtype, tmp_path: Path) -> None:
    model: Any = MODELS[kind]().to(dtype)
    for when in ("before", "after"):
        (tmp_path / when).mkdir()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    model.save(tmp_path / "before")
    joined(model, dtype)
    assert {name for name, p in model.named_parameters() if not torch.equal(p, before[name])} == set()
    model.save(tmp_path / "after")
    size = [(tmp_path / when / "model.safetensors").stat().st_size for when in ("before", "after")]
    assert size[0] == size[1]
    read: Any = Llama.load(tmp_path / "after") if kind == "ours" else HuggingFaceModel.load(tmp_path / "after")
    found = dict(read.named_parameters())
    assert found.keys() == before.keys()
    for name, value in before.items():
        torch.testing.assert_close(found[name].detach().to(dtype), value.to(found[name].device), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_an_optimiser_made_before_writes_into_what_the_engine_reads(dtype: torch.dtype) -> None:
    model = our_llama().to(dtype)
    plain = copy.deepcopy(model)
    optimisers = [Optimiser(m.parameters()) for m in (plain, model)]
    weights = joined(model, dtype)
    for m, optimiser in zip((plain, model), optimisers, strict=True):
        for _ in range(2):
            for parameter in m.parameters():
                (parameter * parameter.detach().sign()).sum().backward()
            optimiser.step(0.0, 1e-2)
    for (name, theirs), ours in zip(plain.named_parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, msg=name)
    for layer in weights.layers:
        torch.testing.assert_close(layer.qkv.weight, torch.cat((layer.own.q, layer.own.k, layer.own.v)), rtol=0, atol=0)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    assert all(float(p.detach().abs().sum()) > 0 for p in model.parameters())


def test_float32_weights_computed_with_in_bfloat16_are_copied_when_told() -> None:
    model = our_llama()
    weights = joined(model, torch.bfloat16)
    assert weights.copies
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 1
    weights.refresh()
    for layer in weights.layers:
        assert torch.equal(layer.qkv.weight, torch.cat((layer.own.q, layer.own.k, layer.own.v)).bfloat16())
        assert torch.equal(layer.down.weight, layer.own.down.bfloat16())
