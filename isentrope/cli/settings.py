"""Which settings a command runs with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

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
    table = _without_server(read_recipe(run / "config.toml"))
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


def for_world(recipe: Path | None, world: str | None, sets: Sequence[str] | None) -> RunConfig:
    """The settings with the world that was named on the command line, if one was."""
    config = load_config(recipe, sets or ())
    if world is None or world == config.task.world:
        return config
    options = load_config(None, sets or ()).task.options  # the recipe's are for another world
    return replace(config, task=replace(config.task, world=world, options=options))
