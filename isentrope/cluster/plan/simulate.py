"""Training steps, event by event: samplers read prompts and draw tokens, tasks answer, cards learn, weights are sent.

Samplers advance in the order of their clocks, each by one pass over prompts or by as many tokens as nobody joins or
leaves. A step's episodes may begin when its gate opens:

    ahead = 0              when the update of the step before is done and its weights are there
    ahead = k              when the step before is played, with the weights of k steps before that
    ahead = k, in flight   as soon as a slot is free, if the weights of k steps before are there; they are renewed
                           while episodes are played

What a sampler's cards do at each moment is kept as spans, by what they do or wait for.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from isentrope.cluster.plan.costs import Costs
from isentrope.cluster.plan.lengths import Lengths

READ, DRAW, TASKS, OTHERS, LEARNER, WEIGHTS = (
    "prompts",
    "tokens",
    "wait: tasks",
    "wait: others",
    "wait: learning",
    "weights",
)
SCORE, UPDATE, EPISODES = "score", "update", "wait: episodes"
RESPONSE, GATE, SAMPLER = 0, 1, 2  # kinds of events; of the same moment the first comes first
SHARE = 8  # no more prompts are waited for once so large a part of the conversations waits: engines/native/engine.py
Span = tuple[float, float, str]
Learn = Callable[[Lengths], tuple[float, float]]


@dataclass(frozen=True)
class Setup:
    """What plays and what learns."""

    costs: Costs
    samplers: int
    slots: int  # conversations at once, of all samplers together
    room: int  # and of one of them
    learn: Learn  # seconds of scoring and of the update of a step
    sync: float  # seconds until samplers have new weights
    task_seconds: float  # of a task, for each turn
    task_workers: int = 1
    ahead: int = 0
    in_flight: bool = False


@dataclass(frozen=True)
class Happened:
    """Seconds since the beginning."""

    samplers: list[list[Span]]  # of each, in order
    learner: list[Span]
    begun: list[float]  # of each step: its first episode could begin
    played: list[float]  # its last episode ended
    learnt: list[float]  # its update was done


@dataclass
class _Sampler:
    clock: float = 0.0
    steps: int = 0  # tokens drawn of each conversation since the beginning
    held: float = 0.0  # tokens in the cache of those that are being answered
    active: int = 0  # conversations that it has, at their tasks too
    answered: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])  # (step at which it ends, number)
    coming: list[tuple[float, int]] = field(
        default_factory=list[tuple[float, int]]
    )  # (when its prompt is ready, number)
    said: list[int] = field(default_factory=list[int])  # responses that are kept until all are there
    known: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])  # prompts that were read: step, group
    pauses: int = 0  # weight syncs that it has had
    spans: list[Span] = field(default_factory=list[Span])

    def spend(self, seconds: float, what: str) -> None:
        if seconds > 0:
            self.spans.append((self.clock, self.clock + seconds, what))
            self.clock += seconds


def simulate(setup: Setup, steps: Sequence[Lengths]) -> Happened:
    """All of the steps, one after the other or one into the other, as the gates have it."""
    return _Simulation(setup, steps).run()


class _Simulation:
    def __init__(self, setup: Setup, steps: Sequence[Lengths]) -> None:
        self.setup, self.steps = setup, steps
        self.samplers = [_Sampler() for _ in range(setup.samplers)]
        self.number = [(step, row) for step, lengths in enumerate(steps) for row in range(lengths.episodes)]
        self.turns = [lengths.turns.tolist() for lengths in steps]
        self.read = [lengths.read.tolist() for lengths in steps]
        self.new = [lengths.new.tolist() for lengths in steps]
        self.turn = [0] * len(self.number)  # of each conversation
        self.begins = [0.0] * len(self.number)  # when its first task began
        self.length = [0] * len(self.number)  # tokens that it holds
        self.left = [lengths.episodes for lengths in steps]
        self.gate = [0.0] + [math.inf] * (len(steps) - 1)
        if setup.in_flight:
            self.gate = [0.0 if step <= setup.ahead else math.inf for step in range(len(steps))]
        self.next = 0  # conversation that is to begin
        self.free = setup.slots
        self.tasks = [0.0] * setup.task_workers  # when each worker is free
        # responses that are complete, gates that open, samplers that have something to do, by the clock: time, which of
        # the three, sampler, conversation or step
        self.queue: list[tuple[float, int, int, int]] = []
        self.parked = set(range(setup.samplers))
        self.played, self.learnt, self.learner = [0.0] * len(steps), list[float](), list[Span]()
        self.renewed: list[float] = []  # when weights are there, for samplers that get them in flight

    def run(self) -> Happened:
        self._begin(0.0)
        while self.queue:
            now, kind, place, number = heapq.heappop(self.queue)
            if kind == RESPONSE:
                self._task(now, place, number)
            elif kind == GATE:
                self.gate[number] = now
                self._begin(now)
            else:
                self._advance(place)
                self._wake(place)
        begun = [gate if step else 0.0 for step, gate in enumerate(self.gate)]
        return Happened([s.spans for s in self.samplers], self.learner, begun, self.played, self.learnt)

    # -- a sampler

    def _wake(self, number: int) -> None:
        sampler = self.samplers[number]
        if sampler.answered or sampler.coming:
            self.parked.discard(number)
            heapq.heappush(self.queue, (sampler.clock, SAMPLER, number, 0))
        else:
            self.parked.add(number)

    def _advance(self, number: int) -> None:
        sampler, together = self.samplers[number], self.setup.costs.rates.together
        while sampler.pauses < len(self.renewed) and self.renewed[sampler.pauses] <= sampler.clock:
            sampler.pauses += 1
            sampler.spend(self.setup.sync, WEIGHTS)
        due = sum(ready <= sampler.clock for ready, _ in sampler.coming)
        if together:
            if sampler.answered:
                self._draw(number, math.inf)
            elif due == len(sampler.coming):
                self._read(number)
            else:
                self._idle(sampler, max(ready for ready, _ in sampler.coming))
            return
        if due and (due * SHARE >= len(sampler.answered) or self._until_read(sampler) <= 0):
            self._read(number)
        elif sampler.answered:
            self._draw(number, self._until_read(sampler))
        else:
            self._idle(sampler, sampler.coming[0][0])

    def _until_read(self, sampler: _Sampler) -> float:
        """Tokens that may be drawn before prompts are read: until enough of them wait, or the first has waited long."""
        if not sampler.coming:
            return math.inf
        each = self.setup.costs.draw(len(sampler.answered), sampler.held)
        first = (sampler.coming[0][0] - sampler.clock) / each
        enough = math.ceil(len(sampler.answered) / SHARE)
        longest = math.ceil(first) + self.setup.costs.rates.patience
        if enough > len(sampler.coming):
            return longest
        last = first if enough == 1 else (heapq.nsmallest(enough, sampler.coming)[-1][0] - sampler.clock) / each
        return min(longest, math.ceil(last))

    def _read(self, place: int) -> None:
        sampler = self.samplers[place]
        tokens, seen, rows = 0, 0.0, 0
        while sampler.coming and sampler.coming[0][0] <= sampler.clock:
            _, number = heapq.heappop(sampler.coming)
            step, row = self.number[number]
            turn, lengths = self.turn[number], self.steps[step]
            if lengths.window:
                self.length[number] = 0
            fresh = self.read[step][row][turn] + (1 if turn and not lengths.window else 0)  # the last one drawn
            beginning = (step, row // lengths.group_size)
            before = self.length[number]
            self.length[number] += fresh
            if turn == 0 and lengths.group_size > 1:
                fresh = 1 if beginning in sampler.known else fresh
                sampler.known.add(beginning)
            tokens, seen, rows = tokens + fresh, seen + fresh * (before + fresh / 2), rows + 1
            sampler.held += self.length[number]
            ends = sampler.steps + self.new[step][row][turn] - 1 + self.setup.costs.rates.late
            heapq.heappush(sampler.answered, (ends, number))
        sampler.spend(self.setup.costs.read(tokens, seen, rows), READ)
        self._ended(place)

    def _draw(self, number: int, most: float) -> None:
        """Tokens until a response is complete, or as many as `most`."""
        sampler = self.samplers[number]
        rows, count = len(sampler.answered), sampler.answered[0][0] - sampler.steps
        count = max(1, math.ceil(min(count, most)))
        seconds = count * self.setup.costs.draw(rows, sampler.held + rows * (count - 1) / 2)
        sampler.steps += count
        sampler.held += rows * count
        sampler.spend(seconds, DRAW)
        self._ended(number)

    def _ended(self, place: int) -> None:
        """Responses that are complete go to their tasks; where all answer together, when all are complete."""
        sampler, rates = self.samplers[place], self.setup.costs.rates
        while sampler.answered and sampler.answered[0][0] <= sampler.steps:
            _, number = heapq.heappop(sampler.answered)
            step, row = self.number[number]
            self.length[number] += self.new[step][row][self.turn[number]] - 1  # the last one is read with what follows
            sampler.held -= self.length[number] + rates.late
            sampler.said.append(number)
        if sampler.said and not (rates.together and sampler.answered):
            for number in sampler.said:
                heapq.heappush(self.queue, (sampler.clock, RESPONSE, place, number))
            sampler.said = []

    def _task(self, now: float, place: int, number: int) -> None:
        """A response goes to its task. Then comes the next turn, or the episode has ended."""
        sampler, (step, row) = self.samplers[place], self.number[number]
        self.turn[number] += 1
        ready = self._worked(now)
        if self.turn[number] < self.turns[step][row]:
            heapq.heappush(sampler.coming, (ready, number))
            if place in self.parked:
                self._wake(place)
            return
        sampler.active -= 1
        self.free += 1
        self.left[step] -= 1
        self.played[step] = max(self.played[step], ready)
        if self.left[step] == 0:
            self._learn(step)
        self._begin(now)

    def _worked(self, now: float) -> float:
        """When a worker has played a task's turn."""
        if not self.setup.task_seconds:
            return now
        done = max(now, heapq.heappop(self.tasks)) + self.setup.task_seconds
        heapq.heappush(self.tasks, done)
        return done

    # -- episodes begin, steps are learnt from

    def _begin(self, now: float) -> None:
        """Conversations take the slots that are free: at first in equal parts, neighbours together, then each where
        there are the fewest."""
        samplers = self.samplers
        if self.setup.costs.rates.together and any(sampler.active for sampler in samplers):
            return  # a batch is played to its end
        last = self.next  # behind those that may begin
        while last < len(self.number) and last - self.next < self.free and self.gate[self.number[last][0]] < math.inf:
            last += 1
        there = last - self.next
        if not there:
            return
        fresh, fewest = not any(sampler.active for sampler in samplers), [(s.active, i) for i, s in enumerate(samplers)]
        heapq.heapify(fewest)
        for count in range(there):
            active, place = fewest[0] if not fresh else (0, count * len(samplers) // there)
            if active >= self.setup.room or (fresh and samplers[place].active >= self.setup.room):
                return
            self._seat(place, now)
            if not fresh:
                heapq.heapreplace(fewest, (active + 1, place))

    def _seat(self, place: int, begins: float) -> None:
        sampler = self.samplers[place]
        self.begins[self.next] = begins
        heapq.heappush(sampler.coming, (self._worked(begins), self.next))
        sampler.active += 1
        self.next += 1
        self.free -= 1
        if place in self.parked:
            self._wake(place)

    def _idle(self, sampler: _Sampler, until: float) -> None:
        """A sampler has nothing to do. If its conversations are all yet to begin, others were still playing, then the
        update was waited for; the rest is what tasks take."""
        numbers = [number for _, number in sampler.coming]
        if not any(self.turn[number] for number in numbers):
            begins = min(self.begins[number] for number in numbers)
            gate = min(begins, min(self.gate[self.number[number][0]] for number in numbers))
            ended = max((end for end, left in zip(self.played, self.left, strict=True) if not left), default=0.0)
            sampler.spend(min(ended, gate) - sampler.clock, OTHERS)
            sampler.spend(gate - sampler.clock, LEARNER)
            sampler.spend(begins - sampler.clock, OTHERS)
        sampler.spend(until - sampler.clock, TASKS)

    def _learn(self, step: int) -> None:
        """What has been played is learnt from, in order, and the gates that wait for it open."""
        setup = self.setup
        while len(self.learnt) < len(self.steps) and self.left[len(self.learnt)] == 0:
            now = len(self.learnt)
            before = self.learnt[-1] if self.learnt else 0.0
            start = max(before, self.played[now])
            scored, updated = setup.learn(self.steps[now])
            if start > before:
                self.learner.append((before, start, EPISODES))
            self.learner += [(start, start + scored, SCORE), (start + scored, start + scored + updated, UPDATE)]
            self.learnt.append(start + scored + updated)
            there = self.learnt[-1] + setup.sync
            if setup.in_flight:
                self.renewed.append(self.learnt[-1])
                self._open(now + 1 + setup.ahead, self.learnt[-1])
            elif setup.ahead == 0:
                self._open(now + 1, there)
            else:
                known = now - setup.ahead
                weights = self.learnt[known] + setup.sync if known >= 0 else 0.0
                self._open(now + 1, max(self.played[now], weights))

    def _open(self, step: int, when: float) -> None:
        if step < len(self.gate):
            heapq.heappush(self.queue, (when, GATE, 0, step))
