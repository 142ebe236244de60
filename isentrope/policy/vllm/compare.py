"""Whether vLLM has the policy's weights: its first response, scored by the policy itself.

vLLM starts with random weights and takes the policy's by name. A name that it does not know would leave a layer
random, and nothing else would tell.
"""

from __future__ import annotations

import torch

from isentrope.errors import EngineError
from isentrope.policy.engine import Request, Sampled
from isentrope.policy.head import log_probs
from isentrope.policy.policy import Policy
from isentrope.types import measured_at

ALLOWED = 0.5  # nats a token; kernels and bfloat16 differ by hundredths, a random layer by several


@torch.no_grad()
def compare(policy: Policy, request: Request, sampled: Sampled) -> None:
    start, device = len(request.prompt), policy.device
    ids = torch.tensor([[*request.prompt, *sampled.ids.tolist()]], device=device)
    places = torch.arange(ids.shape[1], device=device)[None]
    with policy.compute():
        hidden = policy.model.hidden(ids, places, torch.zeros_like(ids))[0, start - 1 : -1]
    temperatures = torch.from_numpy(measured_at(sampled.temperatures)).to(device)
    words = log_probs(hidden, policy.model.head_weight(), temperatures)
    own = words.gather(1, ids[0, start:, None]).squeeze(1).cpu()
    apart = float((own - torch.from_numpy(sampled.logprobs)).abs().mean())
    if not apart <= ALLOWED:
        raise EngineError(
            f"vLLM and the policy disagree on vLLM's first response by {apart:.2f} nats a token: vLLM did not take all "
            "of this model's weights. Use engine.kind=torch; docs/engines.md says which models were tried"
        )
