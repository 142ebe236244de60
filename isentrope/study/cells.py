"""Cells from the tables of a study file: levels of axes, grids over them, and cells that are written out.

[levels.algorithm.grpo]                     one level of the axis "algorithm"
set = ["learn.algorithm=grpo"]
[levels.method.seal-03]
set = ["methods=seal", "method.seal.alpha=0.3"]
tags = { method = "seal", alpha = "0.3" }   # without it: method = "seal-03"

[[grids]]                                   a cell for each combination
over = { algorithm = ["grpo", "ppo"], method = ["none", "seal-03"] }
suffix = "long"                             # grpo-long, grpo-seal-03-long, ...

[cells.both]                                one cell
extends = "grpo"
set = ["methods=seal,aem"]
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, cast

from isentrope.config.suggest import did_you_mean

NONE = "none"  # a level that adds nothing to a cell's name
RESERVED = ("warmup", "results")  # folders of a study that are no cells
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_GROUP_KEYS = ("set", "tags", "seeds", "recipe", "warmup", "against")
_MOST_SEEDS = 10_000


@dataclass(frozen=True)
class Group:
    """What cells have in common."""

    settings: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    recipe: Path | None = None
    warmup: str = ""
    against: str = ""
    tags: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Cell:
    name: str
    tags: Mapping[str, str]
    settings: tuple[str, ...]
    seeds: tuple[int, ...]
    recipe: Path | None = None
    warmup: str = ""  # the name of the warm-up that its runs begin from
    against: str = ""  # the cell it is compared with; empty: none


def expand(tables: Mapping[str, Any], common: Group, folder: Path, problems: list[str]) -> list[Cell]:
    """All cells, grids first. What is wrong is added to `problems`."""
    levels = _levels(tables["levels"], problems)
    cells: dict[str, Cell] = {}
    for number, grid in enumerate(_list(tables["grids"], "grids", problems), start=1):
        for cell in _of_grid(grid, f"grids, number {number}", levels, common, folder, problems):
            _add(cells, cell, problems)
    waiting = dict(_table(tables["cells"], "cells", problems))
    while waiting:
        ready = [name for name, entry in waiting.items() if _extends(entry) not in waiting]
        if not ready:
            problems.append(f"cells extend each other in a circle: {', '.join(waiting)}")
            break
        for name in ready:
            cell = _written_out(name, waiting.pop(name), cells, common, folder, problems)
            if cell is not None:
                _add(cells, cell, problems)
    return [_compared(cell, cells, problems) for cell in cells.values()]


def seed_list(value: Any, where: str, problems: list[str]) -> tuple[int, ...]:
    """A list of seeds; a number n stands for 0 to n - 1."""
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MOST_SEEDS:
        return tuple(range(value))
    seeds = cast("list[Any]", value) if isinstance(value, list) else []
    good = [seed for seed in seeds if isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0]
    if not seeds or len(good) != len(seeds) or len(set(good)) != len(good):
        problems.append(f"{where} = {value!r:.60}: expected a number of seeds, or a list of different ones")
    return tuple(good)


def _levels(value: Any, problems: list[str]) -> dict[str, dict[str, Group]]:
    found: dict[str, dict[str, Group]] = {}
    for axis, entries in _table(value, "levels", problems).items():
        found[axis] = {}
        for name, entry in _table(entries, f"levels.{axis}", problems).items():
            where = f"levels.{axis}.{name}"
            level = _group(
                _table(entry, where, problems), where, Group(tags={axis: name}), Path(), problems, ("set", "tags")
            )
            found[axis][name] = level
    return found


def _of_grid(
    grid: Any, where: str, levels: Mapping[str, Mapping[str, Group]], common: Group, folder: Path, problems: list[str]
) -> Iterator[Cell]:
    table = _table(grid, where, problems)
    group = _group(table, where, common, folder, problems, (*_GROUP_KEYS, "over", "suffix"))
    own, over = group.settings[len(common.settings) :], _table(table.get("over", {}), f"{where}: over", problems)
    choices: list[list[tuple[str, Group]]] = []
    for axis, names in over.items():
        known = levels.get(axis, {})
        chosen = list(known) if names == "all" else _list(names, f"{where}: over.{axis}", problems)
        unknown = [name for name in chosen if name not in known]
        if unknown or not chosen:
            problems.append(
                f"{where}: no [levels.{axis}.{unknown[0] if unknown else '...'}]"
                + did_you_mean(str(unknown[0]) if unknown else axis, known or levels)
            )
            return
        choices.append([(name, known[name]) for name in chosen])
    suffix = [str(table["suffix"])] if table.get("suffix") else []
    for picked in product(*choices):
        parts = [name for name, _ in picked if name != NONE] + suffix
        settings = [setting for _, level in picked for setting in level.settings]
        tags = {key: value for _, level in picked for key, value in level.tags.items()} | dict(group.tags)
        everything = (*common.settings, *settings, *own)
        yield Cell("-".join(parts), tags, everything, group.seeds, group.recipe, group.warmup, group.against)


def _written_out(
    name: str, entry: Any, cells: Mapping[str, Cell], common: Group, folder: Path, problems: list[str]
) -> Cell | None:
    where, base, below = f"cells.{name}", _extends(entry), common
    if base and base not in cells:
        problems.append(f'{where}: extends = "{base}": no such cell{did_you_mean(base, cells)}')
        return None
    if base:
        old = cells[base]
        below = Group(old.settings, old.seeds, old.recipe, old.warmup, old.against, old.tags)
    table = _table(entry, where, problems)
    group = _group(table, where, below, folder, problems, (*_GROUP_KEYS, "extends"))
    return Cell(
        name, group.tags or {"cell": name}, group.settings, group.seeds, group.recipe, group.warmup, group.against
    )


def _extends(entry: Any) -> str:
    return str(cast("dict[str, Any]", entry).get("extends", "")) if isinstance(entry, dict) else ""


def _group(
    table: Mapping[str, Any], where: str, below: Group, folder: Path, problems: list[str], known: Sequence[str]
) -> Group:
    for key in table:
        if key not in known:
            problems.append(f"{where}.{key}: no such setting{did_you_mean(key, known)}")
    settings = _list(table.get("set", []), f"{where}.set", problems)
    tags = _table(table.get("tags", {}), f"{where}.tags", problems)
    if not all(isinstance(setting, str) for setting in settings):
        problems.append(f'{where}.set: expected settings such as "learn.lr=1e-5"')
    group = replace(
        below,
        settings=(*below.settings, *(str(setting) for setting in settings)),
        tags={**below.tags, **{key: str(value) for key, value in tags.items()}},
        warmup=str(table.get("warmup", below.warmup)),
        against=str(table.get("against", below.against)),
    )
    if "seeds" in table:
        group = replace(group, seeds=seed_list(table["seeds"], f"{where}.seeds", problems))
    if table.get("recipe"):
        group = replace(group, recipe=folder / str(table["recipe"]))
    return group


def _add(cells: dict[str, Cell], cell: Cell, problems: list[str]) -> None:
    if not _NAME.fullmatch(cell.name) or cell.name.lower() in RESERVED:
        problems.append(
            f"{cell.name!r} cannot name a cell: expected letters, digits, . _ + and -; not {', '.join(RESERVED)}"
        )
    elif cell.name in cells:
        problems.append(f"two cells are called {cell.name}; give a grid a suffix")
    else:
        cells[cell.name] = cell


def _compared(cell: Cell, cells: Mapping[str, Cell], problems: list[str]) -> Cell:
    """The cell with the name of the one it is compared with; none for the baseline itself."""
    try:
        name = cell.against.format_map(dict(cell.tags))
    except (KeyError, ValueError, IndexError, AttributeError):
        problems.append(f"{cell.name}: against = {cell.against!r}: expected a cell, or {{TAG}} with a tag that it has")
        return cell
    if name and name not in cells:
        problems.append(f"{cell.name}: against = {name!r}: no such cell{did_you_mean(name, cells)}")
    return replace(cell, against="" if name == cell.name else name)


def _table(value: Any, where: str, problems: list[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        problems.append(f"{where}: expected a table")
        return {}
    return cast("dict[str, Any]", value)


def _list(value: Any, where: str, problems: list[str]) -> list[Any]:
    if not isinstance(value, list):
        problems.append(f"{where}: expected a list")
        return []
    return cast("list[Any]", value)
