"""Which settings a command runs with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from isentrope.config.load import load_config
from isentrope.config.schema import RunConfig


def load(recipe: Path | None, sets: Sequence[str] | None) -> RunConfig:
    """The settings, with what the world and the methods have to say about their own options among the problems."""
    from isentrope.methods.options import option_problems

    return load_config(recipe, sets or (), option_problems)


def recipe_or_recorded(recipe: Path | None, run: Path | None, sets: Sequence[str] | None) -> RunConfig:
    """The recipe's settings; without one those recorded in the run folder; without that the defaults."""
    if recipe is None and run is not None and (run / "config.toml").is_file():
        recipe = run / "config.toml"
    return load(recipe, sets)


def for_world(recipe: Path | None, world: str | None, sets: Sequence[str] | None) -> RunConfig:
    """The settings with the world that was named on the command line, if one was."""
    config = load_config(recipe, sets or ())
    if world is None or world == config.task.world:
        return config
    options = load_config(None, sets or ()).task.options  # the recipe's are for another world
    return replace(config, task=replace(config.task, world=world, options=options))
