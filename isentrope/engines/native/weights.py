"""The native engine's weights: matrices that share their input are joined into one.

Where the weights are held in the precision of the computation, the model's own parameters become views of the joined
tensors: an update writes straight into what the engine reads, and nothing is copied. Where they are held in float32 and
computed with in bfloat16, the joined tensors are copies, made anew after each update. So are adapters' matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from isentrope.models.model_adapter import Layer, LowRank, ModelAdapter


@dataclass(frozen=True)
class JoinedLinear:
    """Matrices that read the same input, one below the other. Adapters' `down` matrices stand below them, so that one
    product reads the input for all; what comes of those goes through `up`, [out, rank], and is added."""

    weight: Tensor  # [out + rank, in]
    bias: Tensor | None
    up: Tensor | None  # the adapters' own `up` matrices as blocks, times their scales; None without adapters

    def __call__(self, x: Tensor) -> Tensor:
        made = self.before_up(x)
        if self.up is None:
            return made
        out = len(self.up)
        return made[:, :out].addmm_(made[:, out:], self.up.T)

    def before_up(self, x: Tensor) -> Tensor:
        """[tokens, out + rank]: the last columns have yet to go through `up`, which some kernels do themselves."""
        return F.linear(x, self.weight, self.bias)


@dataclass(frozen=True)
class Joined:
    """One layer. Norms are the model's own."""

    qkv: JoinedLinear
    o: JoinedLinear
    gate_up: JoinedLinear
    down: JoinedLinear
    own: Layer


RANKS = 8  # adapters' ranks are filled up to a multiple of so many: matrix products want rows to begin at such places


class Weights:
    def __init__(self, model: ModelAdapter, dtype: torch.dtype) -> None:
        self.model, self.dtype = model, dtype
        # (from the model, to here, times), made again after each update
        self.copies: list[tuple[Tensor, Tensor, float]] = []
        self.layers = tuple(self._joined(layer) for layer in model.layers)
        self.refresh()

    @property
    def count(self) -> int:
        """Weights of all layers' products."""
        return sum(
            one.weight.numel() for layer in self.layers for one in (layer.qkv, layer.o, layer.gate_up, layer.down)
        )

    @property
    def adapted(self) -> bool:
        return any(layer.own.low for layer in self.layers)

    def _joined(self, layer: Layer) -> Joined:
        return Joined(
            qkv=self._product(layer, q=layer.q_bias, k=layer.k_bias, v=layer.v_bias),
            o=self._product(layer, o=None),
            gate_up=self._product(layer, gate=None, up=None),
            down=self._product(layer, down=None),
            own=layer,
        )

    def _product(self, layer: Layer, **biases: Tensor | None) -> JoinedLinear:
        """Of the weights with these names."""
        parts = [getattr(layer, name) for name in biases]
        low = [layer.low.get(name) for name in biases]
        rank = -(-sum(len(one.down) for one in low if one is not None) // RANKS) * RANKS
        there = [bias for bias in biases.values() if bias is not None]
        weight = self._join(*parts, more=rank)
        bias = self._join(*there, more=rank) if there else None
        return JoinedLinear(weight, bias, self._adapters(parts, low, weight, rank) if rank else None)

    def _adapters(self, parts: Sequence[Tensor], low: Sequence[LowRank | None], weight: Tensor, rank: int) -> Tensor:
        """Begins copies of the adapters' matrices: `down` below the weights, `up` as blocks."""
        out = sum(len(part) for part in parts)
        up = weight.new_zeros(out, rank)
        row, at = 0, 0
        for part, one in zip(parts, low, strict=True):
            if one is not None:
                below = out + at
                self.copies.append((one.down, weight[below : below + len(one.down)], 1.0))
                self.copies.append((one.up, up[row : row + len(part), at : at + len(one.down)], one.scale))
                at += len(one.down)
            row += len(part)
        return up

    def _join(self, *parts: Tensor, more: int = 0) -> Tensor:
        """The parts one below the other, and so many rows more, which are 0 at first."""
        same = parts[0].dtype == self.dtype
        if len(parts) == 1 and same and not more:
            return parts[0].detach()
        joined = _neighbours(parts, more) if same else None
        if joined is not None:
            return joined
        spare = parts[0].new_zeros(more, *parts[0].shape[1:], dtype=self.dtype)
        whole = torch.cat([*(part.detach().to(self.dtype) for part in parts), spare])
        at = 0
        for part in parts:
            mine = whole[at : at + len(part)]
            if same:
                part.data = mine  # the parameter stays the same object: optimiser and model notice nothing
            else:
                self.copies.append((part, mine, 1.0))
            at += len(part)
        return whole

    @torch.no_grad()
    def refresh(self) -> None:
        """Take over what an update has changed, where the tensors are not the model's own."""
        for source, copy, times in self.copies:
            copy.copy_(source if times == 1.0 else source * times)


def _neighbours(parts: tuple[Tensor, ...], more: int) -> Tensor | None:
    """The tensor of which these are the rows, one after the other, if another engine has joined them already, with room
    for so many rows more behind them."""
    first, rows = parts[0].detach(), 0
    storage = first.untyped_storage().data_ptr()
    for part in parts:
        place = first.data_ptr() + rows * first.stride(0) * first.element_size()
        if not part.is_contiguous() or (part.untyped_storage().data_ptr(), part.data_ptr()) != (storage, place):
            return None
        rows += len(part)
    there = first.untyped_storage().nbytes() // first.element_size() - first.storage_offset()
    if more and (first.storage_offset() or there != (rows + more) * first.stride(0)):
        return None
    return first.as_strided((rows + more, *first.shape[1:]), first.stride())


def rotation(model: ModelAdapter, positions: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosine and sine by position, [positions, size / 2]."""
    frequencies = model.frequencies.to(device, torch.float32)
    angles = torch.arange(positions, device=device, dtype=torch.float32)[:, None] * frequencies
    return angles.cos() * model.rope_scale, angles.sin() * model.rope_scale
