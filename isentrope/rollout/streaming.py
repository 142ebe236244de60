"""Plays episodes with an engine that takes requests while others are being answered: each at its own pace.

A response that is complete goes to its task at once; a task that has answered goes back into the engine; the slot of an
episode that has ended goes to the next one. A task that is slow holds up its own episode and nobody else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from isentrope.agent.response_format import Parsed
from isentrope.core.engine import Engine, Request, Sampled, Streaming, calling_engine
from isentrope.core.types import Episode
from isentrope.rollout.episode import EpisodesEnded, Play, Rules, Seat
from isentrope.rollout.timings import Clock
from isentrope.worlds.contract import Instance, Step, View
from isentrope.worlds.pool.base import Result, TaskPool


class StreamingEngine(Engine, Streaming, Protocol):
    """Both."""


class StreamingRollout:
    """One rollout."""

    def __init__(self, engine: StreamingEngine, tasks: TaskPool, rules: Rules, batch: int, clock: Clock) -> None:
        self.engine, self.tasks, self.rules, self.batch, self.clock = engine, tasks, rules, batch, clock
        self._coming: deque[tuple[int, Seat]] = deque()  # episodes that wait for a slot, with their number
        self._seated: dict[int, tuple[int, Seat]] = {}  # slot -> the episode whose task is being started
        self._plays: dict[int, tuple[int, Play]] = {}  # slot -> the episode that is being played
        self._said: dict[int, tuple[Sampled, Parsed]] = {}  # slot -> the response that its task works on
        self._starts: dict[int, Instance] = {}
        self._requests: list[Request] = []
        self._episodes: dict[int, Episode] = {}

    def play(self, seats: Sequence[Seat], progress: EpisodesEnded) -> list[Episode]:
        slots = range(min(self.batch, len(seats)))
        self.engine.open(slots)
        self._coming.extend(enumerate(seats))
        for slot in slots:
            self._next_episode(slot)
        while self._seated or self._plays:
            before = len(self._episodes)
            self._ask_tasks()
            self._ask_engine()
            progress(len(self._episodes) - before)
        return [self._episodes[number] for number in range(len(seats))]

    def _ask_tasks(self) -> None:
        """Start what is to be started and take up what tasks have answered; wait only if the engine has nothing."""
        if self._starts:
            starts, self._starts = self._starts, {}
            with self.clock("tasks"):
                self.tasks.send_starts(starts)
        if not self.tasks.waiting:
            return
        wait = not self.engine.waiting and not self._requests
        with self.clock(*(("tasks",) if wait else ())):
            results = self.tasks.receive(wait)
        for slot, result in results.items():
            self._told(slot, result)

    def _ask_engine(self) -> None:
        """Hand over what waits for a response; send the actions of the responses that are complete to their tasks."""
        if self._requests:
            requests, self._requests = self._requests, []
            with self.clock("engine"), calling_engine(self.engine, "submit"):
                self.engine.submit(requests)
        if not self.engine.waiting:
            return
        idle = () if self.tasks.waiting else ("tasks_idle",)
        with self.clock("engine", *idle), calling_engine(self.engine, "collect"):
            answers = self.engine.collect()
        actions: dict[int, str] = {}
        for slot, answer in answers.items():
            action = self._answered(slot, answer)
            if action is not None:
                actions[slot] = action
        if actions:
            with self.clock("tasks"):  # tasks of this very thread are played here
                self.tasks.send(actions)

    def _answered(self, slot: int, answer: Sampled) -> str | None:
        """The action of a response; None if there is none: then the conversation goes on, or ends, without a step."""
        _, play = self._plays[slot]
        if answer.stop == "error":
            play.fail("engine_error", answer.detail)
            self._go_on(slot)
            return None
        parsed = self.rules.read(answer)
        if parsed.action is None:
            self.rules.record(play, answer, parsed, None)
            self._go_on(slot)
        else:
            self._said[slot] = (answer, parsed)
        return parsed.action

    def _told(self, slot: int, result: Result) -> None:
        """A task has answered: to a start, or to an action."""
        if slot in self._seated:
            assert not isinstance(result, Step)
            number, seat = self._seated.pop(slot)
            self._plays[slot] = (number, self.rules.seated(seat, result))
            self._go_on(slot)
        elif slot in self._said:
            assert not isinstance(result, View)
            answer, parsed = self._said.pop(slot)
            self.rules.record(self._plays[slot][1], answer, parsed, result)
            self._go_on(slot)

    def _go_on(self, slot: int) -> None:
        """The next turn, or the next episode of the slot."""
        number, play = self._plays[slot]
        request = None if play.stop else self.rules.request(slot, play)
        if request is not None:
            self._requests.append(request)
            return
        self._episodes[number] = self.rules.episode(play)
        del self._plays[slot]
        self._next_episode(slot)

    def _next_episode(self, slot: int) -> None:
        if self._coming:
            number, seat = self._coming.popleft()
            self._seated[slot] = (number, seat)
            self._starts[slot] = seat.instance
