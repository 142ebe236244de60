"""`isentrope config`: every setting, or what a recipe comes to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, cast

import typer

from isentrope.cli.options import RecipeArgument, SetOption, load, table_of_names
from isentrope.core.text import shown

if TYPE_CHECKING:
    from rich.table import Table

    from isentrope.config.describe import SettingInfo


def config(
    recipe: RecipeArgument = None,
    sets: SetOption = None,
    world: Annotated[str | None, typer.Option("--world", help="List the options of this world instead.")] = None,
    toml: Annotated[bool, typer.Option("--toml", help="Print the resolved settings as a recipe.")] = False,
) -> None:
    """List all settings; with a RECIPE or --set, the values they come to, changed ones marked."""
    from rich.console import Console

    from isentrope.config.describe import describe, describe_settings
    from isentrope.config.text import config_to_toml
    from isentrope.methods.options import owners, with_options

    if world is not None:
        from isentrope.worlds.registry import world_options

        options = world_options(world)
        rows = list(describe(options, "task.options")) if options is not None else []
        Console().print(settings_table(rows, None) if rows else f"{world} has no options")
        return
    resolved = with_options(load(recipe, sets))
    if toml:
        typer.echo(config_to_toml(resolved), nl=False)
    elif recipe is None and not sets:
        Console().print(settings_table(describe_settings(), None))
    else:
        # the options of the world and of the methods stand in the place of their tables
        instead: dict[str, list[SettingInfo]] = {}
        for path, kind in owners(resolved).items():
            if path == "task.options" or resolved.methods:
                instead.setdefault(path if path == "task.options" else "method", []).extend(describe(kind, path))
        rows = [new for row in describe_settings() for new in instead.get(row.path) or [row]]
        Console().print(settings_table(rows, resolved_values(resolved)))


def resolved_values(section: object, path: str = "") -> dict[str, str]:
    """Full path -> value as it would stand in a recipe."""
    from dataclasses import fields, is_dataclass

    from isentrope.config.text import value_to_toml

    values: dict[str, str] = {}
    if is_dataclass(section):
        inside = {item.name: getattr(section, item.name) for item in fields(section)}
    elif isinstance(section, dict):
        inside = cast("dict[str, object]", section)
        values[path] = value_to_toml(inside)
    else:
        return {path: value_to_toml(section)}
    for name, value in inside.items():
        values |= resolved_values(value, f"{path}.{name}" if path else name)
    return values


def settings_table(rows: Iterable[SettingInfo], values: dict[str, str] | None) -> Table:
    table = table_of_names("setting", "default" if values is None else "value", "allowed", "meaning")
    section = None
    for info in rows:
        if section not in (None, info.path.rpartition(".")[0]):
            table.add_section()
        section = info.path.rpartition(".")[0]
        value = info.default if values is None else values.get(info.path, "none")
        style = "bold green" if value != info.default else ""
        table.add_row(shown(info.path, "cyan"), shown(value, style), shown(info.allowed), shown(info.doc))
    return table
