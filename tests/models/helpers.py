"""Small policies for tests."""

from __future__ import annotations

import torch

from isentrope.models.llama import Llama, Shape
from isentrope.models.policy import Policy
from isentrope.models.sources.pocket import PocketTokens

PHRASES = [" apple", " 1", " 2", "You arrive at", ", you see a", " go", " to", " desk", "look", "go to"]


def small_model(seed: int = 0, vocabulary: int = 40, kv_heads: int = 2) -> Llama:
    """A model whose predictions are far from uniform, so that a wrong mask or position shows."""
    model = Llama(Shape(vocabulary=vocabulary, width=32, layers=2, heads=4, kv_heads=kv_heads, inner=48))
    model.initialise(torch.Generator().manual_seed(seed))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(6)
    return model.eval()


def small_policy(seed: int = 0) -> Policy:
    tokens = PocketTokens(PHRASES)
    return Policy(small_model(seed, tokens.size), tokens, torch.device("cpu"), torch.float32)
