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
        str, typer.Option("--host", help="Address to listen at. Any but this machine's own asks for a password.")
    ] = "127.0.0.1",
    key_env: Annotated[
        str, typer.Option("--key-env", metavar="NAME", help="Environment variable with the password of the page.")
    ] = "",
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
    from isentrope.net.password import page_password
    from isentrope.watch.server import open_server

    password, made = page_password(host, key_env)
    with open_server(runs, host, Usual.watch.or_named(port), password) as server:
        typer.echo(f"Watching at {server.address}/ until interrupted (Ctrl-C)")
        if made:
            typer.echo(f"Password: {password} (any user name; another one each time, or your own by --key-env)")
        if not is_local(host):
            typer.echo("Password and pages go over the network unencrypted: put TLS or a tunnel in front.", err=True)
        if open_page:
            import webbrowser

            webbrowser.open(f"{server.address}/")
        server.run()
