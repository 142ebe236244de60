"""Keys and values of many conversations, and who sees whom: what all models share."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def seen_BTT(segments_BT: Tensor, parents_BT: Tensor | None) -> Tensor:
    """Which columns of its row each token sees."""
    columns = torch.arange(segments_BT.shape[1], device=segments_BT.device)
    mask = segments_BT[:, :, None] == segments_BT[:, None, :]
    if parents_BT is not None:
        mask |= parents_BT[:, :, None] == segments_BT[:, None, :]
    return mask & (columns[None, :, None] >= columns[None, None, :])


def real_tokens(ids_RT: Tensor, counts_R: Tensor) -> Tensor:
    """Where the tokens stand that are no padding, if the rows are laid end to end."""
    columns = torch.arange(ids_RT.shape[1], device=ids_RT.device)
    return (columns < counts_R[:, None]).flatten().nonzero()[:, 0]


class Cache:
    """Keys and values of many conversations, one row each, with a length of its own, written in place.

    A model's layers hand their keys and values to `update`, which writes them each at its conversation's end and gives
    back all that the conversation has so far. Nothing is copied from token to token. transformers takes this where it
    expects its own cache.
    """

    def __init__(self, rows: int, device: torch.device) -> None:
        self.lengths = torch.zeros(rows, dtype=torch.long, device=device)
        self.layers: list[tuple[Tensor, Tensor]] = []  # [rows heads columns size]: heads outside are fastest on a CPU
        self._columns = self._seen = 0
        self.moves = 0  # how often the cache has moved in memory
        self._positions = self._where = self.lengths[:, None]
        self._rows: Tensor | None = None

    def reserve(self, columns: int) -> None:
        """Make room for conversations of this length."""
        if columns > self._columns:
            step = 512 if self.lengths.is_cuda else 64
            self._columns = -(-max(columns, self._columns + self._columns // 2) // step) * step
            self.moves += 1
            for i, (keys, values) in enumerate(self.layers):  # one by one: the old and the new never stand side by side
                more = (0, 0, 0, self._columns - keys.shape[2])
                self.layers[i] = (F.pad(keys, more), F.pad(values, more))

    def keep(self, rows: Tensor) -> None:
        """Forget every conversation but these."""
        self.lengths = self.lengths[rows]
        self.moves += 1
        for i, (keys, values) in enumerate(self.layers):
            self.layers[i] = (keys[rows], values[rows])

    def copy(self, sources: Tensor, targets: Tensor) -> None:
        """Make the conversations of some rows those of others, one for one."""
        self.lengths[targets] = self.lengths[sources]
        longest = int(self.lengths[sources].max())
        for store in (store for layer in self.layers for store in layer):
            store[targets, :, :longest] = store[sources, :, :longest]

    def begin(self, width: int, rows: Tensor | None, seen: int | None) -> tuple[Tensor, Tensor]:
        """A pass over up to `width` new tokens of these rows (None: all), `seen` as in `Llama.extend`: the tokens'
        positions [rows new], and which columns each of them sees [rows new columns]."""
        start = self.lengths if rows is None else self.lengths[rows]
        self._seen = int(start.max()) + width if seen is None else seen
        self.reserve(self._seen)
        device = start.device
        self._positions, self._rows = start[:, None] + torch.arange(width, device=device), rows
        self._where = (torch.arange(len(start), device=device) if rows is None else rows)[:, None]
        return self._positions, torch.arange(self._seen, device=device) <= self._positions[:, :, None]

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Called by each layer of the model with what it computed, [rows heads new size]."""
        if layer_idx == len(self.layers):
            shape = (len(self.lengths), keys.shape[1], self._columns, keys.shape[3])
            self.layers.append((keys.new_zeros(shape), values.new_zeros((*shape[:3], values.shape[3]))))
        found: list[Tensor] = []
        for store, new in zip(self.layers[layer_idx], (keys, values), strict=True):
            store[self._where, :, self._positions] = new.transpose(1, 2)
            held = store[:, :, : self._seen]
            found.append(held if self._rows is None else held[self._rows])
        return found[0], found[1]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self._seen

    def end(self, states_RTD: Tensor, counts_R: Tensor) -> Tensor:
        """The pass is over: so many of each row's new tokens count. Gives the state of each row's last one."""
        self.grow(counts_R)
        here = torch.arange(len(states_RTD), device=states_RTD.device)
        return states_RTD[here, (counts_R - 1).clamp(min=0)]

    def grow(self, counts_R: Tensor) -> None:
        """The pass is over: so many of each row's new tokens count."""
        if self._rows is None:
            self.lengths += counts_R
        else:
            self.lengths[self._rows] += counts_R

    def take_back(self, rows: Tensor, counts_R: Tensor) -> None:
        """Forget so many tokens at the end of each of these conversations."""
        self.lengths[rows] -= counts_R
