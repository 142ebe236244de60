"""Loads a config in layers: what a recipe extends, the recipe on it, `--set` on top; then checks all of it."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, cast, get_args, get_origin

from isentrope.config.algorithms import ALGORITHMS, merge, with_algorithm
from isentrope.config.convert import field_kinds, parse_section, read_section
from isentrope.config.describe import describe_settings
from isentrope.config.kinds import KINDS
from isentrope.config.older import read_settings, upgraded
from isentrope.config.recipes import find_recipe, recipe_beside, recipe_names
from isentrope.config.schema import Choice, RunConfig
from isentrope.config.suggest import METHOD_CLASSES, nearest
from isentrope.config.text import as_table, config_to_toml
from isentrope.config.validate import impossible, switched_in
from isentrope.core.command import command
from isentrope.core.errors import ConfigError
from isentrope.core.limits import SETTINGS_BYTES, read_bounded, real

Table = dict[str, Any]


def read_recipe(path: Path | str, above: tuple[Path, ...] = ()) -> Table:
    """The recipe's table, laid over the one it extends. `above` are the recipes that led here."""
    path = real(find_recipe(path))
    if path in above:
        chain = " -> ".join(step.name for step in (*above, path))
        raise ConfigError(f"{path}: recipes extend each other in a circle ({chain}); remove one `extends`")
    table = _read_toml(path)
    if grid := [name for name in ("levels", "grids", "cells") if name in table]:
        raise ConfigError(
            f"{path} is a study, not a recipe: it has {', '.join(grid)}. Run it with {command('study', path)}"
        )
    base = table.pop("extends", None)
    if base is None:
        return table
    if not isinstance(base, str):
        raise ConfigError(f"{path}: extends = {base!r}: expected the name or the file of another recipe")
    return lay_over(read_recipe(recipe_beside(path, base), (*above, path)), table)


def _read_toml(path: Path) -> Table:
    try:
        return read_settings(read_bounded(path, SETTINGS_BYTES, found=False).decode("utf-8"))
    except FileNotFoundError:
        siblings = {sibling.name: str(sibling) for sibling in path.parent.glob("*.toml")}
        named = {name: name for name in recipe_names()} | siblings
        guess = nearest(path.name, named) or nearest(path.stem, named)
        raise ConfigError(f"no recipe at {path}" + (f"; did you mean {named[guess]}?" if guess else "")) from None
    except OSError as error:
        raise ConfigError(f"could not read the recipe {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error


def lay_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> Table:
    """Merge two configs. What belonged to a choice that `above` replaces goes with it: the options of another
    world, the tables of methods no longer listed, the defaults of another algorithm. So `--set methods=[]` turns any
    recipe into its baseline, and `--set learn.algorithm=dapo` any recorded run into DAPO."""
    merged = merge(_without_algorithm(below, above), above)
    old_task, new_task = below.get("task"), above.get("task")
    if isinstance(old_task, dict) and isinstance(new_task, dict) and "world" in new_task:
        old, new = cast(Table, old_task), cast(Table, new_task)
        if new["world"] != old.get("world", RunConfig().task.world):
            merged["task"]["options"] = new.get("options", {})
    old_switch, new_switch = switched_in(below.get("instruments")), switched_in(merged.get("instruments"))
    listed, tables, new_tables = above.get("methods"), merged.get("method"), above.get("method", {})
    if listed is None and old_switch not in (None, new_switch):
        listed = merged.get("methods", [])
    if isinstance(listed, list) and isinstance(tables, dict) and isinstance(new_tables, dict):
        kept = [*cast("list[Any]", listed), *cast(Table, new_tables), new_switch]
        outside = any(isinstance(name, str) and ":" in name for name in kept)  # what it calls itself is not known here
        merged["method"] = {
            name: table
            for name, table in cast(Table, tables).items()
            if name in kept or (outside and name not in METHOD_CLASSES)
        }
    return merged


def _without_algorithm(below: Mapping[str, Any], above: Mapping[str, Any]) -> Mapping[str, Any]:
    """`below` without the values that are its algorithm's own, if `above` names another algorithm."""
    old, new = below.get("learn"), above.get("learn")
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)) or "algorithm" not in new:
        return below
    mine, theirs = cast(Table, old), cast(Table, new)
    defaults = RunConfig().learn
    before, after = mine.get("algorithm", defaults.algorithm), theirs["algorithm"]
    if before == after or str(before) not in ALGORITHMS or str(after) not in ALGORITHMS:
        return below
    own = merge(as_table(defaults), ALGORITHMS[before].settings)
    kept: Table = {}
    for key, value in mine.items():
        if key not in ALGORITHMS[before].settings and key not in ALGORITHMS[after].settings:
            kept[key] = value
        elif isinstance(value, Mapping) and isinstance(own[key], Mapping):
            kept |= {key: part} if (part := _own_options(f"learn.{key}", cast(Table, value), own[key])) else {}
        elif value != own[key]:
            kept[key] = value
    return {**below, "learn": kept}


