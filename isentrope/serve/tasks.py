"""Serve a task world until interrupted."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from isentrope.config.convert import parse_section
from isentrope.config.schema import TaskSettings
from isentrope.config.text import as_table
from isentrope.config.validate import is_local, is_remote
from isentrope.core.errors import ConfigError, TaskError
from isentrope.serve.task_desk import Desk
from isentrope.serve.task_http import TaskServer
from isentrope.serve.task_sessions import Sessions
from isentrope.worlds.pool.codec import Table
from isentrope.worlds.pool.remote_servers import PROTOCOL
from isentrope.worlds.registry import world_options


@dataclass(frozen=True)
class Serving:
    """What `isentrope serve-task` is told beside the task's own settings."""

    host: str = "127.0.0.1"
    port: int = 8100  # 0: any that is free
    sessions: int = 256
    idle_seconds: float = 600.0
    key: str = ""


def serve_tasks(task: TaskSettings, serving: Serving) -> None:
    """Returns when interrupted (Ctrl-C, SIGTERM)."""
    with running(task, serving) as server:
        address = f"http://{serving.host}:{server.server_address[1]}"
        print(f"{task.world} at {address}, until interrupted (Ctrl-C)", flush=True)
        before = signal.signal(signal.SIGTERM, _leave)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("Stopped.", flush=True)
        finally:
            signal.signal(signal.SIGTERM, before)


@contextmanager
def running(task: TaskSettings, serving: Serving) -> Generator[TaskServer]:
    """A server whose address is taken but which does not serve yet."""
    if is_remote(task.where):
        raise ConfigError(f"task.where = {task.where}: a task server plays its tasks itself; use local or processes")
    desk = Desk(task, serving.sessions)
    try:
        sessions = Sessions(desk, serving.sessions, serving.idle_seconds)
        with _bound(serving, sessions, describe(task, desk)) as server:
            yield server
    finally:
        desk.close()


def describe(task: TaskSettings, desk: Desk) -> Table:
    world, kind = desk.world, world_options(task.world)
    return {
        "protocol": PROTOCOL,
        "world": task.world,
        "name": world.name,
        "kinds": list(world.kinds),
        "splits": {split: world.size(split) for split in world.splits()},
        "options": {} if kind is None else as_table(parse_section(kind, task.options, "task.options")),
    }


def key_from(host: str, key_env: str) -> str:
    """The key that clients must send. Without one the server stays on this machine."""
    key = os.environ.get(key_env, "").strip() if key_env else ""
    if key_env and not key:
        raise ConfigError(
            "--key-env: expected the name of an environment variable that holds the key that clients send; there is "
            "none of the name given, or it is empty"
        )
    if not key and not is_local(host):
        raise ConfigError(
            f"--host {host} can be reached by others, and there is no key: name the environment variable that holds "
            "one with --key-env, or stay on this machine with --host 127.0.0.1"
        )
    return key


def _bound(serving: Serving, sessions: Sessions, description: Table) -> TaskServer:
    try:
        return TaskServer((serving.host, serving.port), sessions, description, serving.key)
    except OSError as error:
        where = f"{serving.host}:{serving.port}"
        raise TaskError(
            f"cannot serve at {where}: {error.strerror or error}; choose another --host or --port"
        ) from None


def _leave(signal_number: int, frame: FrameType | None) -> None:
    sys.exit(128 + signal_number)
