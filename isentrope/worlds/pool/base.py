"""The interface of a task pool, and the base class of all pools.

tasks = open_tasks("household", {}, count=64, workers=4, step_seconds=30.0)
views = tasks.start({0: instance, 1: instance})     # all together: slot -> View, or the Failure that ended it
steps = tasks.step({0: "look", 1: "inventory"})     # slot -> Step, or Failure

tasks.send_starts({2: instance})                    # the same without waiting
tasks.send({0: "look"})
tasks.receive()                                     # what has been answered, at least one; {} if nothing is asked
tasks.receive(wait=False)                           # what has been answered so far
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from typing import Any, Self

from isentrope.core.errors import TaskError
from isentrope.worlds.contract import Instance, Step, View, World
from isentrope.worlds.pool.guarded import MAX_ACTION, Command, Failure, Result


class TaskPool(ABC):
    """Slots are numbered from 0; only the slots named in a call are touched."""

    def __init__(self, world: World, count: int) -> None:
        if count < 1:
            raise TaskError(f"a pool needs at least one slot, not {count}")
        self._world, self._count, self._open = world, count, True
        self._under_way: set[int] = set()
        self._answered: dict[int, Result] = {}  # and not yet given to anybody
        self._noted: Counter[str] = Counter()

    @abstractmethod
    def _begin(self, command: Command, arguments: Mapping[int, Any]) -> None:
        """Have this played."""

    @abstractmethod
    def _gather(self, wait: bool) -> dict[int, Result]:
        """What has been played since this was called last; with `wait` at least one, as something is under way."""

    @property
    def waiting(self) -> int:
        """Slots that were sent something and have not answered."""
        return len(self._under_way) + len(self._answered)

    def start(self, slot_instances: dict[int, Instance]) -> dict[int, View | Failure]:
        self.send_starts(slot_instances)
        return self._all_of(slot_instances)

    def step(self, actions: dict[int, str]) -> dict[int, Step | Failure]:
        self.send(actions)
        return self._all_of(actions)

    def send_starts(self, slot_instances: dict[int, Instance]) -> None:
        """Start without waiting. What a slot still had under way is waited for, and forgotten."""
        self._check(slot_instances)
        while not self._under_way.isdisjoint(slot_instances):  # a rollout was broken off
            self._take_in(wait=True)
        for slot in slot_instances:
            self._answered.pop(slot, None)
        self._send("start", slot_instances)

    def send(self, actions: dict[int, str]) -> None:
        """Step without waiting. A slot may have one thing at a time under way."""
        self._check(actions)
        for slot in actions:
            if slot in self._under_way or slot in self._answered:
                raise TaskError(f"slot {slot} has not yet given its last answer: receive it first")
        self._send("step", {slot: action[:MAX_ACTION] for slot, action in actions.items()})

    def _send(self, command: Command, arguments: Mapping[int, Any]) -> None:
        self._under_way.update(arguments)
        self._begin(command, arguments)

    def receive(self, wait: bool = True) -> dict[int, Result]:
        self._take_in(wait and not self._answered)
        results, self._answered = self._answered, {}
        return results

    def _take_in(self, wait: bool) -> None:
        if self._under_way:
            results = self._gather(wait)
            assert results or not wait, "slots are under way that nobody plays"
            self._under_way.difference_update(results)
            self._answered.update(results)

    def _all_of(self, slots: Mapping[int, object]) -> dict[int, Any]:
        while not self._under_way.isdisjoint(slots):
            self._take_in(wait=True)
        return {slot: self._answered.pop(slot) for slot in slots}

    def _check(self, slots: Mapping[int, object]) -> None:
        if not self._open:
            raise TaskError("the pool of tasks is closed")
        for slot in slots:
            if not 0 <= slot < self._count:
                raise TaskError(f"no slot {slot}: the pool has {self._count}, numbered from 0")

    def notes(self) -> dict[str, float]:
        """What has happened to those who play the tasks since this was asked last; nothing, usually."""
        now = self._happened()
        since, self._noted = now - self._noted, now
        return {name: float(value) for name, value in since.items()}

    def _happened(self) -> Counter[str]:
        """The same since the beginning."""
        return Counter()

    def close(self) -> None:
        self._open = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
