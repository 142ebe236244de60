"""What the policy itself makes of a response that an engine elsewhere has sampled: the same numbers, if the engine has
the policy's weights."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from isentrope.core.engine import Request, Sampled
from isentrope.core.types import measured_at
from isentrope.models.policy import Policy
from isentrope.models.token_head import log_probs


@torch.no_grad()
def own_numbers(policy: Policy, request: Request, sampled: Sampled) -> NDArray[np.float32]:
    """[2, tokens]: log-prob and entropy of each token, by one pass over prompt and response."""
    start, device = len(request.prompt), policy.device
    ids = torch.tensor([[*request.prompt, *sampled.ids.tolist()]], device=device)
    places = torch.arange(ids.shape[1], device=device)[None]
    with policy.compute():
        hidden = policy.model.hidden(ids, places, torch.zeros_like(ids))[0, start - 1 : -1]
    temperatures = torch.from_numpy(measured_at(sampled.temperatures)).to(device)
    words = log_probs(hidden, policy.model.head_weight(), temperatures)
    p = words.exp()
    entropies = -torch.where(p > 0, p * words, 0.0).sum(-1)
    logprobs = words.gather(1, ids[0, start:, None]).squeeze(1)
    numbers: NDArray[np.float32] = torch.stack([logprobs, entropies]).float().cpu().numpy()
    return numbers
