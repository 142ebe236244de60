"""Passes of a model as CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from isentrope.models.kv_cache import Cache
from isentrope.models.policy import Policy


def record(run: Callable[[], Tensor], pool: Any, warm_up: bool = True) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    """A CUDA graph of a pass, and where its result lies. Libraries set themselves up and kernels are compiled by a
    first run beside it (`warm_up`), which a graph must not hold."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        if warm_up:
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
        result = run()
    return graph, result


STEP = 256  # columns; a graph looks at whole steps of them


class GraphedDecoder:
    """One token for every conversation, as a CUDA graph: hundreds of small kernels started by one call.

    A graph belongs to the tensors it was recorded with. It is recorded anew when the cache moves in memory, and once
    for every further step of columns that the conversations reach.
    """

    ready = False  # whether the libraries that a recording uses have set themselves up

    def __init__(self, policy: Policy, cache: Cache, rows: int) -> None:
        self.policy, self.cache = policy, cache
        device = policy.device
        self.ids = torch.zeros(rows, 1, dtype=torch.long, device=device)
        self.counts = torch.zeros(rows, dtype=torch.long, device=device)
        self._recorded: dict[int, tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        self._pool, self._place = cast("Any", None), -1

    def __call__(self, ids_R: Tensor, counts_R: Tensor, reach: int) -> Tensor:
        """The hidden state of each row after its new token; rows whose count is 0 stay as they are.

        `reach` is the number of columns that any row may touch, those that stay as they are included.
        """
        columns = -(-reach // STEP) * STEP
        self.cache.reserve(columns)
        if self.cache.moves != self._place:
            # a pool of memory ends with its last graph, so new graphs get a new one
            self._recorded, self._place, self._pool = {}, self.cache.moves, torch.cuda.graph_pool_handle()
        if columns not in self._recorded:
            self.counts.zero_()  # so that recording moves no conversation
            self._recorded[columns] = record(partial(self._extend, columns), self._pool, not GraphedDecoder.ready)
            GraphedDecoder.ready = True
        self.ids.copy_(ids_R[:, None])
        self.counts.copy_(counts_R)
        graph, hidden = self._recorded[columns]
        graph.replay()
        return hidden

    def _extend(self, columns: int) -> Tensor:
        with self.policy.compute():
            return self.policy.model.extend(self.cache, self.ids, self.counts, None, columns)
