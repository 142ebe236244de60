"""Many tasks at once, for the rollout runner: in this process, or spread over worker processes.

    tasks = open_tasks("household", {}, count=64, workers=4, step_seconds=30.0)
    views = tasks.start({0: instance, 1: instance})     # slot -> View, or the Failure that ended it
    steps = tasks.step({0: "look", 1: "inventory"})     # slot -> Step, or Failure
    tasks.close()

A slot that fails ends its own episode and nothing else. A worker that hangs or dies takes along the episodes that
were being played in it, is replaced, and can be given new ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Protocol, Self

from isentrope.errors import TaskError
from isentrope.tasks.contract import Instance, Step, View, World
from isentrope.tasks.registry import make_world
from isentrope.tasks.slots import MAX_ACTION, MAX_DETAIL, Failure, Slots
from isentrope.tasks.worker_process import Command, WorkerProcess, play_all

__all__ = ["Failure", "LocalTasks", "TaskPool", "WorkerTasks", "open_tasks"]


class TaskPool(Protocol):
    """What the runner needs. Slots are numbered from 0; only the slots named in a call are touched."""

    def start(self, slot_instances: dict[int, Instance]) -> dict[int, View | Failure]: ...

    def step(self, actions: dict[int, str]) -> dict[int, Step | Failure]: ...

    def close(self) -> None: ...


def open_tasks(
    world_name: str, options: Mapping[str, Any], count: int, workers: int, step_seconds: float
) -> LocalTasks | WorkerTasks:
    """`count` slots, in `workers` processes; in this process if `workers` is 0."""
    if workers == 0:
        return LocalTasks(make_world(world_name, options), count)
    return WorkerTasks(world_name, options, count, workers, step_seconds)


class _Pool:
    """The number of slots, whether the pool is open, and `with` for both kinds."""

    def __init__(self, count: int) -> None:
        if count < 1:
            raise TaskError(f"a pool needs at least one slot, not {count}")
        self._count = count
        self._open = True

    def _check(self, slots: Mapping[int, object]) -> None:
        if not self._open:
            raise TaskError("the pool of tasks is closed")
        for slot in slots:
            if not 0 <= slot < self._count:
                raise TaskError(f"no slot {slot}: the pool has {self._count}, numbered from 0")

    def close(self) -> None:
        self._open = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class LocalTasks(_Pool):
    """All slots in this process: simplest and fastest for quick worlds, but a task that hangs hangs everything."""

    def __init__(self, world: World, count: int) -> None:
        super().__init__(count)
        self._slots = Slots(world)

    def start(self, slot_instances: dict[int, Instance]) -> dict[int, View | Failure]:
        self._check(slot_instances)
        return {slot: self._slots.start(slot, instance) for slot, instance in slot_instances.items()}

    def step(self, actions: dict[int, str]) -> dict[int, Step | Failure]:
        self._check(actions)
        return {slot: self._slots.step(slot, action) for slot, action in actions.items()}

    def close(self) -> None:
        super().close()
        self._slots.close()


class WorkerTasks(_Pool):
    """Slot s lives in worker s modulo the number of workers."""

    def __init__(
        self, world_name: str, options: Mapping[str, Any], count: int, workers: int, step_seconds: float
    ) -> None:
        super().__init__(count)
        make_world(world_name, options)  # wrong options are the user's to hear of now, not a worker's to die of
        number = max(1, min(workers, count))
        self._workers = [WorkerProcess(world_name, dict(options), step_seconds) for _ in range(number)]
        play_all(self._workers)  # nothing to play yet: waits until all are ready
        broken = [worker.epitaph for worker in self._workers if worker.epitaph]
        if broken:
            self.close()
            raise TaskError(f"the worker processes for {world_name} did not start: {broken[0]}")

    def start(self, slot_instances: dict[int, Instance]) -> dict[int, View | Failure]:
        self._check(slot_instances)
        return self._play("start", slot_instances)

    def step(self, actions: dict[int, str]) -> dict[int, Step | Failure]:
        self._check(actions)
        for worker in {self._worker(slot) for slot in actions}:
            worker.revive()
        results: dict[int, Step | Failure] = {}
        for slot in actions:
            if self._worker(slot).lost(slot):
                results[slot] = Failure(
                    "worker_died", f"lost with its worker: {self._worker(slot).epitaph}"[:MAX_DETAIL]
                )
        alive = {slot: action[:MAX_ACTION] for slot, action in actions.items() if slot not in results}
        results |= self._play("step", alive)
        return {slot: results[slot] for slot in actions}

    def close(self) -> None:
        super().close()
        for worker in self._workers:
            worker.ask_to_leave()
        for worker in self._workers:
            worker.end(patience=2.0)

    def _play(self, command: Command, arguments: Mapping[int, Any]) -> dict[int, Any]:
        batches: dict[WorkerProcess, dict[int, Any]] = {}
        for slot, argument in arguments.items():
            batches.setdefault(self._worker(slot), {})[slot] = argument
        for worker, batch in batches.items():
            worker.begin(command, batch)
        play_all(list(batches))
        return {slot: result for worker in batches for slot, result in worker.results.items()}

    def _worker(self, slot: int) -> WorkerProcess:
        return self._workers[slot % len(self._workers)]
