"""Who is answered when, and what lies in which page, with a device on paper.

Its cache holds tokens instead of keys and values, and each word that it draws is a checksum of all tokens that a
conversation's pages hold. So whatever happens around a conversation, its response must be what its prompt alone gives.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from isentrope.core.engine import Request, Sampled
from isentrope.engines.drafts import Counts
from isentrope.engines.native.device import Drawn, Guessed, Landing
from isentrope.engines.native.drafting import Guesses, Plan
from isentrope.engines.native.engine import AHEAD, FastEngine
from isentrope.engines.native.host_state import Pages
from isentrope.engines.native.prefill import Layout, PrefillPacket
from isentrope.engines.native.sizes import bucket, padded
from tests.engines.native.test_engine import fast, policy

PAGE, CONTEXT, ROWS, SLOTS, FEW_PAGES = 4, 40, 8, 12, 30
OF = policy()
HOME = "isentrope.engines.native.engine"


def word(context: Sequence[int], uniform: float, temperature: float) -> tuple[int, float, float]:
    """Token, log-prob and entropy: the last depends on the context alone."""
    seen = np.asarray(context, dtype=np.int32).tobytes()
    draw = zlib.crc32(seen + np.float32([uniform, temperature]).tobytes())
    return 9 + draw % 150, (draw % 1000) / 1000, (zlib.crc32(seen) % 100) / 100


class Contexts(dict[int, list[int]]):
    """In the place of logits: row -> what stands before the word that is to be drawn."""

    @property
    def shape(self) -> tuple[int]:
        return (len(self),)


class Paper:
    """Keeps the interface of `Device`."""

    def __init__(
        self,
        weights: object,
        rows: int,
        pages: int,
        context: int,
        answer: int,
        place: object,
        memory: object = None,
        longest: int = 0,
    ) -> None:
        self.longest, self.most_tokens, self.random = longest, rows * (1 + longest), random.Random(pages)
        ints = np.zeros(rows, dtype=np.int64)
        self.rows: Any = SimpleNamespace(
            ids=ints.copy(),
            positions=ints - 1,
            counts=ints.copy(),
            limits=ints.copy(),
            temperatures=np.ones(rows, dtype=np.float32),
            uniforms=np.zeros((rows, answer), dtype=np.float32),
            table=np.zeros((rows, context // PAGE), dtype=np.int64),
        )
        self.count, self.everyone = rows, np.arange(rows)
        self.cache = np.full((pages, PAGE), -1)
        self.ends = ints.copy()  # where each row's pages end, about
        self.out = np.zeros((3, rows), dtype=np.float32)

    def upload(self, values: Any) -> Any:
        return values

    def packet(self, tokens: int, admitted: int) -> PrefillPacket:
        layout = Layout(padded(tokens), self.count, self.rows.table.shape[1], self.rows.uniforms.shape[1])
        return PrefillPacket(layout, admitted, torch.full((layout.size(admitted),), 77, dtype=torch.int32))

    def _admit(self, packet: PrefillPacket) -> None:
        at, left = packet.last_row[: packet.admitted], packet.left[packet.left >= 0]
        assert len({*at.tolist(), *left.tolist()}) == len(at) + len(left), "who is in this row?"
        self.leave(left)
        self.rows.positions[at] = packet.positions[packet.last[: packet.admitted]] + 1
        self.rows.counts[at], self.rows.temperatures[at] = 0, packet.temperatures
        self.rows.table[at], self.rows.uniforms[at] = packet.table, packet.uniforms
        self.rows.limits[at] = packet.limits[:, 0]
        self.ends[at] = self.rows.positions[at] + self.rows.limits[at]

    def warm(self, at: Any, temperatures: Any) -> None:
        self.rows.temperatures[at] = temperatures

    def leave(self, at: Any) -> None:
        self.rows.positions[at] = -1

    def _write(self, row: int, position: int, token: int) -> None:
        assert position < self.ends[row], "it may have no page for this token"
        self.cache[self.rows.table[row, position // PAGE], position % PAGE] = token

    def _context(self, row: int, length: int) -> list[int]:
        return [int(self.cache[self.rows.table[row, i // PAGE], i % PAGE]) for i in range(length)]

    def prefill(self, packet: PrefillPacket, draws: bool) -> Contexts:
        self._admit(packet)
        for token, row, position in zip(packet.ids, packet.row_of, packet.positions, strict=True):
            if row >= 0:
                self._write(row, position, token)
        ends = [(row, int(self.rows.positions[row])) for row in packet.last_row.tolist() if row >= 0]
        logits = Contexts({row: self._context(row, length) for row, length in ends})
        if draws:
            self.draw(logits, None, step=False, commit=True)
        return logits

    def size_for(self, used: int) -> int:
        return min(bucket(used), self.count)

    def draft(self, used: int, longest: int, tokens: int, reach: tuple[int, ...]) -> Guessed:
        """Guesses that are right more often than not; all of them stay in the cache."""
        count, state, out, first = self.size_for(used), self.rows, np.zeros((3, tokens), dtype=np.float32), 0
        info = np.zeros((5, count), dtype=np.int32)
        live = [row for row in range(count) if state.positions[row] >= 0 and state.counts[row] < state.limits[row]]
        for left, row in zip(range(len(live) - 1, -1, -1), live, strict=True):
            at, counted, token = int(state.positions[row]), int(state.counts[row]), int(state.ids[row])
            most = min(reach[-1], int(state.limits[row]) - counted - 1, tokens - first - left - 1)
            guesses, taken, right = self.random.randint(0, most), 0, True
            for i in range(guesses + 1):
                assert at + i < longest
                self._write(row, at + i, token)
                drawn = word(self._context(row, at + i + 1), state.uniforms[row, counted + i], state.temperatures[row])
                out[:, first + i] = drawn
                taken += right
                token = drawn[0] if self.random.random() < 0.7 else 9
                right = right and token == drawn[0]
            info[:, row] = (8, most, first, guesses + 1, taken)
            state.ids[row] = out[0, first + taken - 1]
            state.counts[row] += taken
            state.positions[row] = -1 if state.counts[row] == state.limits[row] else at + taken
            first += guesses + 1
        whole = np.concatenate([out.ravel(), info.ravel().view(np.float32)])
        return Guessed(Drawn(Landing(torch.from_numpy(whole), None), []), tokens)

    def decode(self, used: int, longest: int, draws: bool) -> Contexts:
        rows = [row for row in range(self.size_for(used)) if self.rows.positions[row] >= 0]
        for row in rows:
            self._write(row, self.rows.positions[row], self.rows.ids[row])
        logits = Contexts({row: self._context(row, self.rows.positions[row] + 1) for row in rows})
        assert all(len(context) < longest for context in logits.values())
        if draws:
            self.draw(logits, None, step=True, commit=True)
        return logits

    def draw(self, logits: Contexts, row_of: object, *, step: bool, commit: bool) -> None:
        for row, context in logits.items():
            count = min(int(self.rows.counts[row]), self.rows.uniforms.shape[1] - 1)
            self.out[:, row] = word(context, self.rows.uniforms[row, count], self.rows.temperatures[row])
            if commit:
                self.rows.ids[row] = self.out[0, row]
                self.rows.counts[row] += 1
                self.rows.positions[row] += step

    def drawn(self) -> Drawn:
        return Drawn(Landing(torch.from_numpy(self.out.copy()), None), [])


@dataclass
class Rule:
    needs_entropy: bool

    def __call__(self, response: Sequence[int], entropy: float) -> float:
        return 0.5 + 0.125 * (sum(response) % 4) + (0.25 if entropy > 0.5 else 0.0)


def alone(request: Request) -> list[int]:
    """What this request is answered with, from its prompt alone."""
    context, ids = list(request.prompt), list[int]()
    for uniform in request.uniforms:
        t = request.temperature
        if request.temperature_of is not None:
            entropy = word(context, 0, 0)[2] if request.temperature_of.needs_entropy else 0.0
            t = request.temperature_of(ids, entropy)
        token = word(context, uniform, np.float32(t).item())[0]
        ids.append(token)
        context.append(token)
        if token in OF.tokenizer.eos_ids or request.stop(OF.tokenizer.pieces([token])[0]):
            break
    return ids


class Story:
    """Whatever may happen to an engine, drawn at random."""

    def __init__(self, engine: FastEngine, seed: int) -> None:
        self.engine, self.random = engine, random.Random(seed)
        self.rules = [None] * 4 + [Rule(False), Rule(True)] * (seed % 2)  # with which nothing runs ahead
        self.asked: dict[int, Request] = {}
        self.said: dict[int, list[int]] = {}  # slot -> prompt and response so far
        engine.open(range(SLOTS))

    def prompt(self, slot: int, room: int) -> list[int]:
        r = self.random
        new = [r.randrange(9, 12) for _ in range(r.randint(1, 12))]
        told = self.said.get(slot, [])
        begin = {0: [], 1: told, 2: told[: r.randint(0, len(told))], 3: self.said.get(r.randrange(SLOTS), [])}
        chosen = [*begin[r.choice((0, 1, 1, 2, 3))], *(new if r.random() < 0.9 else [])]
        return (chosen or new)[:room]

    def request(self, slot: int) -> Request:
        r = self.random
        count = r.choice((1, 2, 3, 5, 8, 8, 8, 12))
        numbers = np.array([r.random() for _ in range(count)], dtype=np.float32)
        ends = r.choice((0, 0, 7))
        rule = r.choice(self.rules)
        stop = (lambda tail: zlib.crc32(tail[-1:]) % ends == 0) if ends else (lambda tail: False)
        return Request(slot, self.prompt(slot, CONTEXT - count), numbers, r.choice((0.5, 1.0)), stop, rule)

    def hear(self, found: dict[int, Sampled]) -> None:
        for slot, sampled in found.items():
            request = self.asked.pop(slot)
            assert sampled.ids.tolist() == alone(request)
            assert len(sampled.temperatures) == len(sampled.logprobs) == len(sampled.ids)
            self.said[slot] = [*request.prompt, *sampled.ids.tolist()]

    def go_on(self) -> None:
        r, engine = self.random, self.engine
        what = r.choice(("submit",) * 4 + ("collect",) * 4 + ("keep", "open", "refresh"))
        if what == "submit":
            free = [slot for slot in range(SLOTS) if slot not in self.asked]
            new = [self.request(slot) for slot in r.sample(free, r.randint(0, min(5, len(free))))]
            engine.submit(new)
            self.asked |= {request.slot: request for request in new}
        elif what == "collect":
            found = engine.collect()
            assert bool(found) == bool(self.asked)
            self.hear(found)
        elif what == "keep":
            kept = r.sample(range(SLOTS), r.randint(0, SLOTS))
            engine.keep(kept)
            self.asked = {slot: request for slot, request in self.asked.items() if slot in kept}
        elif r.random() < 0.3:
            engine.open(range(SLOTS)) if what == "open" else engine.refresh()
            self.asked = {}
        assert engine.waiting == len(self.asked)

    def end(self) -> None:
        while self.engine.waiting:
            self.hear(self.engine.collect())
        assert not self.asked
        self.engine.keep([])
        assert self.engine._device is None or self.engine._pages.free == self.engine._pages.count


def on_paper(monkeypatch: pytest.MonkeyPatch, drafts: int = 0) -> FastEngine:
    monkeypatch.setattr(f"{HOME}.PAGE", PAGE)
    monkeypatch.setattr(f"{HOME}.Device", Paper)
    return fast(OF, ROWS, CONTEXT, drafts=drafts)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_whatever_happens_around_it_a_response_comes_from_its_prompt(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{HOME}.MOST_RECORDED", 24)
    monkeypatch.setattr(f"{HOME}.Pages", lambda count, size: Pages(min(count, FEW_PAGES), size))
    story = Story(on_paper(monkeypatch), seed)
    for _ in range(40):
        story.go_on()
    story.end()


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_guesses_change_no_response_whatever_happens_around_it(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes with guesses and without in any order, of any size."""
    monkeypatch.setattr(f"{HOME}.MOST_RECORDED", 24)
    monkeypatch.setattr(f"{HOME}.Pages", lambda count, size: Pages(min(count, FEW_PAGES), size))
    monkeypatch.setattr(f"{HOME}.Guesses", Whims)
    engine = on_paper(monkeypatch, drafts=6)
    story = Story(engine, seed)
    for _ in range(40):
        story.go_on()
    story.end()
    assert engine._guesses is not None
    told = engine.notes()
    assert told["accepted"] <= told["drafted"]


