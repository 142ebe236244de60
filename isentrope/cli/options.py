"""Options and arguments that several commands share, and how they become settings."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from isentrope.config.load import config_from_table, lay_over, load_config, read_overrides, read_recipe
from isentrope.config.schema import RunConfig
from isentrope.config.validate import is_remote
from isentrope.core.errors import IsentropeError
from isentrope.core.text import plain
from isentrope.runs.layout import recorded_config


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
    if config.engine.kind == "openai":
        say_loading(f"the world {config.task.world}")
    else:
        named = model or config.policy.model
        say_loading("a new model" if named == "new" else named)


# -- settings of a command

_SERVER = ("url", "model", "key_env")  # of the engine: only --set and a recipe that was named may say them


def load(recipe: Path | None, sets: Sequence[str] | None) -> RunConfig:
    """The settings, with what the world and the methods have to say about their own options among the problems."""
    from isentrope.methods.options import option_problems

    return load_config(recipe, sets or (), option_problems)


def recipe_or_recorded(recipe: Path | None, run: Path | None, sets: Sequence[str] | None) -> RunConfig:
    """The recipe's settings; without one those recorded in the run folder; without that the defaults."""
    return load(recipe or recorded_config(run), sets)


def recipe_or_run(recipe: Path | None, run: Path | None, sets: Sequence[str] | None) -> RunConfig:
    """As `recipe_or_recorded`, for a run that somebody else may have made: nothing is sent where its config says.

    Else a run folder from the network could have any environment variable sent to any address, as the server's key.
    """
    recorded = recorded_config(run)
    if recipe is not None or recorded is None:
        return load(recipe, sets)
    from isentrope.methods.options import option_problems

    problems: list[str] = []
    table = _without_server(_without_task_server(read_recipe(recorded)))
    table = lay_over(table, read_overrides(sets or (), problems))
    return config_from_table(table, problems, str(recorded), option_problems)


def _without_server(table: dict[str, Any]) -> dict[str, Any]:
    """A recorded table without the server that it names; no training has one."""
    engine = table.get("engine")
    if not isinstance(engine, dict):
        return table
    kept = {key: value for key, value in cast("dict[str, Any]", engine).items() if key not in _SERVER}
    if kept.get("kind") == "openai":
        del kept["kind"]
    return {**table, "engine": kept}


def _without_task_server(table: dict[str, Any]) -> dict[str, Any]:
    """A recorded table without addresses of task servers, nor the name of a variable whose content they are sent."""
    task = table.get("task")
    if not isinstance(task, dict):
        return table
    kept = {key: value for key, value in cast("dict[str, Any]", task).items() if key != "key_env"}
    if is_remote(str(kept.get("where", ""))):
        del kept["where"]
    options = kept.get("options")
    if isinstance(options, dict):
        kept["options"] = _without_addresses(cast("dict[str, Any]", options))
    return {**table, "task": kept}


def _without_addresses(options: dict[str, Any]) -> dict[str, Any]:
    """A world's options without those that name a server, such as search_qa's retriever; and a word about each."""
    dropped = [name for name, value in options.items() if _has_address(value)]
    for name in dropped:
        typer.echo(
            f"task.options.{plain(name)[:80]} of the run's config.toml is not used: it names a server, and a run "
            "folder may be somebody else's. If you trust it, say it with --set",
            err=True,
        )
    return {name: value for name, value in options.items() if name not in dropped}


def _has_address(value: Any) -> bool:
    if isinstance(value, dict | list):
        inner = cast("dict[str, Any]", value).values() if isinstance(value, dict) else cast("list[Any]", value)
        return any(_has_address(one) for one in inner)
    return isinstance(value, str) and is_remote(value)


def for_world(recipe: Path | None, world: str | None, sets: Sequence[str] | None) -> RunConfig:
    """The settings with the world that was named on the command line, if one was."""
    config = load_config(recipe, sets or ())
    if world is None or world == config.task.world:
        return config
    options = load_config(None, sets or ()).task.options  # the recipe's are for another world
    return replace(config, task=replace(config.task, world=world, options=options))


# -- arguments that several commands share

RecipeArgument = Annotated[
    Path | None, typer.Argument(metavar="[RECIPE]", help="A TOML recipe; all defaults without it.")
]
RecipeOption = Annotated[Path | None, typer.Option("--recipe", help="A TOML recipe.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="Change one setting, e.g. learn.lr=1e-5; may be repeated."),
]
OutFolder = Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="The run folder.")]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Continue the run in --out from its last checkpoint.")]
WorldArgument = Annotated[
    str | None,
    typer.Argument(metavar="[WORLD]", help="A world's name, or module:Class for your own.", show_default=False),
]


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


def print_or_write(text: str, out: Path | None) -> None:
    """To the terminal, made fit for it; or as it is to a file, whose name is then printed."""
    from isentrope.runs.atomic import write_atomically

    if out is None:
        typer.echo(plain(text), nl=False)
    else:
        write_atomically(out, text.encode())
        typer.echo(str(out))
