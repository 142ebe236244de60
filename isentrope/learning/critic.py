"""The critic of PPO: predicts the value of the state in front of every response token.

`separate` is a copy of the policy's model with a linear head of its own; `head` puts the linear head on the policy's
hidden states, which costs next to nothing. The head begins at zero: every value is 0 until the critic has learnt.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from isentrope.config.schema import CriticSettings, LearnSettings
from isentrope.core.types import TokenBatch
from isentrope.learning.group import ALONE, Group
from isentrope.learning.optimiser import Optimiser
from isentrope.models.policy import Policy, before


class Critic:
    def __init__(self, policy: Policy, settings: CriticSettings, learn: LearnSettings, group: Group = ALONE) -> None:
        self.settings, self.group = settings, group
        self.body = replace(policy, model=copy.deepcopy(policy.model)) if settings.kind == "separate" else None
        width = policy.model.head_weight().shape[1]
        self.head = nn.Linear(width, 1).to(policy.device)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        body = list(self.body.module.parameters()) if self.body else []
        self.optimiser = Optimiser(
            [*body, *self.head.parameters()],
            betas=(learn.beta1, learn.beta2),
            weight_decay=learn.weight_decay,
            grad_clip=learn.grad_clip,
            max_skips=learn.max_skips,
            master_weights=learn.master_weights,
            kind=learn.optimiser,
            moments=learn.moments,
            group=group,
        )

    @property
    def reaches_policy(self) -> bool:
        """Whether the values' gradient goes on into the policy."""
        return self.body is None and self.settings.trunk > 0

    def values(self, batch: TokenBatch, policy_hidden_ND: Tensor | None) -> Tensor:
        """One value per response token."""
        if self.body:
            hidden = before(self.body.states(batch), batch)
        else:
            assert policy_hidden_ND is not None
            cut, trunk = policy_hidden_ND.detach(), self.settings.trunk
            hidden = cut + trunk * (policy_hidden_ND - cut) if trunk else cut
        return self.head(hidden.float()).squeeze(-1)

    def _body(self) -> list[tuple[str, nn.Parameter]]:
        """What learns of the body, by parameter: a module that is registered under two names is there once."""
        if self.body is None:
            return []
        return [(name, p) for name, p in self.body.module.named_parameters() if p.requires_grad]

    def state_dict(self) -> dict[str, Any]:
        return {
            "head": dict(self.head.state_dict()),
            "body": {name: p.detach() for name, p in self._body()},
            "optimiser": self.optimiser.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any] | None) -> None:
        """Of N ranks the first has it; None at the others."""
        if state is not None:
            self.head.load_state_dict(state["head"])
            with torch.no_grad():
                for name, parameter in self._body():
                    parameter.copy_(state["body"][name])
        self.group.spread([*self.head.parameters(), *(parameter for _, parameter in self._body())])
        self.optimiser.load_state_dict(None if state is None else state["optimiser"])


def explained_variance(value: Tensor, target: Tensor) -> float:
    """1 - Var(target - value) / Var(target): 1 for a perfect critic, 0 for one that knows the mean only."""
    spread = float(torch.var(target, correction=0))
    return 1 - float(torch.var(target - value, correction=0)) / spread if spread > 0 else 0.0
