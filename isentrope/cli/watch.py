"""`isentrope watch`: a live page over run folders."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isentrope.cli.completion import complete_run
from isentrope.cli.options import Usual


def watch(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUNS...", help="Run folders, or folders with runs below.", autocompletion=complete_run),
    ],
    port: Annotated[int | None, Usual.watch.option] = None,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen at. Any but this machine's own shows the runs to others.")
    ] = "127.0.0.1",
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Show the page in the browser.")] = False,
) -> None:
    """Watch runs while they train, on a local live page.

    It shows curves, alarms, settings and episodes. The page only reads. It finds runs that begin later, and needs no
    network.
    """
    from isentrope.core.errors import RunError

    missing = [run for run in runs if not run.is_dir()]
    if missing:
        raise RunError(f"{missing[0]} is not a folder; give run folders, or a folder with runs below such as runs")
    from isentrope.config.validate import is_local
    from isentrope.watch.server import open_server

    with open_server(runs, host, Usual.watch.or_named(port)) as server:
        typer.echo(f"Watching at {server.address}/ until interrupted (Ctrl-C)")
        if not is_local(host):
            typer.echo("Whoever reaches this address can read the runs: there is no password.", err=True)
        if open_page:
            import webbrowser

            webbrowser.open(f"{server.address}/")
        server.run()
