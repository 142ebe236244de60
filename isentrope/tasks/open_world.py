"""The world of a run's settings: made here, or behind the servers that `task.where` names."""

from __future__ import annotations

from isentrope.config.address import is_remote
from isentrope.config.schema import TaskSettings
from isentrope.tasks.contract import World
from isentrope.tasks.registry import make_world
from isentrope.tasks.remote_world import RemoteWorld


def open_world(task: TaskSettings) -> World:
    if is_remote(task.where):
        return RemoteWorld(task.world, task.options, task.where, task.step_seconds, task.key_env)
    return make_world(task.world, task.options)
