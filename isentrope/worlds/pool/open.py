"""Many tasks at once, for the rollout runner: in this process, in its threads, or spread over worker processes.

    tasks = open_tasks("household", {}, count=64, workers=4, step_seconds=30.0)
    views = tasks.start({0: instance, 1: instance})     # slot -> View, or the Failure that ended it
    steps = tasks.step({0: "look", 1: "inventory"})     # slot -> Step, or Failure
    tasks.close()

A slot that fails ends its own episode and nothing else. A worker that hangs or dies is replaced, and the other
episodes that it was playing are brought back by playing them again. Tasks behind HTTP are tasks in threads, each of
which talks to a server (remote_world.py). `send` and `receive` do the same without waiting (pool_base.py).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from isentrope.config.schema import TaskSettings
from isentrope.config.validate import is_remote
from isentrope.core.errors import TaskError
from isentrope.worlds.contract import World
from isentrope.worlds.pool.base import Command, Pool, Result, TaskPool
from isentrope.worlds.pool.guarded import Failure, Slots, close_world
from isentrope.worlds.pool.remote import RemoteWorld
from isentrope.worlds.pool.threads import ThreadTasks
from isentrope.worlds.pool.workers import WorkerTasks
from isentrope.worlds.registry import make_world

# Where the tasks of a world are played: in this process, in its threads, in worker processes.
#
# `task.where` says it for a run; a world says with `prefers` and `threads` (contract.py) what suits it. Addresses of
# task servers are read in config/validate.py.


MOST_THREADS = 256


@dataclass(frozen=True)
class Place:
    """Worker processes, or threads of this process; neither: this thread."""

    workers: int = 0
    threads: int = 0


def place_of(where: str, workers: int, world: World) -> Place:
    """What the user asks for comes first, then what the world prefers."""
    here = Place(threads=_threads(world))
    if is_remote(where) or where == "local":
        return here
    asked = Place(workers=workers or cores())
    if where == "processes":
        return asked
    prefers = getattr(world, "prefers", "local")
    if prefers not in ("local", "processes"):
        raise TaskError(f"the world {world.name} prefers {prefers!r}, expected local or processes")
    return asked if workers or prefers == "processes" else here


def _threads(world: World) -> int:
    found = getattr(world, "threads", 0)
    if not isinstance(found, int) or not 0 <= found <= MOST_THREADS:
        raise TaskError(f"the world {world.name} has threads = {found!r}, expected 0 to {MOST_THREADS}")
    return found


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# The world of a run's settings: made here, or behind the servers that `task.where` names.


def open_world(task: TaskSettings) -> World:
    if is_remote(task.where):
        return RemoteWorld(task.world, task.options, task.where, task.step_seconds, task.key_env)
    return make_world(task.world, task.options)


__all__ = ["Failure", "LocalTasks", "Result", "TaskPool", "ThreadTasks", "WorkerTasks", "open_tasks"]


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


class LocalTasks(Pool):
    """All slots in this thread: simplest and fastest for quick worlds, but a task that hangs hangs everything."""

    def __init__(self, world: World, count: int) -> None:
        super().__init__(world, count)
        self._slots = Slots(world)

    def _send(self, command: Command, arguments: Mapping[int, Any]) -> None:
        self._begin(command, arguments)  # and when that returns nothing is under way

    def _begin(self, command: Command, arguments: Mapping[int, Any]) -> None:
        play: Any = self._slots.start if command == "start" else self._slots.step
        for slot, argument in arguments.items():
            self._answered[slot] = play(slot, argument)

    def _gather(self, wait: bool) -> dict[int, Result]:
        return {}

    def close(self) -> None:
        super().close()
        self._slots.close()
        close_world(self._world)
