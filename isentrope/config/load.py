"""`load_config`: a recipe and `--set` overrides become one checked RunConfig."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from isentrope.config.algorithms import with_algorithm
from isentrope.config.check import impossible
from isentrope.config.convert import parse_section, read_section
from isentrope.config.describe import describe_settings
from isentrope.config.layers import lay_over, read_overrides, read_recipe
from isentrope.config.schema import RunConfig
from isentrope.config.text import config_to_toml
from isentrope.errors import ConfigError

__all__ = ["config_from_table", "config_to_toml", "load_config", "parse_section"]


Check = Callable[[Mapping[str, Any]], list[str]]
"""From the table of a recipe to what is wrong with parts of it that this package does not know."""


def load_config(recipe: Path | None = None, overrides: Sequence[str] = (), also: Check | None = None) -> RunConfig:
    """The recipe (all defaults if None) with each `section.name=value` of `overrides` laid over it.

    Raises one ConfigError that lists every problem, those that `also` finds included, so that a recipe is put right
    in one go.
    """
    problems: list[str] = []
    table = read_recipe(recipe) if recipe is not None else {}
    table = lay_over(table, read_overrides(overrides, problems))
    return config_from_table(table, problems, str(recipe) if recipe is not None else "", also)


def config_from_table(
    table: Mapping[str, Any], problems: list[str] | None = None, source: str = "", also: Check | None = None
) -> RunConfig:
    """The config of a parsed TOML table; `problems` are those found before."""
    found = list(problems or [])
    config = read_section(RunConfig, with_algorithm(table), "", found, [info.path for info in describe_settings()])
    if config is not None:
        found += impossible(config)
    found += also(table) if also else []
    if config is None or found:
        title = f"{source}: " if source else ""
        count = "1 problem" if len(found) == 1 else f"{len(found)} problems"
        raise ConfigError(f"{title}{count} in the settings\n" + "\n".join(f"- {problem}" for problem in found))
    return config
