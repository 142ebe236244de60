"""A copy of a policy that stays as it is while the policy learns."""

from __future__ import annotations

import copy
from dataclasses import replace
from itertools import chain

import torch

from isentrope.policy.policy import Policy


def snapshot(policy: Policy) -> Policy:
    """The policy with weights of its own, which do not learn."""
    model = copy.deepcopy(policy.model)
    taken = replace(policy, model=model)
    taken.module.requires_grad_(False)
    return taken


@torch.no_grad()
def follow(taken: Policy, policy: Policy) -> None:
    """Give a snapshot the weights that the policy has now."""
    pairs = zip(_tensors(taken), _tensors(policy), strict=True)
    for mine, theirs in pairs:
        mine.copy_(theirs)
    if policy.device.type == "cuda":
        torch.cuda.synchronize(policy.device)  # another thread is going to read them, perhaps on a stream of its own


def _tensors(policy: Policy) -> chain[torch.Tensor]:
    return chain(policy.module.parameters(), policy.module.buffers())
