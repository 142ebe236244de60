"""`isentrope config`: every setting, or what a recipe comes to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from isentrope.cli.options import RecipeArgument, SetOption

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
    from isentrope.config.load import config_to_toml, load_config

    if world is not None:
        from isentrope.tasks.registry import world_options

        options = world_options(world)
        rows = list(describe(options, "task.options")) if options is not None else []
        Console().print(settings_table(rows, None) if rows else f"{world} has no options")
        return
    resolved = load_config(recipe, sets or [])
    if resolved.methods:
        from isentrope.methods.registry import make_methods

        make_methods(resolved)  # their settings are known to them alone
    if toml:
        typer.echo(config_to_toml(resolved), nl=False)
        return
    values = resolved_values(resolved) if recipe is not None or sets else None
    Console().print(settings_table(describe_settings(), values))


def resolved_values(section: object, path: str = "") -> dict[str, str]:
    """Full path -> value as it would stand in a recipe."""
    from dataclasses import fields, is_dataclass

    from isentrope.config.text import value_to_toml

    if not is_dataclass(section):
        return {path: value_to_toml(section)}
    values: dict[str, str] = {}
    for item in fields(section):
        values |= resolved_values(getattr(section, item.name), f"{path}.{item.name}" if path else item.name)
    return values


def settings_table(rows: Iterable[SettingInfo], values: dict[str, str] | None) -> Table:
    from rich.table import Column, Table

    from isentrope.cli.safe import shown

    table = Table(
        Column("setting", no_wrap=True),
        "default" if values is None else "value",
        "allowed",
        "meaning",
        show_lines=False,
    )
    section = None
    for info in rows:
        if section not in (None, info.path.rpartition(".")[0]):
            table.add_section()
        section = info.path.rpartition(".")[0]
        value = info.default if values is None else values[info.path]
        style = "bold green" if value != info.default else ""
        table.add_row(shown(info.path, "cyan"), shown(value, style), shown(info.allowed), shown(info.doc))
    return table
