"""The token head on a GPU: a matrix product per chunk and one kernel over its rows, forward and backward.

The plain head (models/token_head.py) is the reference. Here each chunk of logits is written and read once per pass,
where plain torch reads and writes it about eight times. Logits are float32, as there; with bfloat16 states their
gradient is rounded to bfloat16 before it is multiplied with states and weight, sums are float32. `stats` reads each row
of logits once and gives log-prob, log of the normaliser and entropy; `gradient` reads it once more and writes the
gradient of the logits. Import this only where Triton is installed.
"""

from __future__ import annotations

from functools import cache
from typing import Any, cast

import torch
import triton  # pyright: ignore[reportMissingTypeStubs]
import triton.language as tl  # pyright: ignore[reportMissingTypeStubs]
from torch import Tensor

from isentrope.models.memory import learning_rows, memory_of
from isentrope.models.token_head import logits

# pyright: reportOperatorIssue=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false, reportUntypedFunctionDecorator=false

STATS_BLOCK, GRADIENT_BLOCK, WARPS = 2048, 4096, 8
jit: Any = triton.jit  # so that a type checker lets kernels be launched


@jit
def _stats(logits, target, temperature, logp, norm, entropy, words, BLOCK: tl.constexpr):
    """One row. Each lane holds its highest logit m, Σ e^(x-m) and Σ e^(x-m)(x-m); the lanes are joined at the end."""
    row = tl.program_id(0).to(tl.int64)
    cold = 1.0 / tl.load(temperature + row)
    lane = tl.arange(0, BLOCK)
    top = tl.full((BLOCK,), -1.0e38, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    moment = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, words, BLOCK):
        here = start + lane < words
        x = tl.load(logits + row * words + start + lane, mask=here, other=0.0) * cold
        x = tl.where(here, x, -1.0e38)
        new = tl.maximum(top, x)
        fall = top - new
        keep = tl.exp(fall)
        part = tl.exp(x - new)
        moment = (moment + total * fall) * keep + part * (x - new)
        total = total * keep + part
        top = new
    highest = tl.max(top, axis=0)
    fall = top - highest
    keep = tl.exp(fall)  # 0 for a lane that saw no word
    every = tl.sum(total * keep, axis=0)
    spread = tl.sum((moment + total * fall) * keep, axis=0)
    size = tl.log(every)
    chosen = tl.load(logits + row * words + tl.load(target + row)) * cold
    tl.store(logp + row, chosen - highest - size)
    tl.store(norm + row, highest + size)
    tl.store(entropy + row, size - spread / every)


@jit
def _gradient(logits, out, target, temperature, norm, entropy, grad_logp, grad_entropy, words, BLOCK: tl.constexpr):
    """A block of one row: (1[y] - p) of the log-prob and -p (log p + H) of the entropy, each times what comes in."""
    row = tl.program_id(0).to(tl.int64)
    word = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    here = word < words
    cold = 1.0 / tl.load(temperature + row)
    along = tl.load(grad_logp + row)
    x = tl.load(logits + row * words + word, mask=here, other=0.0) * cold
    log_p = x - tl.load(norm + row)
    g = -tl.exp(log_p) * (along + tl.load(grad_entropy + row) * (log_p + tl.load(entropy + row)))
    g += tl.where(word == tl.load(target + row), along, 0.0)
    tl.store(out + row * words + word, (g * cold).to(out.dtype.element_ty), mask=here)


