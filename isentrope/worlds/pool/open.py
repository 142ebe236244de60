"""Opens a pool of tasks for the rollout runner: in this process, in its threads, or in worker processes.

A slot that fails ends its own episode and nothing else. A worker that hangs or dies is replaced, and the other
episodes that it was playing are brought back by playing them again. Tasks behind HTTP are tasks in threads, each of
which talks to a server (remote.py). How a pool is used says base.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from isentrope.config.schema import TaskSettings
from isentrope.config.validate import is_remote
from isentrope.core.errors import TaskError
from isentrope.core.process import usable_cores
from isentrope.worlds.contract import World
from isentrope.worlds.pool.base import TaskPool
from isentrope.worlds.pool.guarded import Command, GuardedTasks, Result, close_world
from isentrope.worlds.pool.processes import WorkerTasks
from isentrope.worlds.pool.remote import RemoteWorld
from isentrope.worlds.pool.threads import ThreadTasks
from isentrope.worlds.registry import make_world

MOST_THREADS = 256


@dataclass(frozen=True)
class Placement:
    """Where the tasks of a world are played: worker processes, or threads of this process; neither: this thread."""

    workers: int = 0
    threads: int = 0


def choose_placement(where: str, workers: int, world: World) -> Placement:
    """What the user asks for (`task.where`) comes first, then what the world prefers (`prefers` and `threads`, see
    contract.py). A world of another package that says nothing is played in a worker process: it may end its process, or
    hang, and the trainer goes on."""
    threads = getattr(world, "threads", 0)
    if not isinstance(threads, int) or not 0 <= threads <= MOST_THREADS:
        raise TaskError(f"the world {world.name} has threads = {threads!r}, expected 0 to {MOST_THREADS}")
    here = Placement(threads=threads)
    if is_remote(where) or where == "local":
        return here
    asked = Placement(workers=workers or usable_cores())
    if where == "processes":
        return asked
    prefers = getattr(world, "prefers", None)
    if prefers is None and not workers and not threads and is_foreign(world):
        return Placement(workers=1)
    prefers = prefers or "local"
    if prefers not in ("local", "processes"):
        raise TaskError(f"the world {world.name} prefers {prefers!r}, expected local or processes")
    return asked if workers or prefers == "processes" else here


def is_foreign(world: World) -> bool:
    """Whether the world is of another package and can be made in another process: one of a script or a notebook, whose
    module is called __main__, cannot."""
    module = type(world).__module__
    return module.split(".")[0] not in ("isentrope", "__main__")


def open_world(task: TaskSettings) -> World:
    """The world of a run's settings: made here, or behind the servers that `task.where` names."""
    if is_remote(task.where):
        return RemoteWorld(task.world, task.options, task.where, task.step_seconds, task.key_env)
    return make_world(task.world, task.options)


def open_tasks(
    world_name: str, options: Mapping[str, Any], count: int, workers: int, step_seconds: float, where: str = "auto",
    world: World | None = None,
) -> LocalTasks | ThreadTasks | WorkerTasks:  # fmt: skip
    """`count` slots, played where `where` says: by default in `workers` processes, or in this one if
    that is 0 and the world does not ask for more. `world` is used if given, and closed with the pool."""
    if world is None:
        world = make_world(world_name, options)
    placement = choose_placement(where, workers, world)
    if placement.workers:
        return WorkerTasks(world_name, options, count, placement.workers, step_seconds, world)
    if placement.threads:
        patience = world.patience if isinstance(world, RemoteWorld) else step_seconds
        return ThreadTasks(world, count, placement.threads, patience)
    return LocalTasks(world, count)


class LocalTasks(TaskPool):
    """All slots in this thread: simplest and fastest for quick worlds, but a task that hangs hangs everything."""

    def __init__(self, world: World, count: int) -> None:
        super().__init__(world, count)
        self._tasks = GuardedTasks(world)

    def _send(self, command: Command, arguments: Mapping[int, Any]) -> None:
        self._begin(command, arguments)  # and when that returns nothing is under way

    def _begin(self, command: Command, arguments: Mapping[int, Any]) -> None:
        for slot, argument in arguments.items():
            self._answered[slot] = self._tasks.play(command, slot, argument)

    def _gather(self, wait: bool) -> dict[int, Result]:
        return {}

    def close(self) -> None:
        super().close()
        self._tasks.close()
        close_world(self._world)
