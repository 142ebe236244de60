"""One step of supervised learning: makes the tokens of given episodes more likely."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import torch
from torch import Tensor

from isentrope.core.types import Episode
from isentrope.learning.optimiser import Optimiser
from isentrope.learning.packing import micro_batches
from isentrope.learning.tokens import flatten
from isentrope.models.policy import Policy


def imitate(
    policy: Policy,
    optimiser: Optimiser,
    episodes: Sequence[Episode],
    rate: float,
    micro_tokens: int,
    all_tokens: bool = False,
) -> tuple[float, float]:
    """One update. Gives the cross-entropy per token, in nats, and the gradient's norm."""
    sequences, tokens = flatten(episodes, all_tokens)
    # plain cross-entropy, whatever temperature the tokens were sampled with
    tokens = replace(tokens, temperature_N=np.ones_like(tokens.temperature_N))
    losses: list[Tensor] = []
    for batch in micro_batches(sequences, tokens, micro_tokens=micro_tokens, device=policy.device):
        loss = -(batch.weights["token"] * policy.stats(batch).logp_N).sum()
        loss.backward()
        losses.append(loss.detach())
    total = sum(cast("list[float]", torch.stack(losses).tolist()), 0.0) if losses else 0.0
    return total, optimiser.step(total, rate)
