"""Many tasks at once, for the rollout runner: in this process, in its threads, or spread over worker processes.

    tasks = open_tasks("household", {}, count=64, workers=4, step_seconds=30.0)
    views = tasks.start({0: instance, 1: instance})     # slot -> View, or the Failure that ended it
    steps = tasks.step({0: "look", 1: "inventory"})     # slot -> Step, or Failure
    tasks.close()

A slot that fails ends its own episode and nothing else. A worker that hangs or dies is replaced, and the other
episodes that it was playing are brought back by playing them again. Tasks behind HTTP are tasks in threads, each of
which talks to a server (remote_world.py).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Protocol, Self

from isentrope.errors import TaskError
from isentrope.tasks.contract import Instance, Step, View, World
from isentrope.tasks.crew import Crew, Job, Late
from isentrope.tasks.home import Home
from isentrope.tasks.registry import make_world
from isentrope.tasks.remote_world import RemoteWorld
from isentrope.tasks.slots import MAX_ACTION, Failure, Slots, close_world
from isentrope.tasks.tidy import in_words
from isentrope.tasks.where import place_of
from isentrope.tasks.worker_process import Command, WorkerProcess, play_all

__all__ = ["Failure", "LocalTasks", "TaskPool", "ThreadTasks", "WorkerTasks", "open_tasks"]

CLOSE_SECONDS = 5.0  # for a task in a thread to close, and for its world
CLOSE_ALL_SECONDS = 10.0  # for all tasks in threads
MOST_CLOSERS = 8


class TaskPool(Protocol):
    """What the runner needs. Slots are numbered from 0; only the slots named in a call are touched."""

    def start(self, slot_instances: dict[int, Instance]) -> dict[int, View | Failure]: ...

    def step(self, actions: dict[int, str]) -> dict[int, Step | Failure]: ...

    def close(self) -> None: ...


def open_tasks(
    world_name: str,
    options: Mapping[str, Any],
    count: int,
    workers: int,
    step_seconds: float,
    where: str = "auto",
    world: World | None = None,
) -> LocalTasks | ThreadTasks | WorkerTasks:
    """`count` slots, played where `where` says (see where.py): by default in `workers` processes, or in this one if
    that is 0 and the world does not ask for more. `world` is used if given, and closed with the pool."""
    if world is None:
        world = make_world(world_name, options)
    place = place_of(where, workers, world)
    if place.workers:
        return WorkerTasks(world_name, options, count, place.workers, step_seconds, world)
    if place.threads:
        return ThreadTasks(
            world, count, place.threads, world.patience if isinstance(world, RemoteWorld) else step_seconds
        )
    return LocalTasks(world, count)


class _Pool:
    """The number of slots, whether the pool is open, and `with` for all kinds."""

    def __init__(self, world: World, count: int) -> None:
        if count < 1:
            raise TaskError(f"a pool needs at least one slot, not {count}")
        self._world = world
        self._count = count
        self._open = True

    def _check(self, slots: Mapping[int, object]) -> None:
        if not self._open:
            raise TaskError("the pool of tasks is closed")
        for slot in slots:
            if not 0 <= slot < self._count:
                raise TaskError(f"no slot {slot}: the pool has {self._count}, numbered from 0")

    def notes(self) -> dict[str, float]:
        """What has happened to those who play the tasks since this was asked last; nothing, usually."""
        return {}

    def close(self) -> None:
        self._open = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class LocalTasks(_Pool):
    """All slots in this thread: simplest and fastest for quick worlds, but a task that hangs hangs everything."""

    def __init__(self, world: World, count: int) -> None:
        super().__init__(world, count)
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
        close_world(self._world)


class ThreadTasks(_Pool):
    """Slots in threads of this process, for worlds that wait for something else: a JVM, a server, a program."""

    def __init__(self, world: World, count: int, threads: int, step_seconds: float) -> None:
        super().__init__(world, count)
        self._crew = Crew(min(threads, count))
        self._step_seconds = step_seconds
        self._homes = {slot: Home(world) for slot in range(count)}
        self._told = 0

    def start(self, slot_instances: dict[int, Instance]) -> dict[int, View | Failure]:
        self._check(slot_instances)
        return self._play({slot: self._job(slot, "start", instance) for slot, instance in slot_instances.items()})

    def step(self, actions: dict[int, str]) -> dict[int, Step | Failure]:
        self._check(actions)
        return self._play({slot: self._job(slot, "step", action) for slot, action in actions.items()})

    def notes(self) -> dict[str, float]:
        since, self._told = self._crew.left_behind - self._told, self._crew.left_behind
        notes = {"threads_left": float(since)} if since else {}
        if isinstance(self._world, RemoteWorld):
            notes |= self._world.notes()
        return notes

    def close(self) -> None:
        if self._open:
            super().close()
            self._crew.close()
            closing = {slot: Job(home.close) for slot, home in self._homes.items()}
            closers = Crew(min(MOST_CLOSERS, len(closing)))  # the threads that play may all be stuck
            closers.run(closing, min(CLOSE_SECONDS, self._step_seconds), CLOSE_ALL_SECONDS)
            closers.close()
            last = threading.Thread(target=close_world, args=(self._world,), daemon=True)
            last.start()
            last.join(CLOSE_SECONDS)

    def _job(self, slot: int, command: Command, argument: Any) -> Job[Any]:
        home = self._homes[slot]
        return Job(lambda: home.play(command, argument), home.cut, home.waited)

    def _play(self, jobs: dict[int, Job[Any]]) -> dict[int, Any]:
        results: dict[int, Any] = {}
        for slot, result in self._crew.run(jobs, self._step_seconds).items():
            if isinstance(result, Late):
                if result.begun:
                    self._homes[slot].close()  # its thread does it, when it comes back
                    self._homes[slot] = Home(self._world)
                result = Failure("time_limit", _lateness(result, self._step_seconds))
            elif isinstance(result, BaseException):
                result = Failure("task_error", in_words(result))
            results[slot] = result
        return results


def _lateness(late: Late, seconds: float) -> str:
    if late.begun:
        return f"no answer within {seconds:g} s; its thread was left behind"
    return "not begun: all threads that may be left behind by tasks that hang have been; try task.where = processes"


class WorkerTasks(_Pool):
    """Slot s lives in worker s modulo the number of workers. All workers come up at the same time."""

    def __init__(
        self,
        world_name: str,
        options: Mapping[str, Any],
        count: int,
        workers: int,
        step_seconds: float,
        world: World | None = None,
    ) -> None:
        # wrong options are the user's to hear of now, not a worker's to die of
        super().__init__(world or make_world(world_name, options), count)
        number = max(1, min(workers, count))
        replay = bool(getattr(self._world, "replayable", True))
        self._workers = [WorkerProcess(world_name, dict(options), step_seconds, replay) for _ in range(number)]
        self._told = (0, 0)
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
        return self._play("step", {slot: action[:MAX_ACTION] for slot, action in actions.items()})

    def notes(self) -> dict[str, float]:
        now = tuple(sum(getattr(w, name) for w in self._workers) for name in ("replaced", "replayed"))
        since = {"workers_replaced": now[0] - self._told[0], "replayed": now[1] - self._told[1]}
        self._told = (now[0], now[1])
        return {name: float(value) for name, value in since.items() if value}

    def close(self) -> None:
        if not self._open:
            return
        super().close()
        for worker in self._workers:
            worker.ask_to_leave()
        for worker in self._workers:
            worker.end(patience=2.0)
        close_world(self._world)

    def _play(self, command: Command, arguments: Mapping[int, Any]) -> dict[int, Any]:
        batches: dict[WorkerProcess, dict[int, Any]] = {}
        for slot, argument in arguments.items():
            batches.setdefault(self._workers[slot % len(self._workers)], {})[slot] = argument
        for worker, batch in batches.items():
            worker.begin(command, batch)
        play_all(list(batches))
        results = {slot: result for worker in batches for slot, result in worker.results.items()}
        return {slot: results[slot] for slot in arguments}
