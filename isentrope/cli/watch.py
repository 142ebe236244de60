"""`isentrope watch`: a live page over run folders."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def watch(
    runs: Annotated[list[Path], typer.Argument(metavar="RUNS...", help="Run folders, or folders with runs below.")],
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, help="Port to listen at; 0: any free one. Usual: 8400.")
    ] = None,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen at. Any but this machine's own shows the runs to others.")
    ] = "127.0.0.1",
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Show the page in the browser.")] = False,
) -> None:
    """Watch runs while they train: curves, alarms, settings and episodes, on a local page.

    The page only reads. It finds runs that begin later, and needs no network.
    """
    from isentrope.core.errors import RunError

    missing = [run for run in runs if not run.is_dir()]
    if missing:
        raise RunError(f"{missing[0]} is not a folder; give run folders, or a folder with runs below such as runs")
    _needs("starlette", "uvicorn")
    from isentrope.watch.server import is_loopback, listen, make_app, make_server

    listening = listen(host, port)
    with listening:
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{listening.getsockname()[1]}/"
        typer.echo(f"Watching at {address} until interrupted (Ctrl-C)")
        if not is_loopback(host):
            typer.echo("Whoever reaches this address can read the runs: there is no password.", err=True)
        app = make_app(runs, host)
        if open_page:
            import webbrowser

            webbrowser.open(address)
        make_server(app).run(sockets=[listening])


def _needs(*modules: str) -> None:
    import importlib.util

    from isentrope.core.errors import ConfigError
    from isentrope.worlds.registry import install_command

    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        raise ConfigError(
            f"isentrope watch needs {' and '.join(missing)}, not installed here: {install_command('watch')}"
        )
