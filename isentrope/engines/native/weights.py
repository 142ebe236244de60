"""The native engine's weights: matrices that share their input are joined into one.

Where the weights are held in the precision of the computation, the model's own parameters become views of the joined
tensors: an update writes straight into what the engine reads, and nothing is copied. Where they are held in float32 and
computed with in bfloat16, the joined tensors are copies, made anew after each update.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from isentrope.models.model_adapter import Layer, ModelAdapter


@dataclass(frozen=True)
class Joined:
    """One layer. Norms are the model's own."""

    qkv: Tensor
    qkv_bias: Tensor | None
    o: Tensor
    gate_up: Tensor
    down: Tensor
    own: Layer


class Weights:
    def __init__(self, model: ModelAdapter, dtype: torch.dtype) -> None:
        self.model, self.dtype = model, dtype
        self.copies: list[tuple[Tensor, Tensor]] = []  # (from the model, to here), made again after each update
        self.layers = tuple(self._joined(layer) for layer in model.layers)

    def _joined(self, layer: Layer) -> Joined:
        biases = [bias for bias in (layer.q_bias, layer.k_bias, layer.v_bias) if bias is not None]
        return Joined(
            qkv=self._join(layer.q, layer.k, layer.v),
            qkv_bias=self._join(*biases) if biases else None,
            o=self._join(layer.o),
            gate_up=self._join(layer.gate, layer.up),
            down=self._join(layer.down),
            own=layer,
        )

    def _join(self, *parts: Tensor) -> Tensor:
        if len(parts) == 1 and parts[0].dtype == self.dtype:
            return parts[0].detach()
        joined = _neighbours(parts) if parts[0].dtype == self.dtype else None
        if joined is not None:
            return joined
        whole = torch.cat([part.detach().to(self.dtype) for part in parts])
        at = 0
        for part in parts:
            mine = whole[at : at + len(part)]
            if part.dtype == self.dtype:
                part.data = mine  # the parameter stays the same object: optimiser and model notice nothing
            else:
                self.copies.append((part, mine))
            at += len(part)
        return whole

    @torch.no_grad()
    def refresh(self) -> None:
        """Take over what an update has changed, where the tensors are not the model's own."""
        for source, copy in self.copies:
            copy.copy_(source)


def _neighbours(parts: tuple[Tensor, ...]) -> Tensor | None:
    """The tensor of which these are the rows, one after the other, if another engine has joined them already."""
    first, rows = parts[0].detach(), 0
    storage = first.untyped_storage().data_ptr()
    for part in parts:
        place = first.data_ptr() + rows * first.stride(0) * first.element_size()
        if not part.is_contiguous() or (part.untyped_storage().data_ptr(), part.data_ptr()) != (storage, place):
            return None
        rows += len(part)
    return first.as_strided((rows, *first.shape[1:]), first.stride())


def rotation(model: ModelAdapter, positions: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosine and sine by position, [positions, size / 2]."""
    frequencies = model.frequencies.to(device, torch.float32)
    angles = torch.arange(positions, device=device, dtype=torch.float32)[:, None] * frequencies
    return angles.cos() * model.rope_scale, angles.sin() * model.rope_scale
