"""`isentrope serve-task`: a task world for trainers on this machine or another."""

from __future__ import annotations

from typing import Annotated

import typer

from isentrope.cli.options import RecipeOption, SetOption, WorldArgument
from isentrope.cli.settings import for_world


def serve_task(
    world: WorldArgument = None,
    recipe: RecipeOption = None,
    sets: SetOption = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen at; 0: any free one.")] = 8100,
    sessions: Annotated[
        int, typer.Option("--sessions", min=1, max=65536, help="Episodes that may be played at the same time.")
    ] = 256,
    idle: Annotated[
        float, typer.Option("--idle", min=1, help="Seconds after which an episode that nobody plays on is dropped.")
    ] = 600.0,
    key_env: Annotated[
        str, typer.Option("--key-env", metavar="NAME", help="Environment variable with the key that clients must send.")
    ] = "",
) -> None:
    """Serve a task world over HTTP; trainers play it with task.where=http://HOST:PORT.

    Tasks are played in worker processes with --set task.workers=N, else in this process.
    """
    config = for_world(recipe, world, sets)
    from isentrope.serve.tasks import Serving, key_from, serve_tasks

    serve_tasks(config.task, Serving(host, port, sessions, idle, key_from(host, key_env)))
