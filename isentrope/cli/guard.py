"""Errors of a command as one message and an exit code."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import typer

from isentrope.core.errors import EngineError, IsentropeError

P = ParamSpec("P")
R = TypeVar("R")

_TITLES = {
    "ConfigError": "Settings",
    "TaskError": "Task world",
    "EngineError": "Policy",
    "TrainError": "Training",
    "RunError": "Run folder",
}


_TO_SAVE_MEMORY = (
    "To need less memory: a smaller learn.micro_tokens or learn.gradient_checkpointing=true (both may be changed with "
    "--resume), a smaller rollout.batch or agent.max_context, or adapters (policy.lora_rank); isentrope models MODEL "
    "says what a model takes"
)


def guarded(command: Callable[P, R]) -> Callable[P, R]:
    """Our own errors as one panel and exit code 2, Ctrl-C as one line and 130; a bug keeps its traceback."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except IsentropeError as error:
            show_error(error)
            raise typer.Exit(2) from None
        except RuntimeError as error:
            if type(error).__name__ != "OutOfMemoryError":  # torch's, which is not imported here
                raise
            show_error(EngineError(f"{_first_line(error)}. {_TO_SAVE_MEMORY}"))
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            hint = " The run continues with --resume." if "resume" in inspect.signature(command).parameters else ""
            typer.echo(f"Stopped.{hint}", err=True)
            raise typer.Exit(130) from None

    return run


def show_error(error: IsentropeError) -> None:
    from rich.console import Console
    from rich.panel import Panel

    from isentrope.core.text import shown

    title = _TITLES.get(type(error).__name__, "Error")
    Console(stderr=True).print(Panel(shown(str(error)), title=title, title_align="left", border_style="red"))


def _first_line(error: Exception) -> str:
    return str(error).split("\n")[0].split(". ")[0]
