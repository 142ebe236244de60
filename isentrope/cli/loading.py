"""The first line of a command that takes seconds to begin: torch is read before anything else can be said."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from isentrope.cli.safe import plain
from isentrope.config.load import load_config
from isentrope.errors import IsentropeError


def say_loading(what: str) -> None:
    """On the error stream: whoever keeps a command's output in a file wants its results alone."""
    typer.echo(f"loading {plain(what)} …", err=True)


def say_loading_by(recipe: Path | None, run: Path | None, sets: Sequence[str] | None, model: str | None = None) -> None:
    """As `say_loading`, of what the settings name: `model`, policy.model, or the world where a server has the model.

    The settings are read without the options of methods, whose check needs torch. What is wrong with them is not said
    here but where they are read in full.
    """
    if recipe is None and run is not None and (run / "config.toml").is_file():
        recipe = run / "config.toml"
    try:
        config = load_config(recipe, sets or ())
    except IsentropeError:
        return
    if config.engine.kind == "openai":
        say_loading(f"the world {config.task.world}")
    else:
        named = model or config.policy.model
        say_loading("a new model" if named == "new" else named)
