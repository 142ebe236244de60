"""`isentrope serve-openenv`: a task world for clients of OpenEnv."""

from __future__ import annotations

from typing import Annotated

import typer

from isentrope.cli.options import RecipeOption, SetOption, WorldArgument
from isentrope.cli.settings import for_world


def serve_openenv(
    world: WorldArgument = None,
    recipe: RecipeOption = None,
    sets: SetOption = None,
    host: Annotated[str, typer.Option("--host", help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen at; 0: any free one.")] = 8000,
    sessions: Annotated[
        int, typer.Option("--sessions", min=1, max=65536, help="Episodes that may be played at the same time.")
    ] = 256,
    to_others: Annotated[
        bool, typer.Option("--to-others", help="Listen at an address that others can reach, though there is no key.")
    ] = False,
) -> None:
    """Serve a task world by OpenEnv's protocol: their clients reset it with a split and an index, or a seed.

    There is no key, so it listens on this machine only, and web pages from elsewhere are refused.
    """
    config = for_world(recipe, world, sets)
    import socket

    from isentrope.errors import TaskError
    from isentrope.tasks.adapters.openenv_door import check_host
    from isentrope.tasks.adapters.openenv_server import make_app
    from isentrope.tasks.needs import require
    from isentrope.tasks.registry import make_world

    check_host(host, to_others)
    made = make_world(config.task.world, config.task.options)
    uvicorn = require("uvicorn", "openenv", "an OpenEnv server")
    app = make_app(made, sessions, to_others)
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(1024)  # from here on nobody is turned away, though the first may wait a moment
    except OSError as error:
        raise TaskError(f"cannot listen at {host}:{port}: {error}. Another --port may be free") from error
    typer.echo(f"{made.name} at http://{host}:{listener.getsockname()[1]} (OpenEnv). Ctrl-C ends it.")
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])
