"""How a command ends when something goes wrong."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import typer

from isentrope.errors import IsentropeError

P = ParamSpec("P")
R = TypeVar("R")

_TITLES = {
    "ConfigError": "Settings",
    "TaskError": "Task world",
    "EngineError": "Policy",
    "TrainError": "Training",
    "RunError": "Run folder",
}


def guarded(command: Callable[P, R]) -> Callable[P, R]:
    """Our own errors as one panel and exit code 2, Ctrl-C as one line and 130; a bug keeps its traceback."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except IsentropeError as error:
            show_error(error)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            typer.echo("Stopped. A training run continues with --resume.", err=True)
            raise typer.Exit(130) from None

    return run


def show_error(error: IsentropeError) -> None:
    from rich.console import Console
    from rich.panel import Panel

    from isentrope.cli.safe import shown

    title = _TITLES.get(type(error).__name__, "Error")
    Console(stderr=True).print(Panel(shown(str(error)), title=title, title_align="left", border_style="red"))
