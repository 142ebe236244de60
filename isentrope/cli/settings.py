"""Which settings a command runs with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import typer

from isentrope.cli.safe import plain
from isentrope.config.address import is_remote
from isentrope.config.layers import lay_over, read_overrides, read_recipe
from isentrope.config.load import config_from_table, load_config
from isentrope.config.schema import RunConfig

_SERVER = ("url", "model", "key_env")  # of the engine: only --set and a recipe that was named may say them


def load(recipe: Path | None, sets: Sequence[str] | None) -> RunConfig:
    """The settings, with what the world and the methods have to say about their own options among the problems."""
    from isentrope.methods.options import option_problems

    return load_config(recipe, sets or (), option_problems)


def recipe_or_recorded(recipe: Path | None, run: Path | None, sets: Sequence[str] | None) -> RunConfig:
    """The recipe's settings; without one those recorded in the run folder; without that the defaults."""
    if recipe is None and run is not None and (run / "config.toml").is_file():
        recipe = run / "config.toml"
    return load(recipe, sets)


def recipe_or_run(recipe: Path | None, run: Path | None, sets: Sequence[str] | None) -> RunConfig:
    """As `recipe_or_recorded`, for a run that somebody else may have made: nothing is sent where its config says.

    Else a run folder from the network could have any environment variable sent to any address, as the server's key.
    """
    if recipe is not None or run is None or not (run / "config.toml").is_file():
        return load(recipe, sets)
    from isentrope.methods.options import option_problems

    problems: list[str] = []
    table = _without_server(_without_task_server(read_recipe(run / "config.toml")))
    table = lay_over(table, read_overrides(sets or (), problems))
    return config_from_table(table, problems, str(run / "config.toml"), option_problems)


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
