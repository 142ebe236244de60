"""The token head's two kernels, over rows of logits that a matrix product has left in memory.

`stats` reads each row once and gives log-prob, log of the normaliser and entropy; `gradient` reads it once more and
writes the gradient of the logits. Import this only where Triton is installed.
"""

from __future__ import annotations

from typing import Any

import torch
import triton  # pyright: ignore[reportMissingTypeStubs]
import triton.language as tl  # pyright: ignore[reportMissingTypeStubs]
from torch import Tensor

# pyright: reportOperatorIssue=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false, reportUntypedFunctionDecorator=false

STATS_BLOCK, STATS_WARPS = 2048, 8
GRADIENT_BLOCK, GRADIENT_WARPS = 4096, 8


@triton.jit
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


@triton.jit
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
    run: Any = _stats
    run[(count,)](
        logits_NV, target_N, temperature_N, logp, norm, entropy, words, BLOCK=STATS_BLOCK, num_warps=STATS_WARPS
    )
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
    run: Any = _gradient
    run[(count, -(-words // GRADIENT_BLOCK))](
        logits_NV, out, target_N, temperature_N, norm_N, entropy_N, *grads, words,
        BLOCK=GRADIENT_BLOCK, num_warps=GRADIENT_WARPS,
    )  # fmt: skip
    return out
