"""One pass of a Llama-shaped model over new tokens, its keys and values in pages; then a token drawn for each row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from isentrope.engines.native.attention import Splits, decode_attention, prefill_attention, verify_attention
from isentrope.engines.native.draw import Rows
from isentrope.engines.native.small_kernels import add_norm, head_norm, rotate_write, swiglu
from isentrope.engines.native.small_model import is_small, small_pass
from isentrope.engines.native.verify import Run
from isentrope.engines.native.weights import Weights, rotation
from isentrope.models.token_head import logits


@dataclass(frozen=True)
class Packed:
    """New tokens of several conversations, one after the other, padded at the end; all on the device."""

    ids: Tensor
    row_of: Tensor  # of each token; -1: padding
    positions: Tensor
    block_row: Tensor  # runs of tokens that one program works on: see prefill_attention
    block_first: Tensor
    block_count: Tensor
    last: Tensor  # where the last token of each conversation stands
    last_row: Tensor  # and the conversation's row; -1: none


class Forward:
    """The model's arithmetic over a cache [layers, 2, pages, kv heads, page, size]. Holds no state of its own."""

    def __init__(self, weights: Weights, cache: Tensor, rows: Rows, context: int) -> None:
        self.weights, self.cache, self.rows, self.small = weights, cache, rows, is_small(weights)
        self.angles = rotation(weights.model, context, cache.device)

    def decode(self, count: int, splits: Splits) -> Tensor:
        """Logits after the newest token of each of the first `count` rows."""
        r, heads = self.rows, self.weights.model.heads
        table, positions = r.table[:count], r.positions[:count]

        def attend(i: int, qkv: Tensor) -> Tensor:
            self._norm_heads(i, qkv)
            return decode_attention(qkv, self.cache[i], table, positions, self.angles, heads, splits)

        if self.small:
            return small_pass(self.weights, r.ids[:count], attend)
        return self._logits(*self._layers(r.ids[:count], attend))

    def prefill(self, packed: Packed) -> Tensor:
        """Logits after the last token of each conversation."""
        p, heads, table = packed, self.weights.model.heads, self.rows.table
        blocks = (p.block_row, p.block_first, p.block_count)

        def attend(i: int, qkv: Tensor) -> Tensor:
            self._norm_heads(i, qkv)
            q = rotate_write(qkv, self.cache[i], table, p.row_of, p.positions, self.angles, heads)
            return prefill_attention(q, self.cache[i], table, blocks, p.positions, heads)

        if self.small:
            return small_pass(self.weights, p.ids, attend, p.last)
        return self._logits(*self._layers(p.ids, attend, p.last))

    def verify(self, run: Run, splits: Splits, queries: int) -> Tensor:
        """Logits after every token of the runs."""
        heads, table, positions = self.weights.model.heads, self.rows.table, self.rows.positions

        def attend(i: int, qkv: Tensor) -> Tensor:
            self._norm_heads(i, qkv)
            q = rotate_write(qkv, self.cache[i], table, run.row_of, run.positions, self.angles, heads)
            return verify_attention(q, self.cache[i], table, positions, run.first, run.count, heads, splits, queries)

        if self.small:
            return small_pass(self.weights, run.ids, attend)
        return self._logits(*self._layers(run.ids, attend))

    def _layers(
        self, ids: Tensor, attend: Callable[[int, Tensor], Tensor], last: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The stream behind the last layer, without what that layer adds, and what it adds; with `last` at these places
        alone. Of the others the last layer makes no more than keys and values."""
        a, dtype = self.weights.model, self.weights.dtype
        x, delta = F.embedding(ids, a.embed.detach()), None
        for i, layer in enumerate(self.weights.layers):
            own = layer.own
            qkv = layer.qkv(add_norm(x, delta, own.norm_in, a.eps, dtype))
            attended = attend(i, qkv)
            if last is not None and layer is self.weights.layers[-1]:
                x, attended = x[last], attended[last]
            delta = layer.o(attended)
            both = layer.gate_up.before_up(add_norm(x, delta, own.norm_out, a.eps, dtype))
            delta = layer.down(swiglu(both, layer.gate_up.up))
        assert delta is not None
        return x, delta

    def _norm_heads(self, i: int, qkv: Tensor) -> None:
        a, own = self.weights.model, self.weights.layers[i].own
        if own.q_norm is not None and own.k_norm is not None:
            head_norm(qkv, own.q_norm, own.k_norm, a.eps, a.heads, a.kv_heads)

    def _logits(self, x: Tensor, delta: Tensor) -> Tensor:
        a = self.weights.model
        return logits(add_norm(x, delta, a.norm, a.eps, x.dtype), a.head.detach())
