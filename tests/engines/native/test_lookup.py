"""Guesses on the device: the memory by that of the host, runs and their judgement by hand, attention by the whole pass,
and how many are read."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from isentrope.core.engine import Request
from isentrope.engines.drafts import GAP, PRIOR, REACH, Memory
from isentrope.engines.native.attention import make_splits, run_queries
from isentrope.engines.native.device import most_tokens
from isentrope.engines.native.drafting import LONGEST_REST, REST, Guesses, PassCost, longest_guess
from isentrope.engines.native.draw import Rows, draw, draw_at
from isentrope.engines.native.host_state import HostState, Vocabulary
from isentrope.engines.native.lookup import DeviceMemory, look_up
from isentrope.engines.native.verify import Run, Runs, accept, lay_out
from isentrope.engines.native.weights import Weights
from isentrope.models.model_adapter import adapt_model
from isentrope.models.sources.pocket import PocketTokens
from tests.engines.native.small import DEVICE, MODELS, make_forward, packed, plain_logits
from tests.engines.test_drafts import some

pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in")  # by the interpreter
COST = PassCost(fixed=100.0, token=1.0, held=0.0, runs=20.0)


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device=DEVICE)


def rows_at(positions: list[int], **more: torch.Tensor) -> Rows:
    count = len(positions)
    zeros = torch.zeros(count, dtype=torch.int32, device=DEVICE)
    rows = Rows(
        ids=zeros.clone(),
        positions=ints(*positions),
        counts=zeros.clone(),
        limits=zeros + 100,
        temperatures=torch.ones(count, device=DEVICE),
        tail=torch.full((count, REACH), GAP, dtype=torch.int32, device=DEVICE),
        uniforms=torch.zeros(count, 100, device=DEVICE),
        table=zeros[:, None],
    )
    return replace(rows, **more)


def ending_with(ends: list[list[int]]) -> Rows:
    """Rows at scattered positions whose last tokens are these."""
    rows = rows_at([20 + 3 * i for i in range(len(ends))])
    for row, end in enumerate(ends):
        for back, token in enumerate(reversed(end[-REACH:])):
            rows.tail[row, (20 + 3 * row - back) % REACH] = token
    return rows


def looked_up(
    memory: DeviceMemory, rows: Rows, longest: int, reach: int = 99
) -> tuple[list[list[int]], NDArray[np.int32]]:
    """The guesses of each row, and what was found."""
    count = len(rows.positions)
    guesses, wanted = torch.zeros(count, longest, dtype=torch.int32, device=DEVICE), torch.zeros_like(rows.positions)
    found = torch.zeros(2, count, dtype=torch.int32, device=DEVICE)
    look_up(memory, rows, count, ints(*[reach] * (REACH + 1)), guesses, wanted, found)
    lengths = wanted.tolist()
    return [tokens[: max(0, n)] for tokens, n in zip(guesses.tolist(), lengths, strict=True)], found.cpu().numpy()


@pytest.mark.slow(4)
@pytest.mark.parametrize(("room", "turns"), [(40, 11), (333, 5)])
def test_the_memory_on_the_device_finds_what_the_memory_on_the_host_finds(room: int, turns: int) -> None:
    """Also once the oldest has made room for what is new, and in one that was saved and read."""
    rng, memory, other = np.random.default_rng(room), Memory(room), DeviceMemory(DEVICE, room)
    for turn in range(turns):
        told = some(rng)
        memory.tell(told)
        other.tell(told)
        if turn == turns - 3:
            state = other.state_dict()
            assert state["end"] == memory.state_dict()["end"]
            assert state["said"].tolist() == memory.state_dict()["said"].tolist()
            other = DeviceMemory(DEVICE, room)
            other.load_state_dict(memory.state_dict())
        ends = [rng.integers(0, 5, rng.integers(1, 14)).tolist() for _ in range(8)]
        ends_RN = np.full((8, REACH), GAP, dtype=np.int64)
        for row, end in enumerate(ends):
            ends_RN[row, : min(len(end), REACH)] = end[::-1][:REACH]
        draft = memory.look_up(ends_RN, 5)
        found, (match, _) = looked_up(other, ending_with(ends), 5)
        assert match.tolist() == draft.match_R.tolist()
        expected = zip(draft.tokens_RK.tolist(), draft.length_R.tolist(), strict=True)
        assert found == [tokens[:n] for tokens, n in expected]
    assert memory.state_dict()["end"] > 2 * room or room == 333


def test_a_row_guesses_no_more_than_it_may_and_an_empty_one_nothing() -> None:
    memory = DeviceMemory(DEVICE, 64)
    memory.tell([([1, 2], [3, 4, 5, 6, 7])])
    rows = ending_with([[1, 2], [1, 2], [1, 2], [9], [1, 2]])
    rows.limits[:] = ints(100, 3, 1, 100, 100)
    rows.positions[4] = -1
    assert looked_up(memory, rows, 4)[0] == [[3, 4, 5, 6], [3, 4], [], [], []]
    rows.counts[1] = 2  # one token may still be drawn: none is guessed
    rows.counts[2] = 1  # it has all: it is not read either
    found, (match, there) = looked_up(memory, rows, 4, reach=3)
    assert found == [[3, 4, 5], [], [], [], []]
    assert (match.tolist(), there.tolist()) == ([2, 2, 0, 0, 0], [4, 0, 0, 0, 0])


def laid_out(rows: Rows, guesses: list[list[int]], tokens: int) -> Run:
    runs = Runs(len(guesses), 16, 4, DEVICE)
    run = runs.of(len(guesses), tokens)
    for part in (run.ids, run.row_of, run.positions, run.further):
        part.fill_(77)  # whatever it held before
    for row, one in enumerate(guesses):
        runs.wanted[row] = len(one) if rows.positions[row] >= 0 else -1
        runs.guesses[row, : len(one)] = ints(*one)
    lay_out(run, runs, rows)
    return run


def test_runs_stand_behind_each_other_as_far_as_there_is_room() -> None:
    rows = rows_at([10, -1, 30, 40], ids=ints(5, 6, 7, 8))
    guesses = [[51, 52], [], [], [81, 82, 83]]
    run = laid_out(rows, guesses, 12)
    assert run.ids.tolist() == [5, 51, 52, 7, 8, 81, 82, 83, 0, 0, 0, 0]
    assert run.row_of.tolist() == [0, 0, 0, 2, 3, 3, 3, 3, -1, -1, -1, -1]
    assert run.positions.tolist()[:8] == [10, 11, 12, 30, 40, 41, 42, 43]
    assert run.further.tolist()[:8] == [0, 1, 2, 0, 0, 1, 2, 3]
    assert run.count.tolist() == [3, 0, 1, 4]
    assert run.first[[0, 2, 3]].tolist() == [0, 3, 4]
    run = laid_out(rows, guesses, 6)  # three guesses fit
    assert run.ids.tolist() == [5, 51, 52, 7, 8, 81]
    assert run.count.tolist() == [3, 0, 1, 2]
    run = laid_out(rows, guesses, 4)
    assert run.ids.tolist() == [5, 51, 7, 8]
    assert run.count.tolist() == [2, 0, 1, 1]


def test_what_was_drawn_is_taken_up_to_the_first_that_was_not_guessed() -> None:
    rows = rows_at([10, -1, 30, 40, 50], ids=ints(5, 6, 7, 8, 9))
    rows.limits[:] = ints(100, 100, 100, 4, 100)
    rows.counts[:] = ints(3, 3, 3, 0, 3)
    rows.tail[:] = torch.arange(5 * REACH, device=DEVICE).view(5, REACH) + 100
    before = rows.tail.clone()
    run = laid_out(rows, [[51, 52, 53], [], [], [81, 82, 83], [91]], 16)
    drawn = [
        51,
        99,
        53,
        54,
        71,
        81,
        82,
        83,
        84,
        90,
        92,
    ]  # row 0 parts behind 51; row 3 is right to the end; row 4 at once
    run.out[0, : len(drawn)] = torch.tensor(drawn, dtype=torch.float32, device=DEVICE)
    accept(run, 4, rows)
    assert run.taken.tolist() == [2, 0, 1, 4, 1]
    assert rows.ids.tolist() == [99, 6, 71, 84, 90]
    assert rows.counts.tolist() == [5, 3, 4, 4, 4]
    assert rows.positions.tolist() == [12, -1, 31, -1, 51]  # row 3 has all its tokens
    for row, new in ((0, {11: 51, 12: 99}), (2, {31: 71}), (3, {41: 81, 42: 82, 43: 83, 44: 84}), (4, {51: 90})):
        for position, token in new.items():
            before[row, position % REACH] = token
    assert rows.tail.tolist() == before.tolist()


def test_more_tokens_than_the_tail_holds_leave_its_end() -> None:
    rows, runs = rows_at([5], ids=ints(1)), Runs(1, 32, 12, DEVICE)
    run = runs.of(1, 16)
    runs.wanted[0], runs.guesses[0] = 12, torch.arange(20, 32, device=DEVICE)
    lay_out(run, runs, rows)
    run.out[0, :13] = torch.arange(20, 33, device=DEVICE)
    accept(run, 12, rows)
    assert (int(rows.positions[0]), int(rows.ids[0])) == (18, 32)
    assert rows.tail[0].tolist() == [token for _, token in sorted(((6 + i) % REACH, 20 + i) for i in range(5, 13))]


def test_draws_of_a_run_use_the_numbers_that_follow_each_other() -> None:
    """As drawing one after the other does."""
    rng = np.random.default_rng(0)
    logits = torch.tensor(rng.normal(size=(6, 50)) * 2, dtype=torch.float32, device=DEVICE)
    uniforms = torch.tensor(rng.random((3, 9), dtype=np.float32), device=DEVICE)
    rows = rows_at(
        [4, 7, 9], uniforms=uniforms, counts=ints(2, 0, 5), temperatures=torch.tensor([0.7, 1.0, 0.0], device=DEVICE)
    )
    row_of, further, out = ints(0, 0, 0, 2, 2, -1), ints(0, 1, 2, 0, 1, 0), torch.zeros(3, 6, device=DEVICE)
    draw_at(logits, row_of, further, rows, out)
    assert rows.counts.tolist() == [2, 0, 5]
    single = torch.zeros(3, 3, device=DEVICE)
    for place, row in enumerate(row_of.tolist()[:5]):
        draw(logits[place : place + 1], ints(row), rows, single, step=True)
        assert out[:, place].tolist() == single[:, row].tolist()
    assert out[:, 5].tolist() == [0, 0, 0]


@pytest.mark.slow(6)
@pytest.mark.parametrize(("kind", "length"), [("ours", 160), ("Qwen3", 32)])
def test_runs_of_all_lengths_give_the_logits_of_a_whole_pass(kind: str, length: int) -> None:
    """With a conversation read as a whole or in parts, whose borders cut runs as well."""
    model, rng = MODELS[kind](), np.random.default_rng(0)
    parts = adapt_model(model)
    assert parts is not None
    forward = make_forward(model)
    told = {
        0: rng.integers(0, 90, 62).tolist(),
        1: rng.integers(0, 90, 3).tolist(),
        3: rng.integers(0, 90, 30).tolist(),
    }
    forward.prefill(packed({row: (0, tokens) for row, tokens in told.items()}))
    guesses = [[11, 12, 13, 14], [], [], [21, 22, 23]]
    rows = forward.rows
    rows.positions[:] = ints(62, 3, -1, 30)
    rows.ids[:] = ints(5, 6, 7, 8)
    run = laid_out(rows, guesses, 16)
    queries = run_queries(parts.heads // parts.kv_heads, 5)
    splits = make_splits(4, parts.kv_heads, parts.head_size, length, -(-160 // length), DEVICE, queries)
    logits = forward.verify(run, splits, queries)
    for row, tokens in told.items():
        new = [int(rows.ids[row]), *guesses[row]]
        first = int(run.first[row])
        expected = plain_logits(model, [*tokens, *new])[len(tokens) :]
        torch.testing.assert_close(logits[first : first + len(new)], expected, atol=2e-4, rtol=2e-4)


# On the host


def ends_with(mark: bytes, tail: bytes) -> bool:
    return tail.endswith(mark)


def test_several_tokens_at_once_are_written_down_as_one_by_one() -> None:
    tokens = PocketTokens([" apple", " desk", "look"])
    words = Vocabulary(tokens, tokens.size)
    rng, ended = np.random.default_rng(3), 0
    for _ in range(60):
        one, other = (HostState(4, 16, words) for _ in range(2))
        rows = np.array([0, 1, 3])
        for state in (one, other):
            for row in rows.tolist():
                mark = tokens.pieces([9 + row])[0]
                request = Request(row, [1], np.zeros(6 + row, dtype=np.float32), 1.0, partial(ends_with, mark))
                state.begin(row, replace(request, closings=(mark,)))
        stops: list[dict[int, str]] = [{}, {}]
        for _ in range(3):
            live = np.array([row for row in rows.tolist() if row not in stops[0]], dtype=np.int64)
            if not len(live):
                break
            taken = np.minimum(rng.integers(1, 5, len(live)), one.limit[live] - one.count[live]).astype(np.int32)
            first = np.concatenate([[0], taken.cumsum()[:-1]]).astype(np.int32) + 2
            values = rng.integers(8, 30, (3, 40)).astype(np.float32)
            found, kept = one.add_runs(live, first, taken, values)
            stops[0] |= found
            for at in range(int(taken.max())):
                there = [i for i, row in enumerate(live.tolist()) if at < taken[i] and row not in stops[1]]
                if there:
                    drawn = np.zeros((3, 4), dtype=np.float32)
                    drawn[:, live[there]] = values[:, first[there] + at]
                    stops[1] |= other.add(live[there], drawn)
            assert stops[0] == stops[1]
            assert one.count.tolist() == other.count.tolist()
            lost = [i for i, row in enumerate(live.tolist()) if row in found and kept[i] < taken[i]]
            ended += len(lost)
            assert all(kept[i] == taken[i] for i in range(len(live)) if i not in lost)
        for row in rows.tolist():
            a, b = (state.end(row, "") for state in (one, other))
            assert (a.ids.tolist(), a.logprobs.tolist()) == (b.ids.tolist(), b.logprobs.tolist())
    assert ended > 10  # in the middle of what was drawn


def guesses(longest: int = 8) -> Guesses:
    made = Guesses(longest, DEVICE, COST)
    made.memory.tell([([1], [2, 3])])
    return made


def counted(one: Guesses, right: float, found: float = 1.0) -> None:
    one.reads = 4000
    one.found[REACH] = int(4000 * found)
    one.tried[:], one.right[:] = 4000, int(4000 * right)


def test_a_pass_has_as_many_guesses_as_they_are_worth() -> None:
    one = guesses()
    assert Guesses(8, DEVICE, COST).plan(8, 8, 72, 0) is None  # nothing was said yet
    counted(one, 1.0)
    plan = one.plan(8, 8, 1000, 0)
    assert plan is not None
    assert plan.tokens == 72  # all rows with all their guesses
    assert plan.reach[REACH] == 8
    counted(one, 1.0, found=0.25)
    few = one.plan(8, 8, 1000, 0)
    assert few is not None
    assert few.tokens == 24  # sixteen guesses are expected
    counted(one, 0.5)
    short = one.plan(8, 8, 1000, 0)
    assert short is not None
    assert short.tokens < 72
    assert 0 < short.reach[REACH] < 8
    counted(one, 1.0)
    narrow = one.plan(8, 8, 32, 0)  # no more tokens have room
    assert narrow is not None
    assert narrow.tokens <= 32
    one.cost = replace(COST, fixed=0.1, runs=0.0)  # where a token costs what a pass costs
    counted(one, 0.7)
    assert one.plan(8, 8, 1000, 0) is None


def test_where_little_is_gained_guesses_rest_and_are_tried_again() -> None:
    one = guesses()
    counted(one, 0.05)

    def tries(guessing: Guesses, passes: int) -> list[int]:
        return [i for i in range(passes) if guessing.plan(8, 8, 1000, 0) is not None]

    assert tries(one, 7 * REST + 5) == [REST - 1, 3 * REST - 1, 7 * REST - 1]  # each wait is twice the one before
    again = guesses()
    again.load_state_dict(one.state_dict())
    assert tries(again, 9 * REST) == tries(one, 9 * REST) == [8 * REST - 6]
    tries(one, 3 * LONGEST_REST)
    assert len(tries(one, 3 * LONGEST_REST)) == 3
    one.fade()  # a new policy
    counted(one, 0.05)
    assert len(tries(one, 2 * REST)) == 1
    counted(one, 1.0)
    assert one.plan(8, 8, 1000, 0) is None  # until it is tried
    tries(one, 2 * REST)
    assert tries(one, 10) == list(range(10))
    counted(one, 0.05)
    assert tries(one, REST)[:2] == [REST - 1]  # guesses that paid: the first wait is short again


def test_what_was_right_is_counted_by_the_length_of_the_match() -> None:
    one = guesses(4)
    # three rows: two of three guesses right; all right, and ended by its second token; nothing guessed
    match, found, drafted = np.array([2, 8, 0]), np.array([4, 2, 0]), np.array([3, 2, 0])
    one.judged(match, found, drafted, np.array([3, 3, 1]), np.array([3, 2, 1]))
    assert one.tried.tolist() == [0, 0, 1, 1, 1, 0, 0, 0, 2]
    assert one.right.tolist() == [0, 0, 1, 1, 0, 0, 0, 0, 2]
    assert one.found[2].tolist() == [1, 1, 1, 1]
    assert one.found[8].tolist() == [1, 1, 0, 0]
    assert one.found.sum() == 6
    assert one.reads == 3
    assert one.notes() == {"drafted": 5.0, "accepted": 4.0}
    assert one.chances()[2, 0] == pytest.approx((1 + PRIOR[0]) / (1 + PRIOR[1]))
    state = one.state_dict()
    again = guesses(4)
    again.load_state_dict(state)
    assert repr(again.state_dict()) == repr(state)
    other = guesses(6)  # another length of drafts: what was counted by it begins anew
    other.load_state_dict(state)
    assert (other.reads, int(other.found.sum()), other.tried.tolist()) == (0, 0, one.tried.tolist())
    one.fade()
    assert one.found[2].tolist() == [0, 0, 0, 0]


def test_what_has_room() -> None:
    assert [longest_guess(8, sharing) for sharing in (1, 3, 7, 8, 16)] == [8, 8, 8, 7, 3]
    assert most_tokens(64, 8, 1000) == 576
    assert most_tokens(64, 8, 1 << 21) == 128
    assert most_tokens(512, 8, 1 << 21) == 512  # a token of each row always has


def test_a_pass_costs_more_with_more_tokens_and_a_larger_model() -> None:
    parts = adapt_model(MODELS["ours"]())
    assert parts is not None
    cost = PassCost.of(Weights(parts, torch.float32))
    assert 0 < cost.single(8, 100) < cost.single(8, 1000) < cost.single(16, 1000) < cost.with_runs(16, 1000)
    double = replace(parts, layers=parts.layers * 2)
    more = PassCost.of(Weights(double, torch.float32))
    assert more.fixed > 1.5 * cost.fixed
    assert more.token > cost.token