def _own_options(path: str, table: Table, algorithms: Mapping[str, Any]) -> Table:
    """The table of a part without what is its algorithm's own choice, and without defaults."""
    kind = algorithms["kind"]
    if table.get("kind", kind) != kind:
        return table
    defaults: Table = {**vars(KINDS[path][kind]()), **algorithms}
    return {key: value for key, value in table.items() if key not in defaults or value != defaults[key]}


def read_overrides(overrides: Sequence[str], problems: list[str]) -> Table:
    """`["learn.lr=1e-5", "methods=[\\"aem\\"]"]` as one table; what cannot be read is added to `problems`."""
    table: Table = {}
    for override in overrides:
        key, equals, text = override.partition("=")
        parts = [part.strip() for part in key.split(".")]
        if not equals or not all(parts):
            problems.append(f"--set {override}: expected section.name=value, for example learn.lr=1e-5")
            continue
        value = _override_value(text.strip(), _kind_of(parts))
        if isinstance(value, str) and _kind_of(parts) is Choice:
            parts.append("kind")
        inner: Table | None = table
        for part in parts[:-1]:
            inner = _table_in(inner, part)
        if inner is None:
            problems.append(f"--set {override}: {'.'.join(parts[:-1])} was given a plain value before")
        else:
            inner[parts[-1]] = value
    return upgraded(table)


def _table_in(outer: Table | None, key: str) -> Table | None:
    """The table under `key`, made if it is not there; None if something else is."""
    found = outer.setdefault(key, {}) if outer is not None else None
    return cast(Table, found) if isinstance(found, dict) else None


def _override_value(text: str, kind: Any) -> Any:
    """The text as a TOML value; as it stands where the setting is text, or where it is no TOML."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):  # ValueError: no TOML, or a number of thousands of digits
        parsed = {}
    as_text = kind in (str, Choice) and not isinstance(parsed.get("value"), str | dict if kind is Choice else str)
    if set(parsed) == {"value"} and not as_text:
        return parsed["value"]
    if get_origin(kind) is tuple and get_args(kind)[0] is str and not text.startswith("["):
        return [part.strip() for part in text.split(",")]
    return text


def _kind_of(parts: Sequence[str]) -> Any:
    """The type of a setting by its path; None where only the world or the method knows it."""
    kind: Any = RunConfig
    for place, part in enumerate(parts):
        if not is_dataclass(kind):
            return None
        if cast(object, kind) is Choice and part != "kind":  # an option: of the same type in all kinds that have it
            known = [field_kinds(options).get(part) for options in KINDS[".".join(parts[:place])].values()]
            return next((one for one in known if one), None)
        kind = field_kinds(cast("type[Any]", kind)).get(part)
    return kind


__all__ = ["config_from_table", "config_to_toml", "load_config", "parse_section"]


Check = Callable[[Mapping[str, Any]], list[str]]
"""From the table of a recipe to what is wrong with parts of it that this package does not know."""


def load_config(
    recipe: Path | str | None = None, overrides: Sequence[str] = (), also: Check | None = None
) -> RunConfig:
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
