"""One token for every conversation, as a CUDA graph: hundreds of small kernels started by one call.

A graph belongs to the tensors it was recorded with. It is recorded anew when the cache moves in memory, and once for
every further step of columns that the conversations reach.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from isentrope.policy.policy import Cache, Policy

STEP = 256  # columns; a graph looks at whole steps of them


class GraphedDecoder:
    ready = False  # whether the libraries that a recording uses have set themselves up

    def __init__(self, policy: Policy, cache: Cache, rows: int) -> None:
        self.policy, self.cache = policy, cache
        device = policy.device
        self.ids = torch.zeros(rows, 1, dtype=torch.long, device=device)
        self.counts = torch.zeros(rows, dtype=torch.long, device=device)
        self._pool: Any = None
        self._recorded: dict[int, tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        self._place = -1

    def __call__(self, ids_R: Tensor, counts_R: Tensor, reach: int) -> Tensor:
        """The hidden state of each row after its new token; rows whose count is 0 stay as they are.

        `reach` is the number of columns that any row may touch, those that stay as they are included.
        """
        columns = -(-reach // STEP) * STEP
        self.cache.reserve(columns)
        if self.cache.place() != self._place:
            # a pool of memory ends with its last graph, so new graphs get a new one
            self._recorded, self._place, self._pool = {}, self.cache.place(), torch.cuda.graph_pool_handle()
        if columns not in self._recorded:
            self._recorded[columns] = self._record(columns)
        self.ids.copy_(ids_R[:, None])
        self.counts.copy_(counts_R)
        graph, hidden = self._recorded[columns]
        graph.replay()
        return hidden

    def _record(self, columns: int) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        self.counts.zero_()  # so that recording moves no conversation
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            if not GraphedDecoder.ready:  # libraries set themselves up on first use, which a graph must not hold
                self._extend(columns)
                GraphedDecoder.ready = True
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            hidden = self._extend(columns)
        return graph, hidden

    def _extend(self, columns: int) -> Tensor:
        with self.policy.compute():
            return self.policy.model.extend(self.cache, self.ids, self.counts, None, columns)
