"""Drafts: the same tokens and probabilities as without, right counts, a bounded memory, and nothing that depends on
anything but what was said."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
import torch

from isentrope.core.engine import Request, Sampled
from isentrope.core.errors import EngineError
from isentrope.core.types import RolloutPlan
from isentrope.engines import drafts
from isentrope.engines.drafts import COSTS, GAP, PRIOR, REACH, REST, Cost, Drafts, Memory
from isentrope.engines.registry import make_engine
from isentrope.engines.torch import TorchEngine
from isentrope.models.load import load_policy
from isentrope.models.policy import Policy
from isentrope.rollout.collector import Collector
from tests.builders.sizes import EXPLORE
from tests.builders.toy_runs import WARM_MODEL, toy_config
from tests.engines.test_torch import Rule, never
from tests.models.adapters import with_adapters
from tests.models.helpers import small_policy

Told = list[tuple[list[int], list[int]]]
DRAWS = 100_000 if EXPLORE else 3_000
NEAR = 1e-5  # a uniform number that is as near to the border of its word may draw the next word


# The memory


def naive(told: Told, end: Sequence[int], longest: int) -> list[int]:
    """What stands behind the longest match, the latest of equally long ones, as far as its response goes."""
    best, found = 0, list[int]()
    for prompt, ids in told:
        said = [*prompt[-REACH:], *ids]
        for place in range(1, len(said)):
            match = 0
            while match < min(REACH, place, len(end)) and said[place - 1 - match] == end[-1 - match]:
                match += 1
            if match and match >= best:
                best, found = match, said[place : place + longest]
    return found


def looked_up(memory: Memory, ends: Sequence[Sequence[int]], longest: int) -> list[list[int]]:
    ends_RN = np.full((len(ends), REACH), GAP, dtype=np.int64)
    for row, end in enumerate(ends):
        ends_RN[row, : min(len(end), REACH)] = end[::-1][:REACH]
    found = memory.look_up(ends_RN, longest)
    return [tokens[:n] for tokens, n in zip(found.tokens_RK.tolist(), found.length_R.tolist(), strict=True)]


def some(rng: np.random.Generator, words: int = 4, most: int = 12) -> Told:
    def tokens() -> list[int]:
        return rng.integers(0, words, rng.integers(1, most)).tolist()

    return [(tokens(), tokens()) for _ in range(rng.integers(1, 5))]


def test_the_memory_gives_what_followed_the_longest_and_latest_match() -> None:
    rng, memory, told, other = np.random.default_rng(0), Memory(), Told(), 0
    for _ in range(40):
        new = some(rng)
        memory.tell(new)
        told += new
        ends = [rng.integers(0, 5, rng.integers(1, 14)).tolist() for _ in range(12)]
        expected = [naive(told, end[-REACH:], 5) for end in ends]
        other += sum(a != b for a, b in zip(looked_up(memory, ends, 5), expected, strict=True))
    assert other <= 2  # of 480: two runs may have the same slot of the index, and the later one has it


def test_nothing_told_and_words_never_heard_give_no_draft() -> None:
    memory = Memory()
    assert looked_up(memory, [[1, 2, 3]], 4) == [[]]
    memory.tell([([1], [2])])
    assert looked_up(memory, [[7], [2], [1], [1, 7]], 4) == [[], [], [2], []]
    memory.tell([([1], [])])  # a response without a token tells nothing
    assert looked_up(memory, [[1]], 4) == [[2]]


@pytest.mark.parametrize("room", [40, 64, 333])
def test_a_memory_that_was_saved_and_read_drafts_as_the_one_that_goes_on(room: int) -> None:
    """Also once the oldest has made room for what is new: places that it stood at must not be found any more."""
    rng, memory = np.random.default_rng(room), Memory(room)
    size = memory._said.nbytes + memory._index.nbytes
    for _ in range(60):
        memory.tell(some(rng))
        again = Memory(room)
        again.load_state_dict(memory.state_dict())
        ends = [rng.integers(0, 4, rng.integers(1, 10)).tolist() for _ in range(20)]
        assert looked_up(memory, ends, 6) == looked_up(again, ends, 6)
    assert memory._end > 3 * room
    assert memory._said.nbytes + memory._index.nbytes == size
    assert len(memory.state_dict()["said"]) == room


def test_more_than_the_memory_holds_at_once_leaves_its_end() -> None:
    memory = Memory(64)
    memory.tell([([1, 2], list(range(10, 210)))])
    assert looked_up(memory, [[190, 191], [20, 21]], 3) == [[192, 193, 194], []]


@pytest.mark.parametrize("broken", [{"end": 9}, {"said": torch.zeros(3)}, {"said": torch.zeros(9, dtype=torch.int32)}])
def test_a_state_that_fits_nothing_is_refused(broken: dict[str, Any]) -> None:
    memory = Memory(64)
    memory.tell([([1, 2], [3, 4])])
    with pytest.raises(ValueError, match="remembered"):
        Memory(64).load_state_dict(memory.state_dict() | broken)


def test_no_memory_for_the_table_is_an_error_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(drafts.np, "full", full)
    with pytest.raises(EngineError, match=r"table of drafts \(18 MB\): set engine.drafts = 0"):
        Drafts(4, "cpu")


# How many


def test_drafts_are_as_long_as_they_are_worth_their_cost() -> None:
    drafting = Drafts(8, "cpu")
    match_R, length_R = np.full(32, REACH), np.full(32, 8)
    drafting.tried[:], drafting.right[:] = 1000, 1000
    assert drafting.lengths(match_R, length_R).tolist() == [8] * 32
    assert drafting.lengths(match_R, np.full(32, 3)).tolist() == [3] * 32  # no more than there is
    drafting.right[:] = 600
    between = drafting.lengths(match_R, length_R).tolist()
    assert 0 < between[0] < 8
    assert between == between[:1] * 32
    drafting.right[:4] = 0  # short matches are worth nothing
    match_R[:5] = 3
    assert drafting.lengths(match_R, length_R).tolist() == [0] * 5 + between[5:]
    drafting.right[:] = 20
    assert drafting.lengths(match_R, length_R).tolist() == [0] * 32


def test_more_tokens_for_their_cost_than_any_other_choice() -> None:
    """Against all choices of lengths for three rows."""
    rng = np.random.default_rng(0)
    for _ in range(30):
        drafting = Drafts(4, "cpu")
        drafting.tried[:] = rng.integers(10, 500, REACH + 1)
        drafting.right[:] = drafting.tried * rng.random(REACH + 1)
        match_R, length_R = rng.integers(1, REACH + 1, 3), rng.integers(0, 5, 3)

        chances = drafting.chances()

        def worth(lengths: Sequence[int], chances: Any = chances, match_R: Any = match_R) -> float:
            hoped = 3 + sum(chances[m, :n].sum() for m, n in zip(match_R, lengths, strict=True))
            cost = COSTS["cpu"]
            each = cost.row + cost.place * (1 + max(lengths))
            return float(hoped / (cost.fixed + 3 * each + 3 + sum(lengths)))

        best = max(worth(lengths) for lengths in np.ndindex(*(length_R + 1)))
        assert worth(drafting.lengths(match_R, length_R).tolist()) == pytest.approx(best, rel=1e-12)


def test_pieces_are_read_together_where_that_costs_least() -> None:
    """Against all ways to cut the pieces, which are best cut by width."""
    cost, rng = Cost(fixed=10, row=3, place=0.5), np.random.default_rng(0)

    def takes(parts: Sequence[Sequence[int]]) -> float:
        gathered = 1.5 * sum(map(len, parts)) if len(parts) > 1 else 0.0
        return gathered + sum(10 + 0.5 * len(part) * max(widths[i] for i in part) for part in parts)

    cuts = 0
    for _ in range(60):
        widths = rng.choice([1, 2, 5, 9, 40, 70], rng.integers(1, 9)).tolist()
        parts = cost.parts(widths)
        assert sorted(i for part in parts for i in part) == list(range(len(widths)))
        order = sorted(range(len(widths)), key=lambda i: widths[i])
        ways = [
            [order[a:b] for a, b in pairwise([0, *cut, len(order)])]
            for count in range(len(order))
            for cut in combinations(range(1, len(order)), count)
        ]
        assert takes(parts) == pytest.approx(min(map(takes, ways)))
        cuts += len(parts) > 1
    assert cuts > 10
    assert cost.parts([4, 4, 5]) == [[0, 1, 2]]


def test_chances_by_hand() -> None:
    drafting = Drafts(2, "cpu")
    drafting.tried[7], drafting.right[7] = 7, 3  # with those before: 5 of 10
    drafting.tried[8], drafting.right[8] = 12, 10  # 12 of 15
    assert drafting.chances()[7].tolist() == pytest.approx([0.5, 0.5 * 0.8])
    assert drafting.chances()[8].tolist() == pytest.approx([0.8, 0.8 * 0.8])
    first = PRIOR[0] / PRIOR[1]
    assert drafting.chances()[1].tolist() == pytest.approx([first, first * first])


def test_what_was_drawn_is_counted_by_the_length_of_the_match() -> None:
    drafting = Drafts(4, "cpu")
    drafting.memory.tell([([1, 2, 3], [4, 5, 6])])
    assert drafting.draft([[2, 3], [9]], [4, 4]) == [[4, 5, 6], []]
    drafting.judged(0, [4, 5, 6], [4, 5, 9])
    drafting.judged(1, [], [3])
    assert drafting.tried.tolist() == [0, 0, 1, 1, 1, 0, 0, 0, 0]
    assert drafting.right.tolist() == [0, 0, 1, 1, 0, 0, 0, 0, 0]
    assert drafting.notes() == {"drafted": 3.0, "accepted": 2.0}
    assert drafting.notes() == {"drafted": 0.0, "accepted": 0.0}


def test_drafts_rest_where_nothing_is_gained_and_are_tried_again() -> None:
    drafting = Drafts(4, "cpu")
    assert not drafting.begin(8)  # nothing was said yet
    drafting.memory.tell([([1], [2])])
    assert drafting.begin(8)
    drafting.reads = 2000
    begun = [drafting.begin(8) for _ in range(3 * REST)]
    assert begun == [i % REST == REST - 1 for i in range(3 * REST)]
    drafting.begin(8)
    again = Drafts(4, "cpu")
    again.load_state_dict(drafting.state_dict())
    assert [again.begin(8) for _ in range(REST)] == [drafting.begin(8) for _ in range(REST)]
    drafting.gained = 1000
    assert all(drafting.begin(8) for _ in range(REST))


def test_counts_that_are_none_are_refused() -> None:
    drafting = Drafts(4, "cpu")
    state = drafting.state_dict()
    for counts in ([-1] * 9, [2] * 9):
        with pytest.raises(ValueError, match="counts of drafts"):
            drafting.load_state_dict(state | {"right": counts})


# The engine


def speak(
    engine: TorchEngine, turns: int, rows: int, room: int, seed: int, stop: Callable[[bytes], bool] = never
) -> list[tuple[Request, Sampled]]:
    """Conversations in groups of four that begin alike, at several temperatures: low ones repeat themselves."""
    rng = np.random.default_rng(seed)
    engine.open(range(rows))
    opening = rng.integers(9, 30, (rows, 6))
    prompts = {slot: opening[slot // 4].tolist() for slot in range(rows)}
    said: list[tuple[Request, Sampled]] = []
    live = list(range(rows))
    for turn in range(turns):
        if turn == turns - 2:
            live = live[::2]
            engine.keep(live)
        requests = [
            Request(s, prompts[s], rng.random(room, dtype=np.float32), [0.05, 0.3, 1.0, 0.0][s % 4], stop) for s in live
        ]
        new = rng.integers(9, 30, (rows, 3))
        for request, sampled in zip(requests, engine.sample(requests), strict=True):
            said.append((request, sampled))
            # from the same turn on both sides, whatever was drawn: one draw that differs must not change all others
            prompts[request.slot] = [*prompts[request.slot], *new[request.slot].tolist(), *opening[0].tolist()]
    return said


def distance(policy: Policy, request: Request, ids: Sequence[int]) -> float:
    """How far the uniform number of the last of these tokens is from the nearest border between two words."""
    tokens = torch.tensor([[*request.prompt, *ids[:-1]]])
    with torch.no_grad():
        hidden = policy.model.hidden(tokens, torch.arange(tokens.shape[1])[None], torch.zeros_like(tokens))[0, -1]
    p = torch.softmax(hidden @ policy.model.head_weight().detach().T / (request.temperature or 1), -1).double()
    return float((p.cumsum(-1) / p.sum() - float(request.uniforms[len(ids) - 1])).abs().min())


def first_difference(one: Sampled, other: Sampled) -> int | None:
    pairs = zip(one.ids.tolist(), other.ids.tolist(), strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), None)


@pytest.mark.slow(3)
def test_drafts_change_no_token_and_no_probability(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Drafts, "begin", lambda *_: True)  # it never rests
    policy = small_policy()
    plain, drafting = TorchEngine(policy), TorchEngine(policy, drafts=6)
    draws = parted = 0
    drafted = accepted = 0.0
    seed = 0
    while draws < DRAWS:
        seed += 1
        sides = [speak(engine, turns=5, rows=16, room=14, seed=seed) for engine in (plain, drafting)]
        for (request, one), (_, other) in zip(*sides, strict=True):
            at = first_difference(one, other)
            if at is not None:
                parted += 1
                assert distance(policy, request, one.ids[: at + 1].tolist()) < NEAR
            same = len(one.ids) if at is None else at
            draws += same
            for name in ("logprobs", "entropies", "temperatures"):
                np.testing.assert_allclose(getattr(one, name)[:same], getattr(other, name)[:same], atol=1e-4)
            if at is None:
                assert (one.stop, len(one.ids)) == (other.stop, len(other.ids))
        notes = drafting.notes()
        drafted, accepted = drafted + notes["drafted"], accepted + notes["accepted"]
    with capsys.disabled():
        if EXPLORE:
            print(f"\n{draws} draws, {parted} parted near a border; {accepted:.0f} of {drafted:.0f} drafted were right")
    assert accepted > draws / 10
    assert drafted > accepted  # some were wrong, and were taken back
    assert parted <= 1 + draws / 10_000


def drafted_as_without(policy: Policy) -> None:
    """For other kinds of models: conversations said a second time are drafted, and are the same."""
    plain, drafting = TorchEngine(policy), TorchEngine(policy, drafts=6)
    drafting._drafts.begin = lambda rows: True  # type: ignore[union-attr, method-assign]  # it never rests
    for _ in range(2):
        sides = [speak(engine, turns=4, rows=8, room=10, seed=3) for engine in (plain, drafting)]
        for (_, one), (_, other) in zip(*sides, strict=True):
            assert one.ids.tolist() == other.ids.tolist()
            np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-4)
    assert drafting.notes()["accepted"] > 100


def test_a_model_with_adapters_is_drafted_too() -> None:
    policy = small_policy()
    drafted_as_without(replace(policy, model=with_adapters(policy.model)))


@pytest.mark.parametrize("stop", ["length", "tag", "eos"])
def test_a_response_ends_inside_a_draft_where_it_would_end_without(stop: str) -> None:
    """The same conversation again and again, greedily, is drafted as a whole."""
    policy = small_policy()
    numbers = np.full(20, 0.5, dtype=np.float32)
    whole = TorchEngine(policy)
    whole.open([0])
    ids = whole.sample([Request(0, [9, 10, 11], numbers, 0.0, never)])[0].ids.tolist()
    at = next(i for i in range(4, len(ids)) if ids[i] not in ids[:i])  # a word that has not stood before
    ends: Callable[[bytes], bool] = never
    if stop == "tag":
        piece = policy.tokenizer.pieces([ids[at]])[0]
        ends = lambda tail: tail.endswith(piece)  # noqa: E731
    elif stop == "eos":
        policy.tokenizer.eos_ids = (ids[at],)  # type: ignore[misc]
    else:
        numbers = numbers[: at + 1]
    engine = TorchEngine(policy, drafts=8)
    for turn in range(4):
        engine.open([0, 1])
        request = Request(0, [9, 10, 11], numbers, 0.0, ends)
        sampled = engine.sample([request, Request(1, [9, 12], np.full(20, 0.7, dtype=np.float32), 0.7, never)])[0]
        assert (sampled.ids.tolist(), sampled.stop) == (ids[: at + 1], stop)
        assert engine._cache is not None
        assert int(engine._cache.lengths[0]) == 3 + at == len(engine._held[0])  # the last was drawn, never read
        assert engine.notes()["accepted"] > 0 or not turn
        again = engine.sample([Request(0, [9, 10, 11, *ids[: at + 1], 14], numbers[:2], 1.0, never)])[0]
        fresh = TorchEngine(policy)
        fresh.open([0])
        other = fresh.sample([Request(0, [9, 10, 11, *ids[: at + 1], 14], numbers[:2], 1.0, never)])[0]
        np.testing.assert_allclose(again.logprobs, other.logprobs, atol=1e-4)  # the cache holds what it should


def test_a_response_whose_temperatures_follow_a_rule_goes_token_by_token() -> None:
    policy, numbers = small_policy(), np.full(8, 0.4, dtype=np.float32)

    def play(engine: TorchEngine) -> tuple[list[Sampled], list[list[float]]]:
        said: list[Sampled] = []
        told: list[list[float]] = []
        for _ in range(3):
            engine.open([0, 1])
            rule = Rule(lambda ids, entropy: 1.3 if len(ids) % 2 else 0.4, needs_entropy=True)
            ruled = Request(0, [9, 10], numbers, 0.8, never, rule)
            said += engine.sample([ruled, Request(1, [9, 10], numbers, 0.4, never)])
            told.append(rule.told)
        return said, told

    engine = TorchEngine(policy, drafts=4)
    (said, told), (others, others_told) = play(engine), play(TorchEngine(policy))
    assert engine.notes()["accepted"] > 0  # of the other
    assert [len(entropies) for entropies in told] == [len(sampled.ids) for sampled in said[::2]]
    np.testing.assert_allclose(told, others_told, atol=1e-4)
    for one, other in zip(said, others, strict=True):
        assert one.ids.tolist() == other.ids.tolist()
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-4)
        assert one.temperatures.tolist() == other.temperatures.tolist()


def test_an_engine_that_takes_on_a_state_samples_the_same_bit_for_bit() -> None:
    policy = small_policy()
    engine, again = TorchEngine(policy, drafts=6), TorchEngine(policy, drafts=6)
    speak(engine, turns=3, rows=8, room=10, seed=1)
    engine.refresh()
    again.load_state_dict(engine.state_dict())
    engine.notes()
    for (_, one), (_, other) in zip(*(speak(e, 3, 8, 10, seed=2) for e in (engine, again)), strict=True):
        for name in ("ids", "logprobs", "entropies"):
            assert getattr(one, name).tobytes() == getattr(other, name).tobytes()
    assert engine.notes() == again.notes()
    assert TorchEngine(policy).state_dict() == {}


def test_an_evaluation_leaves_nothing_in_what_is_remembered_even_if_it_is_given_up() -> None:
    config = toy_config(WARM_MODEL, "engine.drafts=4")
    policy = load_policy(config.policy, config.run)
    with Collector(config, make_engine(config, policy)) as collector:
        collector.collect(1)
        before = repr(collector.state_dict())
        assert "drafts" in before

        def give_up(_: int) -> None:
            raise KeyboardInterrupt

        collector.evaluate("train", 3, RolloutPlan())
        assert repr(collector.state_dict()) == before
        with pytest.raises(KeyboardInterrupt):
            collector.evaluate("train", 3, RolloutPlan(), give_up)
        assert repr(collector.state_dict()) == before
        collector.collect(2)
        assert repr(collector.state_dict()) != before


def test_drafts_are_made_where_the_settings_say_so_and_on_a_cpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    config = toy_config(WARM_MODEL, "engine.drafts=4")
    policy = load_policy(config.policy, config.run)
    assert make_engine(config, policy)._drafts.longest == 4  # type: ignore[attr-defined]
    assert make_engine(toy_config(WARM_MODEL), policy)._drafts is None  # type: ignore[attr-defined]
    monkeypatch.setattr("isentrope.engines.torch.COSTS", {})
    assert make_engine(config, policy)._drafts is None  # type: ignore[attr-defined]


def test_conversations_that_go_on_alike_from_different_beginnings_are_told_apart() -> None:
    policy, new = small_policy(), [9, 12, 15, 18, 21, 24, 27, 30, 33]
    engine, plain = TorchEngine(policy, drafts=6), TorchEngine(policy)
    sides: list[list[Sampled]] = []
    for one in (engine, plain):
        one.open([0, 1])
        one.sample([Request(s, [9 + 4 * s], np.full(1, 0.5, dtype=np.float32), 1.0, never) for s in (0, 1)])
        if one is engine:
            engine._drafts.memory.tell([(new, [14, 16, 18, 20])])  # type: ignore[union-attr]
        numbers = np.full(5, 0.5, dtype=np.float32)
        sides.append(one.sample([Request(s, [9 + 4 * s, *new], numbers, 1.0, never) for s in (0, 1)]))
    assert engine.notes()["drafted"] > 0
    for drafted, other in zip(*sides, strict=True):
        assert drafted.ids.tolist() == other.ids.tolist()
        np.testing.assert_allclose(drafted.logprobs, other.logprobs, atol=1e-4)
