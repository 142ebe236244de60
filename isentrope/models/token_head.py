"""The token head: log-prob and entropy of chosen tokens from hidden states, without holding all logits at once.

For a token with logits z / τ, p = softmax(z / τ):
    logp = z_y/τ - logsumexp        H = -Σ p log p
    ∂logp/∂z = (1[y] - p)/τ         ∂H/∂z = -p (log p + H)/τ
Both gradients need only p, which is computed again chunk by chunk in the backward pass.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor

from isentrope.models.memory import chunk_rows


def log_probs(hidden: Tensor, weight: Tensor, temperature: Tensor) -> Tensor:
    """log softmax(h Wᵀ / τ) for every word, in float32."""
    return torch.log_softmax(logits(hidden, weight) / temperature[:, None], dim=-1)


def logits(hidden: Tensor, weight: Tensor) -> Tensor:
    """h Wᵀ in float32: rounded to bfloat16, a logit of 20 would be off by up to 0.06."""
    weight = weight.to(hidden.dtype)
    if hidden.dtype != torch.bfloat16:
        return (hidden @ weight.T).float()
    if hidden.is_cuda:
        return torch.mm(hidden, weight.T, out_dtype=torch.float32)
    return hidden.float() @ weight.float().T


class _TokenHead(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, target_N: Tensor, temperature_N: Tensor, rows: int
    ) -> tuple[Tensor, Tensor]:
        count = hidden_ND.shape[0]
        logp_N = torch.empty(count, dtype=torch.float32, device=hidden_ND.device)
        entropy_N = torch.empty_like(logp_N)
        for a in range(0, count, rows):
            part = slice(a, a + rows)
            words = log_probs(hidden_ND[part], weight_VD, temperature_N[part])
            logp_N[part] = words.gather(1, target_N[part, None]).squeeze(1)
            entropy_N[part] = -(words.exp() * words).sum(-1)
        ctx.save_for_backward(hidden_ND, weight_VD, target_N, temperature_N, entropy_N)
        ctx.rows = rows
        return logp_N, entropy_N

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None, None, None, None]:
        hidden_ND, weight_VD, target_N, temperature_N, entropy_N = ctx.saved_tensors
        grad_logp, grad_entropy = grads
        grad_hidden = torch.empty_like(hidden_ND)
        learns = ctx.needs_input_grad[1]  # a head that stays as it is (adapters) needs no gradient as large as itself
        grad_weight = torch.zeros(weight_VD.shape, dtype=torch.float32, device=weight_VD.device) if learns else None
        for a in range(0, hidden_ND.shape[0], ctx.rows):
            part = slice(a, a + ctx.rows)
            words = log_probs(hidden_ND[part], weight_VD, temperature_N[part])
            p = words.exp()
            g = p * (-grad_logp[part, None] - grad_entropy[part, None] * (words + entropy_N[part, None]))
            g.scatter_add_(1, target_N[part, None], grad_logp[part, None])
            g /= temperature_N[part, None]
            grad_hidden[part] = g.to(hidden_ND.dtype) @ weight_VD.to(hidden_ND.dtype)
            if grad_weight is not None:
                grad_weight += g.T @ hidden_ND[part].float()
        return grad_hidden, None if grad_weight is None else grad_weight.to(weight_VD.dtype), None, None, None


@cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def token_head(
    hidden_ND: Tensor, weight_VD: Tensor, target_N: Tensor, temperature_N: Tensor, rows: int | None = None
) -> tuple[Tensor, Tensor]:
    """(log-prob, entropy) of target tokens, float32, with gradient to hidden states and head weight."""
    if hidden_ND.is_cuda and len(hidden_ND) and _has_triton():
        from isentrope.kernels.head import fused_head

        return fused_head(hidden_ND, weight_VD, target_N, temperature_N, rows)
    return plain_token_head(hidden_ND, weight_VD, target_N, temperature_N, rows)


def plain_token_head(
    hidden_ND: Tensor, weight_VD: Tensor, target_N: Tensor, temperature_N: Tensor, rows: int | None = None
) -> tuple[Tensor, Tensor]:
    """The same in plain torch, on any device; `rows` at a time."""
    rows = rows or chunk_rows(weight_VD.shape[0], hidden_ND.device.type)
    return cast("tuple[Tensor, Tensor]", _TokenHead.apply(hidden_ND, weight_VD, target_N, temperature_N, rows))
