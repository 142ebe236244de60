"""The native engine's device state: cache, rows, and recorded CUDA graphs of its passes.

A pass is hundreds of small kernels. On a GPU they are recorded once for each size and started by one call; without one
(Triton's interpreter, in tests) the same kernels run one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton.language as tl
from numpy.typing import NDArray
from torch import Tensor

from isentrope.engines.drafts import GAP, REACH
from isentrope.engines.graphs import record
from isentrope.engines.native.attention import ROWS, Splits, make_splits, run_queries
from isentrope.engines.native.draw import Rows, draw, draw_at
from isentrope.engines.native.forward import Forward, Packed
from isentrope.engines.native.lookup import DeviceMemory, look_up
from isentrope.engines.native.prefill import Layout, PrefillPacket
from isentrope.engines.native.sizes import bucket, most_recorded, padded
from isentrope.engines.native.small_kernels import jit
from isentrope.engines.native.verify import INFO, Runs, accept, lay_out
from isentrope.engines.native.weights import Weights

# pyright: basic, reportOperatorIssue=false, reportArgumentType=false, reportCallIssue=false, reportIndexIssue=false
# Kernels are in Triton's language, which only looks like Python's types.

BLOCK = 256


@jit
def _admit(
    left, last_row, last, token_positions, admitted, positions, counts, limits, temperatures, tail, table, uniforms,
    pages, answer, BLOCK: tl.constexpr, TAIL: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64)
    gone = tl.load(left + i)
    tl.store(positions + gone, -1, mask=gone >= 0)
    row = tl.load(last_row + i).to(tl.int64)
    if row < 0:
        return
    position = tl.load(token_positions + tl.load(last + i)) + 1
    tl.store(positions + row, position)
    tl.store(counts + row, 0)
    mine = admitted + i * (2 + TAIL + pages + answer)
    tl.store(temperatures + row, tl.load(mine))
    tl.store(limits + row, tl.load(mine + 1))
    j = tl.arange(0, TAIL)
    tl.store(tail + row * TAIL + (position + j) % TAIL, tl.load(mine + 2 + j))
    mine += 2 + TAIL
    column = tl.arange(0, BLOCK)
    for first in range(0, pages, BLOCK):
        inside = first + column < pages
        tl.store(table + row * pages + first + column, tl.load(mine + first + column, mask=inside), mask=inside)
    mine += pages
    for first in range(0, answer, BLOCK):
        inside = first + column < answer
        tl.store(uniforms + row * answer + first + column, tl.load(mine + first + column, mask=inside), mask=inside)


def admit(packed: Packed, left: Tensor, admitted: Tensor, rows: Rows) -> None:
    """Empty the rows that were left; admit those whose prompts are about to be read: length, temperature, pages and
    random numbers. No row may be among both. Rows that are not named stay as they are."""
    _admit[(len(rows.positions),)](
        left, packed.last_row, packed.last, packed.positions, admitted, rows.positions, rows.counts, rows.limits,
        rows.temperatures.view(torch.int32), rows.tail, rows.table,
        rows.uniforms.view(torch.int32),  # bits, as they travel
        rows.table.shape[1], rows.uniforms.shape[1], BLOCK=BLOCK, TAIL=rows.tail.shape[1], num_warps=4,
    )  # fmt: skip


PAGE = 64
PROGRAMS, LARGE_PROGRAMS = 1024, 512  # that read the cache at once, about, of small and of large heads: fewer leave a
# GPU idle, many more have to join their parts
LARGE = 128
SHORTEST_PART = 256  # tokens
FEW = 6  # rows: to write to each by itself takes the host less time than to send a list of them


@dataclass
class Landing:
    """Memory on the host that what was drawn is copied to, used again and again; the event says that it is there."""

    memory: Tensor
    event: Any  # None: copies are over when they return


@dataclass
class Drawn:
    """Tokens, log-probs and entropies on their way to the host. To be waited for once."""

    landing: Landing
    free: list[Landing]  # where the landing goes back to
    shape: tuple[int, ...] = ()  # of the numbers that were sent; (): all that the landing has room for

    def wait(self) -> NDArray[np.float32]:
        if self.landing.event is not None:
            self.landing.event.synchronize()
        values = self.landing.memory.numpy()
        values = (values.ravel()[: math.prod(self.shape)].reshape(self.shape) if self.shape else values).copy()
        self.free.append(self.landing)
        return values


@dataclass
class Guessed:
    """What was drawn behind the tokens of runs, on its way to the host. To be waited for once."""

    drawn: Drawn
    tokens: int

    def wait(self) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        """Token, log-prob and entropy [3, tokens], and what is known of each row [INFO, rows] (verify.py)."""
        values = self.drawn.wait()
        return values[: 3 * self.tokens].reshape(3, -1), values[3 * self.tokens :].view(np.int32).reshape(INFO, -1)


@dataclass(frozen=True)
class Launched:
    """A pass that is under way."""

    rows: NDArray[np.int64]
    serial: NDArray[np.int64]  # of the rows, when it began
    drawn: Drawn | Guessed
    most: int = 1  # tokens that a row may have from it


MOST_LOGITS = 1 << 28  # of a pass, in float32: 1 GiB


def most_tokens(rows: int, longest: int, words: int) -> int:
    """Of a pass that reads guesses."""
    return max(rows, min(rows * (1 + longest), MOST_LOGITS // words))


class Device:
    def __init__(
        self,
        weights: Weights,
        rows: int,
        pages: int,
        context: int,
        answer: int,
        device: torch.device,
        memory: DeviceMemory | None = None,
        longest: int = 0,
    ) -> None:
        a = weights.model
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
            limits=ints(0),
            temperatures=torch.ones(rows, device=device),
            tail=torch.full((rows, REACH), GAP, dtype=torch.int32, device=device),
            uniforms=torch.zeros(rows, answer, device=device),
            table=torch.zeros(rows, -(-context // PAGE), dtype=torch.int32, device=device),
        )
        self._places = self.rows.positions.split(1)
        self.count, self.context, self.kv_heads, self.size = rows, context, a.kv_heads, a.head_size
        self.forward = Forward(weights, cache, self.rows, context)
        self.everyone = torch.arange(rows, dtype=torch.int32, device=device)
        self._out = torch.zeros(3, rows, device=device)
        self._recorded: dict[Any, tuple[Any, Tensor]] = {}
        self._splits: dict[tuple[int, int, int], Splits] = {}
        # Prefills of all sizes are told here what to read: one begins when the one before has been read.
        self._layouts: dict[int, Layout] = {}
        self._most_recorded = most_recorded(weights.count)
        self._told = torch.zeros(self._layout(self._most_recorded).size(rows), dtype=torch.int32, device=device)
        self._pool: Any = None
        self._landings: list[Landing] = []  # those that are free
        self._memory_of_drafts, self.longest = memory, longest
        self.most_tokens = most_tokens(rows, longest, len(a.head))
        self._runs = Runs(rows, self.most_tokens, longest, device)
        self._reach = torch.zeros(REACH + 1, dtype=torch.int32, device=device)
        self._told_reach: tuple[int, ...] = ()
        self._run_landings: list[Landing] = []

    def _memory(self, count: int, dtype: torch.dtype) -> Tensor:
        """On the host. Torch keeps such memory until copies from it are over, and then gives it out again; from memory
        that may be moved, a copy would wait for all that was started before it."""
        return torch.empty(count, dtype=dtype, pin_memory=self.graphs)

    def upload(self, values: NDArray[Any]) -> Tensor:
        host = torch.from_numpy(values)
        return self._memory(len(values), host.dtype).copy_(host).to(self.device, non_blocking=True)

    def warm(self, at: NDArray[np.int64], temperatures: NDArray[np.float32]) -> None:
        self.rows.temperatures[self.upload(at)] = self.upload(temperatures)

    def leave(self, rows: Sequence[int]) -> None:
        """Nobody is in these rows any more."""
        if len(rows) <= FEW:
            for row in rows:
                self._places[row].fill_(-1)
        else:
            self.rows.positions.index_fill_(0, self.upload(np.array(rows)), -1)

    def size_for(self, used: int) -> int:
        """Rows of a recorded pass over the first `used` of them."""
        return min(bucket(used), self.count)

    def decode(self, used: int, longest: int, draws: bool) -> Tensor:
        """One token more for the first `used` rows, of which the longest has so many. Gives the logits."""
        count = self.size_for(used)
        splits = self._parts(count, longest)

        def run() -> Tensor:
            logits = self.forward.decode(count, splits)
            if draws:
                self.draw(logits, self.everyone[:count], step=True)
            return logits

        return self._play(("decode", count, splits.length, splits.most, draws), run)

    def packet(self, tokens: int, admitted: int) -> PrefillPacket:
        """To be filled in for a pass over so many tokens of so many conversations."""
        layout = self._layout(tokens)
        return PrefillPacket(layout, admitted, self._memory(layout.size(admitted), torch.int32))

    def prefill(self, packet: PrefillPacket, draws: bool) -> Tensor:
        """Admit the conversations of this packet and read their new tokens. Gives the logits after their last ones."""
        layout, recorded = packet.layout, self.graphs and packet.layout.tokens <= self._most_recorded
        if recorded:
            self._told[: len(packet.memory)].copy_(packet.memory, non_blocking=True)

        def run() -> Tensor:
            whole = self._told if recorded else packet.memory.to(self.device, non_blocking=True)
            packed, left, admitted = layout.parts(whole)
            admit(packed, left, admitted, self.rows)
            logits = self.forward.prefill(packed)
            if draws:
                self.draw(logits, packed.last_row, step=False)
            return logits

        return self._play(("prefill", layout.tokens, draws), run) if recorded else run()

    def draft(self, used: int, longest: int, tokens: int, reach: tuple[int, ...]) -> Guessed:
        """The first `used` rows go on by up to `longest` guesses and one token each, as far as a pass over so many
        tokens has room. A row drafts reach[m] tokens at most where m tokens before them were found."""
        memory, count = self._memory_of_drafts, self.size_for(used)
        assert memory is not None
        queries = run_queries(self.forward.weights.model.heads // self.kv_heads, 1 + self.longest)
        splits = self._parts(count, longest, queries)
        run = self._runs.of(count, tokens)
        if reach != self._told_reach:
            self._told_reach = reach
            self._reach.copy_(self.upload(np.array(reach, dtype=np.int32)))

        def go() -> Tensor:
            look_up(memory, self.rows, count, self._reach, self._runs.guesses, self._runs.wanted, run.found)
            lay_out(run, self._runs, self.rows)
            logits = self.forward.verify(run, splits, queries)
            draw_at(logits, run.row_of, run.further, self.rows, run.out)
            accept(run, self.longest, self.rows)
            return logits

        self._play(("draft", count, tokens, splits.length, splits.most, queries), go)
        return Guessed(self._brought(run.whole, self._run_landings, len(self._runs.results)), tokens)

    def draw(self, logits: Tensor, row_of: Tensor, *, step: bool, commit: bool = True) -> None:
        draw(logits, row_of, self.rows, self._out, step=step, commit=commit)

    def drawn(self) -> Drawn:
        """What was drawn last, begun to be brought to the host."""
        return self._brought(self._out, self._landings, self._out.numel())

    def _brought(self, values: Tensor, free: list[Landing], room: int) -> Drawn:
        if not free:
            memory = torch.zeros(room, pin_memory=self.graphs)
            free.append(Landing(memory, torch.cuda.Event() if self.graphs else None))
        landing = free.pop()
        landing.memory[: values.numel()].copy_(values.view(-1), non_blocking=True)
        if landing.event is not None:
            landing.event.record()
        return Drawn(landing, free, tuple(values.shape))

    def _layout(self, tokens: int) -> Layout:
        size = padded(tokens, self._most_recorded)
        if size not in self._layouts:
            self._layouts[size] = Layout(size, self.count, self.rows.table.shape[1], self.rows.uniforms.shape[1])
        return self._layouts[size]

    def _parts(self, count: int, longest: int, queries: int = ROWS) -> Splits:
        reach = SHORTEST_PART
        while reach < longest:
            reach *= 2
        programs = LARGE_PROGRAMS if self.size >= LARGE else PROGRAMS
        wanted = max(1, min(programs // (count * self.kv_heads), reach // SHORTEST_PART))
        length = -(-reach // wanted // PAGE) * PAGE
        key = (count, reach, queries)
        if key not in self._splits:
            most = -(-reach // length)
            self._splits[key] = make_splits(count, self.kv_heads, self.size, length, most, self.device, queries)
        return self._splits[key]

    def _play(self, key: Any, run: Callable[[], Tensor]) -> Tensor:
        if not self.graphs:
            return run()
        if key not in self._recorded:
            # The first run is one with empty rows. A prefill admits its conversations in it too; when it is played it
            # does so once more, and writes the same.
            positions = self.rows.positions.clone()
            self.rows.positions.fill_(-1)
            self._pool = self._pool or torch.cuda.graph_pool_handle()
            self._recorded[key] = record(run, self._pool)
            self.rows.positions.copy_(positions)
        graph, logits = self._recorded[key]
        graph.replay()
        return logits
