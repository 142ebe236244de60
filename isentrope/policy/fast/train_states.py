"""The training forward pass of a Llama-shaped model: final hidden states of packed rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint  # pyright: ignore[reportUnknownVariableType]

from isentrope.policy.fast.anatomy import Anatomy, Layer, anatomy
from isentrope.policy.fast.train_attention import FLASH, Kernels, Pattern, attention, flash_runs, make_pattern
from isentrope.policy.fast.train_blocks import answer, answer_weights, compiled, look, look_weights, normed
from isentrope.policy.fast.train_cpu import CPU
from isentrope.types import Spans

_PLACES = (("cuda", torch.bfloat16), ("cpu", torch.float32))


def trains_fast(model: object, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether `fast_states` takes this model there."""
    parts = anatomy(model) if (device.type, dtype) in _PLACES else None
    if parts is None:
        return False
    return device.type == "cpu" or flash_runs(device, dtype, parts.head_size)


def fast_states(model: Any, ids_BT: Tensor, positions_BT: Tensor, spans: Spans, dtype: torch.dtype) -> Tensor:
    """As the model's own `hidden`, computed in `dtype`; the rows are laid end to end."""
    parts = anatomy(model)
    assert parts is not None
    with torch.autocast(ids_BT.device.type, enabled=False):
        kernels, compile_pieces = (FLASH, True) if ids_BT.is_cuda else (CPU, False)
        x = states_of(
            parts, ids_BT.flatten(), positions_BT.flatten(), spans, dtype, kernels, compile_pieces, model.computes_twice
        )
    return x.view(*ids_BT.shape, -1)


def states_of(
    parts: Anatomy,
    ids: Tensor,
    positions: Tensor,
    spans: Spans,
    dtype: torch.dtype,
    kernels: Kernels | None = None,
    compile_pieces: bool = False,
    twice: bool = False,
) -> Tensor:
    """Final hidden states of tokens in one row. Without kernels attention is dense, which suits tests alone."""
    pattern = make_pattern(spans, ids.device, dense=kernels is None)
    angles = positions[:, None, None].float() * parts.frequencies.float()
    cos, sin = angles.cos() * parts.rope_scale, angles.sin() * parts.rope_scale
    pieces = (compiled(look), compiled(answer)) if compile_pieces else (look, answer)
    sizes = (parts.heads, parts.kv_heads, parts.head_size, parts.eps)
    run = partial(_layer, cos=cos, sin=sin, pattern=pattern, sizes=sizes, dtype=dtype, kernels=kernels, pieces=pieces)
    x = F.embedding(ids, parts.embed, parts.padding)
    for layer in parts.layers:
        if twice and torch.is_grad_enabled():
            x = cast("Tensor", checkpoint(run, x, layer, use_reentrant=False))
        else:
            x = run(x, layer)
    return normed(x, parts.norm, parts.eps)


def _layer(
    x: Tensor,
    layer: Layer,
    *,
    cos: Tensor,
    sin: Tensor,
    pattern: Pattern,
    sizes: tuple[int, int, int, float],
    dtype: torch.dtype,
    kernels: Kernels | None,
    pieces: tuple[Callable[..., Any], Callable[..., Any]],
) -> Tensor:
    q, k, v = pieces[0](x, cos, sin, look_weights(layer), sizes, dtype)
    seen = attention(q, k, v, pattern, kernels)
    return pieces[1](x, seen, answer_weights(layer), sizes, dtype)
