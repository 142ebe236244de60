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

from isentrope.config.recipes import recipe_beside
from isentrope.config.suggest import did_you_mean

NONE = "none"  # a level that adds nothing to a cell's name
RESERVED = ("warmup", "results")  # folders of a study that are no cells
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_KEYS = ("set", "tags", "seeds", "recipe", "warmup", "against", "rank")
_SEEDS_AT_MOST = 10_000


@dataclass(frozen=True)
class Cell:
    """One way to train, or a warm-up. Without a name: what cells have in common."""

    name: str = ""
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    settings: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    recipe: Path | None = None
    warmup: str = ""  # the name of the warm-up that its runs begin from
    against: str = ""  # the cell it is compared with; empty: none
    rank: int = 0  # all runs of a lower rank come first


def expand(tables: Mapping[str, Any], common: Cell, file: Path, problems: list[str]) -> list[Cell]:
    """All cells, grids first. What is wrong is added to `problems`."""
    levels: dict[str, dict[str, Cell]] = {}
    for axis, entries in table_of(tables["levels"], "levels", problems).items():
        levels[axis] = {}
        for name, entry in table_of(entries, f"levels.{axis}", problems).items():
            where, below = f"levels.{axis}.{name}", Cell(tags={axis: name})
            levels[axis][name] = _read_cell(entry, where, below, file, problems, ("set", "tags"))
    cells: dict[str, Cell] = {}
    for number, grid in enumerate(list_of(tables["grids"], "grids", problems), start=1):
        for cell in _of_grid(grid, f"grids, number {number}", levels, common, file, problems):
            _add(cells, cell, problems)
    waiting = dict(table_of(tables["cells"], "cells", problems))
    while waiting:
        ready = [name for name, entry in waiting.items() if _extends(entry) not in waiting]
        if not ready:
            problems.append(f"cells extend each other in a circle: {', '.join(waiting)}")
            break
        for name in ready:
            entry = waiting.pop(name)
            where, base = f"cells.{name}", _extends(entry)
            if base and base not in cells:
                problems.append(f'{where}: extends = "{base}": no such cell{did_you_mean(base, cells)}')
                continue
            below = cells[base] if base else common
            cell = _read_cell(entry, where, below, file, problems, (*_KEYS, "extends"))
            _add(cells, replace(cell, name=name, tags=cell.tags or {"cell": name}), problems)
    return [_compared(cell, cells, problems) for cell in cells.values()]


def _of_grid(
    grid: Any, where: str, levels: Mapping[str, Mapping[str, Cell]], common: Cell, file: Path, problems: list[str]
) -> Iterator[Cell]:
    group = _read_cell(grid, where, common, file, problems, (*_KEYS, "over", "suffix"))
    table = cast("dict[str, Any]", grid) if isinstance(grid, dict) else {}
    own, over = group.settings[len(common.settings) :], table_of(table.get("over", {}), f"{where}: over", problems)
    choices: list[list[tuple[str, Cell]]] = []
    for axis, names in over.items():
        known = levels.get(axis, {})
        chosen = list(known) if names == "all" else list_of(names, f"{where}: over.{axis}", problems)
        unknown = [str(name) for name in chosen if name not in known]
        if unknown or not chosen:
            near = did_you_mean(unknown[0] if unknown else axis, known or levels)
            problems.append(f"{where}: no [levels.{axis}.{unknown[0] if unknown else '...'}]{near}")
            return
        choices.append([(name, known[name]) for name in chosen])
    suffix = [str(table["suffix"])] if table.get("suffix") else []
    for picked in product(*choices):
        name = "-".join([*(name for name, _ in picked if name != NONE), *suffix])
        settings = (*common.settings, *(setting for _, level in picked for setting in level.settings), *own)
        tags = {key: value for _, level in picked for key, value in level.tags.items()} | dict(group.tags)
        yield replace(group, name=name, settings=settings, tags=tags)


def _extends(entry: Any) -> str:
    return str(cast("dict[str, Any]", entry).get("extends", "")) if isinstance(entry, dict) else ""


def shared_settings(cells: Sequence[Cell]) -> tuple[str, ...]:
    """What the settings of all cells begin with."""
    first = cells[0].settings if cells else ()
    count = 0
    while count < len(first) and all(cell.settings[: count + 1] == first[: count + 1] for cell in cells):
        count += 1
    return first[:count]


def can_name(text: str) -> bool:
    """Whether it can name a cell, which has a folder called so."""
    return _NAME.fullmatch(text) is not None and text.lower() not in RESERVED


def _add(cells: dict[str, Cell], cell: Cell, problems: list[str]) -> None:
    if not can_name(cell.name):
        told = f"{cell.name!r} cannot name a cell: expected letters, digits, . _ + and -"
        problems.append(f"{told}; not {', '.join(RESERVED)}")
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


# -- how the tables of a study file are read


def _read_cell(entry: Any, where: str, below: Cell, file: Path, problems: list[str], known: Sequence[str]) -> Cell:
    """What a table lays over the cell `below`."""
    table = table_of(entry, where, problems)
    for key in table:
        if key not in known:
            problems.append(f"{where}.{key}: no such setting{did_you_mean(key, known)}")
    settings = list_of(table.get("set", []), f"{where}.set", problems)
    tags = table_of(table.get("tags", {}), f"{where}.tags", problems)
    if not all(isinstance(setting, str) for setting in settings):
        problems.append(f'{where}.set: expected settings such as "learn.lr=1e-5"')
    cell = replace(
        below,
        settings=(*below.settings, *(str(setting) for setting in settings)),
        tags={**below.tags, **{key: str(value) for key, value in tags.items()}},
        warmup=str(table.get("warmup", below.warmup)),
        against=str(table.get("against", below.against)),
    )
    if "seeds" in table:
        cell = replace(cell, seeds=seed_list(table["seeds"], f"{where}.seeds", problems))
    if type(table.get("rank", 0)) is int:
        cell = replace(cell, rank=table.get("rank", cell.rank))
    else:
        problems.append(f"{where}.rank: expected a whole number; lower ones are run first")
    return replace(cell, recipe=recipe_beside(file, str(table["recipe"]))) if table.get("recipe") else cell


def seed_list(value: Any, where: str, problems: list[str]) -> tuple[int, ...]:
    """A list of seeds; a number n stands for 0 to n - 1."""
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _SEEDS_AT_MOST:
        return tuple(range(value))
    seeds = cast("list[Any]", value) if isinstance(value, list) else []
    good = [seed for seed in seeds if isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0]
    if not seeds or len(good) != len(seeds) or len(set(good)) != len(good):
        problems.append(f"{where} = {value!r:.60}: expected a number of seeds, or a list of different ones")
    return tuple(good)


def table_of(value: Any, where: str, problems: list[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        problems.append(f"{where}: expected a table")
        return {}
    return cast("dict[str, Any]", value)


def list_of(value: Any, where: str, problems: list[str]) -> list[Any]:
    if not isinstance(value, list):
        problems.append(f"{where}: expected a list")
        return []
    return cast("list[Any]", value)
