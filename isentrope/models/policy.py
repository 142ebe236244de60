"""A policy: a model and its chat tokenizer; sampling precision, token statistics, saving and snapshots."""

from __future__ import annotations

import copy
import hashlib
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn

from isentrope.core.tokenizer import ChatTokenizer
from isentrope.core.types import TokenBatch, TokenStats
from isentrope.kernels.forward import fast_states, trains_fast
from isentrope.models.kv_cache import Cache
from isentrope.models.token_head import token_head

SAMPLED = 4096  # numbers of a tensor that its fingerprint looks at; all of them would take a minute for large models


class Backbone(Protocol):
    """What sampling and training need of a model. Two exist: our own Llama and any Hugging Face causal LM."""

    def hidden(
        self, ids_BT: Tensor, positions_BT: Tensor, segments_BT: Tensor, parents_BT: Tensor | None = None
    ) -> Tensor: ...

    def head_weight(self) -> Tensor: ...

    def extend(
        self, cache: Cache, ids_RT: Tensor, counts_R: Tensor, rows: Tensor | None = None, seen: int | None = None
    ) -> Tensor: ...

    def extend_all(self, cache: Cache, ids_RT: Tensor, counts_R: Tensor, rows: Tensor | None, seen: int) -> Tensor: ...

    def save(self, folder: Path) -> None: ...

    @property
    def computes_twice(self) -> bool: ...

    def compute_twice(self) -> None:
        """Keep no activations for the backward pass but those between layers; compute the rest again."""
        ...


@dataclass(frozen=True)
class Policy:
    model: Backbone
    tokenizer: ChatTokenizer
    device: torch.device
    dtype: torch.dtype  # of the computation; the weights may be held in float32 or bfloat16

    @property
    def module(self) -> nn.Module:
        assert isinstance(self.model, nn.Module)
        return self.model

    @property
    def weights(self) -> torch.dtype:
        """The precision in which the model's weights are held."""
        return self.model.head_weight().dtype

    @property
    def size(self) -> int:
        """The number of the model's parameters, without adapters."""
        return sum(p.numel() for name, p in self.module.named_parameters() if "lora_" not in name)

    def fingerprint(self) -> str:
        """Tells weights apart that runs begin from, adapters aside: a hash over up to `SAMPLED` numbers of each."""
        told = hashlib.sha256()
        named = dict(self.module.named_parameters())
        plain = {name.removeprefix("inner.").replace(".base_layer", ""): p for name, p in named.items()}
        for name, parameter in sorted(plain.items()):
            if "lora_" not in name:
                flat = parameter.detach().flatten()
                told.update(f"{name} {tuple(parameter.shape)}".encode())
                told.update(flat[:: max(1, flat.numel() // SAMPLED)].float().cpu().numpy().tobytes())
        return told.hexdigest()[:16]

    def compute(self) -> torch.autocast:
        """The precision everything is computed in, for sampling and training alike.

        Float32 weights are cast on the way; bfloat16 weights need no cast, and what a model keeps in float32 for
        precision (norms, rotary angles) stays there by its own code.
        """
        cast = self.dtype == torch.bfloat16 and self.weights == torch.float32
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=cast)

    def save(self, folder: Path) -> None:
        """Write a Hugging Face model folder."""
        self.model.save(folder)
        self.tokenizer.save(folder)

    @property
    def trains_fast(self) -> bool:
        """Whether training has a forward pass of its own here: a Llama-shaped model, in bfloat16 on a GPU or in float32
        on a CPU."""
        return trains_fast(self.model, self.device, self.dtype)

    def states(self, batch: TokenBatch) -> Tensor:
        """The final hidden states of all tokens in the batch's rows."""
        if batch.spans is not None and self.trains_fast:
            return fast_states(self.model, batch.ids_BT, batch.positions_BT, batch.spans, self.dtype)
        shared = () if batch.parents_BT is None else (batch.parents_BT,)
        with self.compute():
            return self.model.hidden(batch.ids_BT, batch.positions_BT, batch.segments_BT, *shared)

    def stats(self, batch: TokenBatch) -> TokenStats:
        """Log-prob, entropy and hidden state of the batch's response tokens, with gradient, from one forward pass."""
        states_BTD = self.states(batch)
        hidden_ND = before(states_BTD, batch)
        # The head works outside of the lower precision, exactly as it does when the engine samples.
        logp_N, entropy_N = token_head(hidden_ND, self.model.head_weight(), batch.target_N, batch.temperature_N)
        return TokenStats(logp_N, entropy_N, hidden_ND, states_BTD)


def before(states_BTD: Tensor, batch: TokenBatch) -> Tensor:
    """The state in front of each response token: what the token was predicted from."""
    flat_N = batch.row_N * states_BTD.shape[1] + batch.col_N - 1
    return states_BTD.flatten(0, 1).index_select(0, flat_N)  # each state once, so its gradient needs no sorting


def snapshot(policy: Policy) -> Policy:
    """The policy with weights of its own, which do not learn."""
    taken = replace(policy, model=copy.deepcopy(policy.model))
    taken.module.requires_grad_(False)
    return taken


@torch.no_grad()
def follow(taken: Policy, policy: Policy) -> None:
    """Give a snapshot the weights that the policy has now."""
    old, new = (chain(p.module.parameters(), p.module.buffers()) for p in (taken, policy))
    for mine, theirs in zip(old, new, strict=True):
        mine.copy_(theirs)
    if policy.device.type == "cuda":
        torch.cuda.synchronize(policy.device)  # another thread is going to read them, perhaps on a stream of its own
