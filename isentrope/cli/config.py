"""`isentrope config`: every setting, or what a recipe comes to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from isentrope.cli.completion import complete_recipe_or_section, complete_world
from isentrope.cli.listing import show_settings
from isentrope.cli.options import RECIPE, FindOption, SetOption, load, terminal
from isentrope.config.describe import SettingInfo, describe, describe_settings, find_settings, sections, settings_in
from isentrope.config.suggest import did_you_mean
from isentrope.core.errors import ConfigError
from isentrope.core.text import plain, shown

if TYPE_CHECKING:
    from isentrope.config.schema import RunConfig


def config(
    recipe: Annotated[
        str | None,
        typer.Argument(
            metavar="RECIPE|SECTION",
            help=f"{RECIPE} Or a section of the settings, such as learn or learn.loss.",
            show_default=False,
            autocompletion=complete_recipe_or_section,
        ),
    ] = None,
    sets: SetOption = None,
    find: FindOption = "",
    world: Annotated[
        str | None,
        typer.Option("--world", help="List the options of this world instead.", autocompletion=complete_world),
    ] = None,
    toml: Annotated[bool, typer.Option("--toml", help="Print the resolved settings as a recipe.")] = False,
) -> None:
    """List the settings, or what a recipe comes to.

    With a SECTION: its settings alone. With --find: those with these words in their name or meaning. With a RECIPE or
    --set: the values they come to, changed ones marked.
    """
    if world is not None:
        _show_world_options(world)
        return
    section = recipe if recipe in sections() and not Path(recipe).is_file() else None
    named = Path(recipe) if recipe and section is None else None
    if named is not None and _is_no_recipe(named):
        if str(named) not in (known := {info.path: info for info in describe_settings()}):
            names = [*sections(), *known]
            raise ConfigError(f"no recipe, section or setting is called {recipe!r}{did_you_mean(str(named), names, 6)}")
        show_settings(terminal(), [(known[str(named)], known[str(named)].default)], ("default",))
        return
    if toml:
        from isentrope.config.text import config_to_toml

        typer.echo(config_to_toml(_resolved(named, sets)), nl=False)
        return
    wanted = settings_in(section) if section else describe_settings()
    if named is None and not sets:
        chosen = _found(wanted, find)
        show_settings(terminal(), [(info, info.default) for info in chosen], ("default",))
    else:
        _show_values(_resolved(named, sets), wanted, find)


def _is_no_recipe(named: Path) -> bool:
    """Whether something else must be meant: there is no such file, and it is not written as one."""
    from isentrope.config.recipes import our_recipe

    return not named.exists() and named.suffix != ".toml" and len(named.parts) == 1 and our_recipe(str(named)) is None


def _resolved(named: Path | None, sets: list[str] | None) -> RunConfig:
    """The settings with the options of the world and of the methods written out. To describe runs no code, so where the
    settings name some of their own its options are shown as they stand."""
    from isentrope.config.load import load_config
    from isentrope.config.parts import code_names
    from isentrope.config.text import as_table

    settings = load_config(named, sets or ())
    if names := code_names(as_table(settings)):
        told = ", ".join(dict.fromkeys(plain(name) for _, name in names))
        typer.echo(f"not imported: {told}; the options of parts are shown as they stand, and not checked", err=True)
        return settings
    from isentrope.methods.options import with_options

    return with_options(load(named, sets))


def _found(rows: list[SettingInfo], find: str) -> list[SettingInfo]:
    """Those of the rows that have the words, the closest first; a word about it if there are none."""
    chosen = find_settings(find, rows) if find else rows
    if not chosen:
        terminal().print(shown(f"No setting has {find!r} in its name or meaning; isentrope config lists all."))
    return chosen


def _show_world_options(world: str) -> None:
    from isentrope.worlds.registry import world_options

    options = world_options(world)
    rows = [(info, info.default) for info in describe(options, "task.options")] if options is not None else []
    show_settings(terminal(), rows, ("default",))
    if not rows:
        terminal().print(shown(f"{world} has no options"))


def _show_values(resolved: RunConfig, wanted: list[SettingInfo], find: str) -> None:
    """The options of the world and of the methods stand in the place of their tables."""
    from isentrope.config.parts import code_names
    from isentrope.config.text import as_table
    from isentrope.methods.options import owners

    instead: dict[str, list[SettingInfo]] = {}
    for path, kind in () if code_names(as_table(resolved)) else owners(resolved).items():
        if path == "task.options" or resolved.methods:
            instead.setdefault(path if path == "task.options" else "method", []).extend(describe(kind, path))
    rows = [new for row in wanted for new in instead.get(row.path) or [row]]
    values = resolved_values(resolved)
    show_settings(terminal(), [(info, values.get(info.path, "none")) for info in _found(rows, find)], ("value",))


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
