"""Checks that a Hugging Face model's cached and packed forward passes agree with its own, on a few tokens.

Sampling reads tokens piece by piece with a cache of ours, scoring reads packed rows with a mask of ours. An
architecture that keeps its past elsewhere, or attends in another way, would give other numbers without an error.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from isentrope.core.errors import EngineError
from isentrope.models.policy import Policy
from isentrope.models.token_head import logits

TOKENS, FIRST = 9, 5


@torch.no_grad()
def check_model(policy: Policy) -> None:
    """EngineError if reading whole, packed, piece by piece and by the model itself do not agree."""
    name = type(cast("Any", policy.model).lm).__name__
    try:
        with policy.compute():
            differences = _differences(policy)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # a model's own code may raise anything when it is used in a way it does not know
        raise EngineError(f"{name} is not supported: it cannot be read in packed rows and pieces ({error})") from error
    allowed = 0.3 if policy.weights == torch.bfloat16 or policy.dtype == torch.bfloat16 else 1e-2
    for what, difference in differences.items():
        if not difference <= allowed:
            raise EngineError(
                f"{name} is not supported: {what}, its numbers are off by {difference:.2g} of their size; "
                "only models with full attention, and nothing else that remembers, work here"
            )


def _differences(policy: Policy) -> dict[str, float]:
    model, device = policy.model, policy.device
    vocabulary = model.head_weight().shape[0]
    ids = (torch.arange(1, TOKENS + 1, device=device) * 7919) % vocabulary
    places = torch.arange(TOKENS, device=device)

    def alone(part: Tensor) -> Tensor:
        return model.hidden(part[None], places[None, : len(part)], torch.zeros_like(part)[None])[0]

    whole, second = alone(ids), alone(ids[FIRST:])
    segments = (places >= FIRST).long()[None]
    packed = model.hidden(ids[None], (places - FIRST * segments[0])[None], segments)[0]
    cache = model.new_cache(1)
    parts = (ids[:FIRST], ids[FIRST:])
    pieces = [model.extend(cache, part[None], torch.tensor([len(part)], device=device))[0] for part in parts]
    own: Tensor = cast("Any", policy.model).lm(input_ids=ids[None]).logits[0]
    return {
        "in packed rows": max(_apart(packed[:FIRST], whole[:FIRST]), _apart(packed[FIRST:], second)),
        "read piece by piece": max(_apart(pieces[0], whole[FIRST - 1]), _apart(pieces[1], whole[-1])),
        "in its head": _apart(logits(whole, model.head_weight()), own),
    }


def _apart(a: Tensor, b: Tensor) -> float:
    a, b = a.float(), b.float()
    return float(((a - b).square().sum() / b.square().sum().clamp(min=1e-20)).sqrt())