def stats(logits_NV: Tensor, target_N: Tensor, temperature_N: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(log-prob of the target, log of the normaliser, entropy) of each row of float32 logits."""
    count, words = logits_NV.shape
    logp, norm, entropy = (torch.empty(count, dtype=torch.float32, device=logits_NV.device) for _ in range(3))
    _stats[(count,)](logits_NV, target_N, temperature_N, logp, norm, entropy, words, BLOCK=STATS_BLOCK, num_warps=WARPS)
    return logp, norm, entropy


def gradient(
    logits_NV: Tensor,
    target_N: Tensor,
    temperature_N: Tensor,
    norm_N: Tensor,
    entropy_N: Tensor,
    grads: tuple[Tensor, Tensor],
    dtype: torch.dtype,
) -> Tensor:
    """The gradient of the logits, from those of log-prob and entropy."""
    count, words = logits_NV.shape
    out = torch.empty(count, words, dtype=dtype, device=logits_NV.device)
    _gradient[(count, -(-words // GRADIENT_BLOCK))](
        logits_NV, out, target_N, temperature_N, norm_N, entropy_N, *grads, words,
        BLOCK=GRADIENT_BLOCK, num_warps=WARPS,
    )  # fmt: skip
    return out


class _FusedHead(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, target_N: Tensor, temperature_N: Tensor, rows: int
    ) -> tuple[Tensor, Tensor]:
        parts = [slice(a, a + rows) for a in range(0, hidden_ND.shape[0], rows)]
        found = [stats(logits(hidden_ND[part], weight_VD), target_N[part], temperature_N[part]) for part in parts]
        logp_N, norm_N, entropy_N = (torch.cat(values) for values in zip(*found, strict=True))
        ctx.save_for_backward(hidden_ND, weight_VD, target_N, temperature_N, norm_N, entropy_N)
        ctx.parts = parts
        return logp_N, entropy_N

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None, None, None, None]:
        hidden_ND, weight_VD, target_N, temperature_N, norm_N, entropy_N = ctx.saved_tensors
        grad_logp, grad_entropy = (grad.contiguous() for grad in grads)
        weight = weight_VD.to(hidden_ND.dtype)
        grad_hidden = torch.empty_like(hidden_ND)
        grad_weight: Tensor | None = None
        for part in ctx.parts:
            words = logits(hidden_ND[part], weight)
            incoming = (grad_logp[part], grad_entropy[part])
            g = gradient(
                words, target_N[part], temperature_N[part], norm_N[part], entropy_N[part], incoming, hidden_ND.dtype
            )
            del words
            grad_hidden[part] = g @ weight
            if ctx.needs_input_grad[1]:  # a head that stays as it is (adapters) needs no gradient as large as itself
                grad_weight = add_product(grad_weight, g.T, hidden_ND[part])
        return grad_hidden, None if grad_weight is None else grad_weight.to(weight_VD.dtype), None, None, None


def add_product(total: Tensor | None, a: Tensor, b: Tensor) -> Tensor:
    """a b in float32, whatever they are held in, added to the total in its place."""
    if not (a.is_cuda and a.dtype == torch.bfloat16):
        return a.float() @ b.float() if total is None else total.addmm_(a.float(), b.float())
    if total is None:
        return torch.mm(a, b, out_dtype=torch.float32)
    if _adds_in_product(a.device):
        return torch.addmm(total, a, b, out_dtype=torch.float32, out=total)
    return total.add_(torch.mm(a, b, out_dtype=torch.float32))


@cache
def _adds_in_product(device: torch.device) -> bool:
    """Whether this torch adds to a float32 total within a product of bfloat16 numbers; older ones do not."""
    total, ones = torch.zeros(16, 16, device=device), torch.ones(16, 16, dtype=torch.bfloat16, device=device)
    try:
        torch.addmm(total, ones, ones, out_dtype=torch.float32, out=total)
    except (RuntimeError, TypeError):
        return False
    return True


def fused_head(
    hidden_ND: Tensor, weight_VD: Tensor, target_N: Tensor, temperature_N: Tensor, rows: int | None = None
) -> tuple[Tensor, Tensor]:
    """As `head.token_head`: (log-prob, entropy) of target tokens, float32, with gradient to states and weight."""
    rows = rows or learning_rows(weight_VD.shape[0], memory_of(hidden_ND.device))
    inputs = (hidden_ND, weight_VD, target_N.contiguous(), temperature_N.float().contiguous())
    return cast("tuple[Tensor, Tensor]", _FusedHead.apply(*inputs, rows))