class Whims(Guesses):
    """Guesses now and then."""

    def __init__(self, longest: int, device: torch.device, cost: object) -> None:
        Counts.__init__(self, longest)
        self.found, self.random = np.zeros((9, longest), dtype=np.int64), random.Random(longest)
        self.memory = self.told = []  # type: ignore[assignment]

    def heard(self, prompt: Sequence[int], ids: Sequence[int]) -> None:
        self.told.append(ids)

    def remember(self) -> None:
        """Nothing is looked up."""

    def plan(self, rows: int, count: int, most: int, held: int) -> Plan | None:
        assert rows <= count <= most
        if self.random.random() < 0.3:
            return None
        return Plan(self.random.randint(count, most), (0,) + (self.random.randint(1, self.longest),) * 8)


def test_the_device_has_work_while_responses_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three requests: one ends after two words, the others go on. Near their ends less can be done ahead."""
    engine = on_paper(monkeypatch)
    engine.open(range(3))
    prompts = {0: [9, 10, 11], 1: [9, 10, 12, 13], 2: [20]}
    counts = {0: 2, 1: 12, 2: 5}
    numbers = np.linspace(0.1, 0.9, 12, dtype=np.float32)
    requests = [Request(s, prompts[s], numbers[: counts[s]], 1.0, lambda tail: False) for s in prompts]
    engine.submit(requests)
    found = engine.collect()
    assert list(found) == [0]
    assert len(engine._launched) == AHEAD
    found |= engine.collect()  # the second has had at least its five words by now, and the device is told that it left
    assert sorted(found) == [0, 2]
    assert len(engine._launched) == AHEAD
    found |= engine.collect()
    assert not engine.waiting
    assert len(engine._launched) <= 1  # nobody is left to work for
    for request in requests:
        assert found[request.slot].ids.tolist() == alone(request)


def test_nothing_runs_ahead_of_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = on_paper(monkeypatch)
    engine.open(range(2))
    numbers = np.linspace(0.1, 0.9, 8, dtype=np.float32)
    engine.submit([Request(0, [9], numbers[:2], 1.0, lambda tail: False)])
    engine.submit([Request(1, [10], numbers, 1.0, lambda tail: False, Rule(True))])
    assert list(engine.collect()) == [0]
    assert not engine._launched
