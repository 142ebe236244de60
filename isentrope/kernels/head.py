"""The token head on a GPU: a matrix product per chunk and one kernel over its rows, forward and backward.

The plain head (models/token_head.py) is the reference. Here each chunk of logits is written and read once per pass,
where plain torch reads and writes it about eight times. Logits are float32, as there; with bfloat16 states their
gradient is rounded to bfloat16 before it is multiplied with states and weight, sums are float32.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor

from isentrope.models.token_head import chunk_rows, logits


@cache
def has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


class _FusedHead(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, target_N: Tensor, temperature_N: Tensor, rows: int
    ) -> tuple[Tensor, Tensor]:
        from isentrope.kernels import head_triton

        parts = [slice(a, a + rows) for a in range(0, hidden_ND.shape[0], rows)]
        found = [
            head_triton.stats(logits(hidden_ND[part], weight_VD), target_N[part], temperature_N[part]) for part in parts
        ]
        logp_N, norm_N, entropy_N = (torch.cat(values) for values in zip(*found, strict=True))
        ctx.save_for_backward(hidden_ND, weight_VD, target_N, temperature_N, norm_N, entropy_N)
        ctx.parts = parts
        return logp_N, entropy_N

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None, None, None, None]:
        from isentrope.kernels import head_triton

        hidden_ND, weight_VD, target_N, temperature_N, norm_N, entropy_N = ctx.saved_tensors
        grad_logp, grad_entropy = (grad.contiguous() for grad in grads)
        weight = weight_VD.to(hidden_ND.dtype)
        grad_hidden = torch.empty_like(hidden_ND)
        grad_weight: Tensor | None = None
        for part in ctx.parts:
            words = logits(hidden_ND[part], weight)
            incoming = (grad_logp[part], grad_entropy[part])
            g = head_triton.gradient(
                words, target_N[part], temperature_N[part], norm_N[part], entropy_N[part], incoming, hidden_ND.dtype
            )
            del words
            grad_hidden[part] = g @ weight
            if ctx.needs_input_grad[1]:  # a head that stays as it is (adapters) needs no gradient as large as itself
                share = _product(g.T, hidden_ND[part])
                grad_weight = share if grad_weight is None else grad_weight.add_(share)
        return grad_hidden, None if grad_weight is None else grad_weight.to(weight_VD.dtype), None, None, None


def _product(a: Tensor, b: Tensor) -> Tensor:
    """a b in float32, whatever they are held in."""
    if a.is_cuda and a.dtype == torch.bfloat16:
        return torch.mm(a, b, out_dtype=torch.float32)
    return a.float() @ b.float()


def fused_head(
    hidden_ND: Tensor, weight_VD: Tensor, target_N: Tensor, temperature_N: Tensor, rows: int | None = None
) -> tuple[Tensor, Tensor]:
    """As `head.token_head`: (log-prob, entropy) of target tokens, float32, with gradient to states and weight."""
    rows = rows or chunk_rows(weight_VD.shape[0], hidden_ND.device.type)
    inputs = (hidden_ND, weight_VD, target_N.contiguous(), temperature_N.float().contiguous())
    return cast("tuple[Tensor, Tensor]", _FusedHead.apply(*inputs, rows))
