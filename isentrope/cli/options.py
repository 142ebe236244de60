"""Options and arguments that several commands share, and how they become settings."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import replace
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isentrope.cli import completion
from isentrope.config.load import load_config
from isentrope.config.schema import RunConfig
from isentrope.core.engine import Capabilities
from isentrope.core.errors import IsentropeError
from isentrope.core.text import plain
from isentrope.engines.registry import CAPABILITIES
from isentrope.loop.settings import load, recipe_or_recorded, recipe_or_run
from isentrope.runs.layout import recorded_config

__all__ = ["load", "recipe_or_recorded", "recipe_or_run"]

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def say_loading(what: str) -> None:
    """The first line of a command that takes seconds to import torch. On the error stream: whoever keeps a command's
    output in a file wants its results alone."""
    typer.echo(f"loading {plain(what)} …", err=True)


def say_loading_by(recipe: Path | None, run: Path | None, sets: Sequence[str] | None, model: str | None = None) -> None:
    """As `say_loading`, of what the settings name: `model`, policy.model, or the world where a server has the model.

    The settings are read without the options of methods, whose check needs torch. What is wrong with them is not said
    here but where they are read in full.
    """
    try:
        config = load_config(recipe or recorded_config(run), sets or ())
    except IsentropeError:
        return
    if not CAPABILITIES.get(config.engine.kind, Capabilities()).loads_policy:
        say_loading(f"the world {config.task.world}")
    else:
        named = model or config.policy.model
        say_loading("a new model" if named == "new" else named)


# -- settings of a command


def for_world(recipe: Path | None, world: str | None, sets: Sequence[str] | None) -> RunConfig:
    """The settings with the world that was named on the command line, if one was."""
    config = load_config(recipe, sets or ())
    if world is None or world == config.task.world:
        return config
    options = load_config(None, sets or ()).task.options  # the recipe's are for another world
    return replace(config, task=replace(config.task, world=world, options=options))


# -- arguments that several commands share

# One sentence wherever a recipe can be named. Whether it stands as the argument or behind --recipe is the user's choice
# (cli/arguments.py).
RECIPE = "A recipe: a TOML file, or the name of one of ours such as demo."

RecipeArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="RECIPE",
        help=f"{RECIPE} Without one: all defaults.",
        autocompletion=completion.complete_recipe,
        show_default=False,
    ),
]
RecipeOption = Annotated[
    Path | None, typer.Option("--recipe", metavar="RECIPE", help=RECIPE, autocompletion=completion.complete_recipe)
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        "-s",
        metavar="KEY=VALUE",
        help="Change one setting, e.g. learn.lr=1e-5; may be repeated.",
        autocompletion=completion.complete_setting,
    ),
]
FindOption = Annotated[
    str, typer.Option("--find", metavar="WORDS", help="Show those with all these words in their name or meaning.")
]
TrustOption = Annotated[
    bool, typer.Option("--trust", help="Import code (module:Class) that only the settings of the run folder name.")
]
OutFolder = Annotated[
    Path | None, typer.Option("--out", "-o", metavar="DIR", help="The run folder; without: a new one below runs.")
]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Continue the run in --out from its last checkpoint.")]
FromStepOption = Annotated[
    int | None,
    typer.Option("--from-step", min=1, metavar="N", help="With --resume: go on from the checkpoint of this step."),
]
WorldArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="WORLD",
        help="A world's name, or module:Class for your own.",
        show_default=False,
        autocompletion=completion.complete_world,
    ),
]
RunsArgument = Annotated[
    list[Path] | None,
    typer.Argument(metavar="RUN", help="Run folders.", show_default=False, autocompletion=completion.complete_run),
]
HostOption = Annotated[str, typer.Option("--host", help="Address to listen at.")]
SessionsOption = Annotated[
    int, typer.Option("--sessions", min=1, max=65536, help="Episodes that may be played at the same time.")
]
KeyOption = Annotated[
    str, typer.Option("--key-env", metavar="NAME", help="Environment variable with the key that clients must send.")
]


# -- ports


class Usual(IntEnum):
    """The port of each command that serves, where none is named: far enough apart that they do not meet."""

    serve = 8000
    serve_task = 8100
    serve_openenv = 8200
    retrieve = 8300
    watch = 8400

    @property
    def option(self) -> Any:
        usual = f"Port to listen at; 0: any free one. Without it {self.value}, or the next one that is free."
        return typer.Option("--port", min=0, max=65535, help=usual, show_default=False)

    def or_named(self, port: int | None) -> int | range:
        """The port that was named, which has to be free; else this one and those behind it."""
        return range(self.value, self.value + 100) if port is None else port


def named_rows(entries: Sequence[str]) -> dict[str, list[Path]]:
    """Run folders by the name of their row, from `--row NAME=PATH`, where PATH may have * in it."""
    rows: dict[str, list[Path]] = {}
    for entry in entries:
        name, equals, pattern = entry.partition("=")
        if not equals or not name.strip() or not pattern:
            raise typer.BadParameter(f"{entry!r}: expected NAME=PATH, where PATH may have * in it", param_hint="--row")
        found = sorted(Path(path) for path in glob.glob(pattern)) or [Path(pattern)]
        rows.setdefault(name.strip(), []).extend(path for path in found if path.is_dir() or len(found) == 1)
    return rows


def terminal() -> Console:
    """Where a command prints: numbers and paths have no colours of their own."""
    from rich.console import Console

    return Console(highlight=False)


def table_of_names(name: str, *others: str, title: str | None = None) -> Table:
    """Names, each on one line, and columns of which nothing is cut off on a narrow terminal."""
    from rich.table import Column, Table

    columns = [Column(other, overflow="fold") for other in others]
    return Table(Column(name, no_wrap=True), *columns, title=title, title_justify="left")


def print_or_write(text: str, out: Path | None) -> None:
    """To the terminal, made fit for it; or as it is to a file, whose name is then printed."""
    from isentrope.runs.atomic import write_atomically

    if out is None:
        typer.echo(plain(text), nl=False)
    else:
        write_atomically(out, text.encode())
        typer.echo(str(out))
