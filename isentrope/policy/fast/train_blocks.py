"""The layers of a Llama-shaped model as pure functions of its weights, in two pieces with attention between them.

torch.compile turns each piece into a few kernels: norms, rotation, biases, SwiGLU and residuals are joined with each
other, and projections that read the same input are one matrix product. All layers share the two compiled pieces.
Weights are cast to the precision of the computation; the stream between layers keeps that of the embedding.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch._functorch.config as functorch_config
import torch.nn.functional as F
from torch import Tensor

from isentrope.policy.fast.anatomy import Layer

Weights = tuple[Tensor | None, ...]
Sizes = tuple[int, int, int, float]
"""Heads, heads of keys, size of a head, and the norm's ε."""
MEMORY = 0.5
"""Share of a piece's activations that is kept for the backward pass; what is cheapest to compute again is not. With
SmolLM2-135M's shape this takes less than half of the memory and 7 % of the speed."""
log = logging.getLogger(__name__)


def normed(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm, inside in float32 at least."""
    wide = x if x.dtype in (torch.float32, torch.float64) else x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (wide * weight).to(x.dtype)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)


def look_weights(layer: Layer) -> Weights:
    return (layer.norm_in, layer.q, layer.k, layer.v, layer.q_bias, layer.k_bias, layer.v_bias, layer.q_norm,
            layer.k_norm)  # fmt: skip


def answer_weights(layer: Layer) -> Weights:
    return layer.o, layer.norm_out, layer.gate, layer.up, layer.down


def look(
    x: Tensor, cos: Tensor, sin: Tensor, weights: Weights, sizes: Sizes, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """The first piece: queries, keys and values of x [tokens, width]."""
    norm, wq, wk, wv, bq, bk, bv, q_norm, k_norm = weights
    assert norm is not None and wq is not None and wk is not None and wv is not None  # noqa: PT018
    heads, kv_heads, size, eps = sizes
    bias = torch.cat((bq, bk, bv)).to(dtype) if bq is not None and bk is not None and bv is not None else None
    made = F.linear(normed(x, norm, eps).to(dtype), torch.cat((wq, wk, wv)).to(dtype), bias)
    q, k, v = torch.split(made.view(-1, heads + 2 * kv_heads, size), [heads, kv_heads, kv_heads], dim=1)
    if q_norm is not None and k_norm is not None:
        q, k = normed(q, q_norm, eps), normed(k, k_norm, eps)
    return rotated(q, cos, sin), rotated(k, cos, sin), v.contiguous()


def answer(x: Tensor, seen: Tensor, weights: Weights, sizes: Sizes, dtype: torch.dtype) -> Tensor:
    """The second piece: what attention saw joins the stream, then the feed-forward part."""
    wo, norm, gate, up, down = weights
    assert wo is not None and norm is not None and gate is not None  # noqa: PT018
    assert up is not None and down is not None  # noqa: PT018
    x = x + F.linear(seen.flatten(1), wo.to(dtype))
    h = normed(x, norm, sizes[3]).to(dtype)
    a, b = F.linear(h, torch.cat((gate, up)).to(dtype)).chunk(2, dim=-1)
    return x + F.linear(F.silu(a) * b, down.to(dtype))


class Compiled:
    """A function through torch.compile, with the number of tokens left open; as it is if that fails."""

    def __init__(self, plain: Callable[..., Any]) -> None:
        self.plain, self.name = plain, plain.__name__
        self.quick: Callable[..., Any] | None = torch.compile(plain)  # pyright: ignore[reportUnknownMemberType]

    def __call__(self, *inputs: Any) -> Any:
        if self.quick is None:
            return self.plain(*inputs)
        for value in inputs:
            if isinstance(value, Tensor):
                torch._dynamo.maybe_mark_dynamic(value, 0)  # pyright: ignore
        try:
            with functorch_config.patch(activation_memory_budget=MEMORY):
                return self.quick(*inputs)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            log.warning("torch.compile failed for %s, which now runs as it is: %s", self.name, error)
            self.quick = None
            return self.plain(*inputs)


@cache
def compiled(piece: Callable[..., Any]) -> Compiled:
    return Compiled(piece)
