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

from collections.abc import Mapping
from typing import Any

from isentrope.config.schema import TaskSettings
from isentrope.config.validate import is_remote
from isentrope.worlds.contract import World
from isentrope.worlds.pool.base import Command, Pool, Result, TaskPool
from isentrope.worlds.pool.guarded import Failure, Slots, close_world
from isentrope.worlds.pool.placement import place_of
from isentrope.worlds.pool.remote import RemoteWorld
from isentrope.worlds.pool.threads import ThreadTasks
from isentrope.worlds.pool.workers import WorkerTasks
from isentrope.worlds.registry import make_world

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
