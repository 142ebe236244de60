"""The fast engine's side on the device: cache, rows, and recorded graphs of its passes.

A pass is hundreds of small kernels. On a GPU they are recorded once for each size and started by one call; without one
(Triton's interpreter, in tests) the same kernels run one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isentrope.policy.fast.attention import NEW_TOKENS, Splits, make_splits
from isentrope.policy.fast.draw import Rows
from isentrope.policy.fast.forward import Forward, Packed
from isentrope.policy.fast.weights import Weights

PAGE = 64
PROGRAMS = 1024  # that read the cache at once, about: fewer leave a GPU idle, many more have to join their parts
SHORTEST_PART = 256  # tokens
MOST_RECORDED = 16384  # new tokens; a single prompt that is longer keeps a GPU busy without being recorded


@dataclass(frozen=True)
class Drawn:
    """Tokens, log-probs and entropies on their way to the host. To be waited for once."""

    landing: Tensor
    event: Any
    free: list[Tensor]  # where the memory it lands in goes back to

    def wait(self) -> NDArray[np.float32]:
        if self.event is not None:
            self.event.synchronize()
        values = self.landing.numpy().copy()
        self.free.append(self.landing)
        return values


def bucket(count: int) -> int:
    """The size that a pass over so many rows or tokens is recorded for: powers of two, and halfway between them."""
    size = 8
    while size < count:
        size *= 2
    return size * 3 // 4 if size > 32 and count <= size * 3 // 4 else size


class Device:
    def __init__(
        self, weights: Weights, rows: int, pages: int, context: int, answer: int, device: torch.device
    ) -> None:
        a = weights.anatomy
        rows = -(-rows // 8) * 8  # as small a batch as is ever recorded
        self.device, self.graphs = device, device.type == "cuda"
        shape = (len(a.layers), 2, pages, a.kv_heads, PAGE, a.head_size)
        cache = torch.zeros(shape, dtype=weights.dtype, device=device)

        def ints(value: int) -> Tensor:
            return torch.full((rows,), value, dtype=torch.int32, device=device)

        self.rows = Rows(
            ids=ints(0),
            positions=ints(-1),
            counts=ints(0),
            temperatures=torch.ones(rows, device=device),
            uniforms=torch.zeros(rows, answer, device=device),
            table=torch.zeros(rows, -(-context // PAGE), dtype=torch.int32, device=device),
        )
        self.count, self.context, self.kv_heads, self.size = rows, context, a.kv_heads, a.head_size
        self.forward = Forward(weights, cache, self.rows, context)
        self.everyone = torch.arange(rows, dtype=torch.int32, device=device)
        self._out = torch.zeros(3, rows, device=device)
        self._recorded: dict[Any, tuple[Any, Tensor]] = {}
        self._splits: dict[tuple[int, int], Splits] = {}
        self._inputs: dict[int, Tensor] = {}
        self._pool: Any = None
        self._landings: list[Tensor] = []  # on the host, those that are free

    def upload(self, values: NDArray[Any]) -> Tensor:
        host = torch.from_numpy(values)
        # from memory that may be moved, a copy would wait for all that was started before it
        return host.pin_memory().to(self.device, non_blocking=True) if self.graphs else host.to(self.device)

    def seat(self, at: NDArray[np.int64], positions: NDArray[np.int32], table: NDArray[np.int32],
             uniforms: NDArray[np.float32]) -> None:  # fmt: skip
        """New conversations in these rows: their lengths, pages and random numbers."""
        where = self.upload(at)
        self.rows.positions[where] = self.upload(positions)
        self.rows.counts[where] = 0
        self.rows.table[where] = self.upload(table)
        self.rows.uniforms[where, : uniforms.shape[1]] = self.upload(uniforms)

    def warm(self, at: NDArray[np.int64], temperatures: NDArray[np.float32]) -> None:
        self.rows.temperatures[self.upload(at)] = self.upload(temperatures)

    def leave(self, at: NDArray[np.int64]) -> None:
        self.rows.positions[self.upload(at)] = -1

    def decode(self, used: int, longest: int, draws: bool) -> Tensor:
        """One token more for the first `used` rows, of which the longest has so many. Gives the logits."""
        count = min(bucket(used), self.count)
        splits = self._parts(count, longest)

        def run() -> Tensor:
            logits = self.forward.decode(count, splits)
            if draws:
                self.forward.draw(logits, self.everyone[:count], self._out, step=True)
            return logits

        return self._play(("decode", count, splits.length, splits.most, draws), run)

    def prefill(self, parts: list[NDArray[np.int32]], tokens: int, blocks: int, draws: bool) -> Tensor:
        """Read new tokens; `parts` are Packed's arrays, of `tokens` tokens and `blocks` blocks. Gives the logits."""
        sizes = [tokens] * 3 + [blocks] * 3 + [self.count] * 2
        joined = self.upload(np.concatenate(parts))
        recorded = self.graphs and tokens <= MOST_RECORDED
        if recorded:
            joined = self._inputs.setdefault(tokens, torch.empty_like(joined)).copy_(joined)
        packed = Packed(*cast("list[Tensor]", joined.split(sizes)))

        def run() -> Tensor:
            logits = self.forward.prefill(packed)
            if draws:
                self.forward.draw(logits, packed.last_row, self._out, step=False)
            return logits

        return self._play(("prefill", tokens, draws), run) if recorded else run()

    def draw(self, logits: Tensor, row_of: Tensor, *, step: bool, commit: bool) -> None:
        self.forward.draw(logits, row_of, self._out, step=step, commit=commit)

    def drawn(self) -> Drawn:
        """What was drawn last, begun to be brought to the host."""
        landing = self._landings.pop() if self._landings else torch.zeros(3, self.count, pin_memory=self.graphs)
        landing.copy_(self._out, non_blocking=True)
        event = torch.cuda.Event() if self.graphs else None
        if event is not None:
            event.record()
        return Drawn(landing, event, self._landings)

    def _parts(self, count: int, longest: int) -> Splits:
        reach = SHORTEST_PART
        while reach < longest:
            reach *= 2
        wanted = max(1, min(PROGRAMS // (count * self.kv_heads), reach // SHORTEST_PART))
        length = -(-reach // wanted // PAGE) * PAGE
        key = (count, reach)
        if key not in self._splits:
            most = -(-reach // length)
            self._splits[key] = make_splits(count, self.kv_heads, self.size, length, most, self.device)
        return self._splits[key]

    def _play(self, key: Any, run: Callable[[], Tensor]) -> Tensor:
        if not self.graphs:
            return run()
        if key not in self._recorded:
            self._recorded[key] = self._record(run)
        graph, logits = self._recorded[key]
        graph.replay()
        return logits

    def _record(self, run: Callable[[], Tensor]) -> tuple[Any, Tensor]:
        """Kernels are compiled and libraries set up by a first run, for which the rows are empty."""
        positions = self.rows.positions.clone()
        self.rows.positions.fill_(-1)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            run()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            logits = run()
        self.rows.positions.copy_(positions)
        return graph, logits


def prefill_blocks(tokens: int, rows: int) -> int:
    """Most runs of new tokens that one program works on, among so many tokens of so many rows."""
    most = -(-tokens // NEW_TOKENS) + rows
    return -(-most // 4) * 4  # arrays that begin at any address would need kernels of their own
