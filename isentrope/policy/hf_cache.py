"""Keys and values of many conversations, for any Hugging Face model with full attention.

The model's own layers hand their keys and values to `RowCache.update`, which writes them in place, each conversation
at its own length, and gives back all that the conversation has so far. Nothing is copied from token to token.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

ATTENTION = "isentrope"
"""The name under which `grouped_attention` is known to transformers."""


class RowCache:
    """Stands where transformers expects its own cache; holds one row per conversation."""

    def __init__(self, rows: int, device: torch.device) -> None:
        self.lengths = torch.zeros(rows, dtype=torch.long, device=device)
        self.layers: list[tuple[Tensor, Tensor]] = []
        self._columns = self._moves = 0
        self._positions = self.lengths[:, None]
        self._rows: Tensor | None = None
        self._seen = 0

    def reserve(self, columns: int) -> None:
        """Make room for conversations of this length."""
        if columns > self._columns:
            step = 512 if self.lengths.is_cuda else 64
            self._columns = -(-max(columns, self._columns + self._columns // 2) // step) * step
            self._moves += 1
            for i, (keys, values) in enumerate(self.layers):  # one by one: the old and the new never stand side by side
                self.layers[i] = (self._wider(keys), self._wider(values))

    def _wider(self, old: Tensor) -> Tensor:
        rows, heads, have, size = old.shape
        new = torch.zeros(rows, heads, self._columns, size, dtype=old.dtype, device=old.device)
        new[:, :, :have] = old
        return new

    def place(self) -> int:
        return self._moves

    def keep(self, rows: Tensor) -> None:
        """Forget every conversation but these."""
        self.lengths = self.lengths[rows]
        self._moves += 1
        for i, (keys, values) in enumerate(self.layers):
            self.layers[i] = (keys[rows], values[rows])

    def copy(self, sources: Tensor, targets: Tensor) -> None:
        """Make the conversations of some rows those of others."""
        self.lengths[targets] = self.lengths[sources]
        longest = int(self.lengths[sources].max())
        for store in (store for layer in self.layers for store in layer):
            store[targets, :, :longest] = store[sources, :, :longest]

    def begin(self, positions_RT: Tensor, rows: Tensor | None, seen: int) -> None:
        """Say where the next pass writes, and how many columns it looks at."""
        self.reserve(seen)
        self._positions, self._rows, self._seen = positions_RT, rows, seen

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Called by each layer of the model with what it computed, [rows heads new size]."""
        if layer_idx == len(self.layers):
            shape = (len(self.lengths), keys.shape[1], self._columns, keys.shape[3])
            self.layers.append((keys.new_zeros(shape), values.new_zeros((*shape[:3], values.shape[3]))))
        everyone = torch.arange(len(self.lengths), device=keys.device)
        where = (everyone if self._rows is None else self._rows)[:, None]
        found: list[Tensor] = []
        for store, new in zip(self.layers[layer_idx], (keys, values), strict=True):
            store[where, :, self._positions] = new.transpose(1, 2)
            held = store[:, :, : self._seen]
            found.append(held if self._rows is None else held[self._rows])
        return found[0], found[1]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self._seen


def grouped_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """Attention over a cache in which heads that share keys stand side by side in the query dimension: keys are read
    once and never copied. Whole rows, as in training, go to transformers' own attention."""
    from transformers.integrations.sdpa_attention import (
        sdpa_attention_forward,  # pyright: ignore[reportUnknownVariableType]
    )

    (rows, heads, new, size), shared = query.shape, key.shape[1]
    if new == key.shape[2] or attention_mask is None or attention_mask.shape[1] != 1:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    share = heads // shared
    mask = attention_mask.repeat(1, 1, share, 1) if share > 1 else attention_mask
    together = query.reshape(rows, shared, share * new, size)
    out = F.scaled_dot_product_attention(together, key, value, attn_mask=mask, scale=options.get("scaling"))
    return out.reshape(rows, heads, new, -1).transpose(1, 2), None


def register_attention() -> str:
    """Make the attention known to transformers; gives its name."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask  # pyright: ignore[reportUnknownVariableType]

    AttentionInterface.register(ATTENTION, grouped_attention)
    AttentionMaskInterface.register(ATTENTION, sdpa_mask)
    return ATTENTION
