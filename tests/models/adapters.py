"""Adapters on any model, that have learnt already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from isentrope.models.lora import Base, LoraModel

ALL_WEIGHTS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def with_adapters(model: Any, targets: Sequence[str] = ALL_WEIGHTS) -> LoraModel:
    """Of rank 3, which fills no block of a matrix product, and far from zero."""
    from peft import LoraConfig

    adapted = LoraModel(model, LoraConfig(r=3, lora_alpha=6, target_modules=list(targets)), Base("base", "base"))
    made = torch.Generator().manual_seed(4)
    for weight in adapted.adapters().values():
        weight.data.copy_(0.3 * torch.randn(weight.shape, generator=made))
    return adapted
