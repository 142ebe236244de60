"""Reads a study file (TOML), the list of runs to make. docs/study.md describes the format.

    study = read_plan(Path("recipes/studies/quick.toml"))
    for cell in study.cells:
        cell.name, cell.tags, cell.settings, cell.seeds      # "grpo-epo", {"algorithm": "grpo", "method": "epo"}, ...

A cell is one way to train, run once for each of its seeds. Its tags say in words what it is, so that tables and claims
can select by them. Settings are as `--set` takes them, laid over the recipe from left to right.

A study that is run has a folder:

    study.json              the plan: cells with their tags, settings and seeds
    CELL/seed-0/            a run folder
    CELL/seed-0.log         what the run said
    CELL/seed-0.json        why it failed, if it did
    warmup/NAME/            the run folder of a warm-up
    results/                tables and curves, made from the rest
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, cast

from isentrope.charts.text import file_name
from isentrope.config.convert import read_section
from isentrope.config.describe import sections
from isentrope.config.recipes import recipe_beside
from isentrope.config.schema import setting
from isentrope.core.command import command
from isentrope.core.errors import ConfigError, RunError
from isentrope.core.limits import NOTE_BYTES, STUDY_BYTES, STUDY_RUNS, parse_toml, read_bounded, read_json
from isentrope.runs.atomic import write_atomically
from isentrope.study.cells import Cell, can_name, expand, seed_list


@dataclass(frozen=True)
class Plan:
    """The settings of a study beside its cells."""

    name: str = setting("", "the study's name; by default the file's")
    recipe: str = setting(
        "",
        "the recipe that all runs begin from: a file beside the study's, or one of ours by name; empty: the defaults",
    )
    seeds: tuple[int, ...] = setting((0, 1, 2), "seeds of a cell that names none; a number n stands for 0 to n - 1")
    warmup: str = setting("", "the warm-up that cells begin from if they name none; empty: policy.model as it is")
    against: str = setting(
        "", "the cell that others are compared with; {TAG} stands for the value of a tag, as in {algorithm}"
    )
    split: str = setting("unseen", "the split whose success is reported")
    threshold: float = setting(0.8, "success to which steps and tokens are counted", low=0, high=1)
    converged: float = setting(0.2, "share of a run's steps, at its end, that Succ. is taken over", above=0, high=1)
    side_by_side: int = setting(0, "runs at a time; 0: as many as the device holds", low=0)
    minutes: float = setting(0.0, "stop after so long; what is under way goes on the next time; 0: no limit", low=0)
    seconds_per_step: float = setting(
        0.0, "what a step took, for estimates before any is measured; 0: not known", low=0
    )
    keep: str = setting("metrics", "of a finished run: all, or metrics alone, without checkpoints and episodes",
                        choices=("all", "metrics"))  # fmt: skip


@dataclass(frozen=True)
class Study:
    plan: Plan
    cells: tuple[Cell, ...]
    warmups: Mapping[str, Cell] = field(default_factory=dict[str, Cell])  # run once; cells begin from them
    file: Path | None = None  # where it was read from

    @property
    def name(self) -> str:
        return self.plan.name

    def cell(self, name: str) -> Cell:
        return next(cell for cell in self.cells if cell.name == name)


def laid_over(study: Study, settings: Sequence[str]) -> Study:
    """The study with more settings, which win, in every cell and every warm-up."""
    if seed := [one for one in settings if one.partition("=")[0].strip() == "run.seed"]:
        told = f"--set {seed[0]}: the seeds of a study are in its file (seeds = [...])"
        raise ConfigError(f"{told}; a warm-up's is under its own set")
    cells = tuple(replace(cell, settings=(*cell.settings, *settings)) for cell in study.cells)
    warmups = {name: replace(one, settings=(*one.settings, *settings)) for name, one in study.warmups.items()}
    return replace(study, cells=cells, warmups=warmups)


_TABLES = ("set", "warmups", "levels", "grids", "cells")


def read_plan(path: Path) -> Study:
    """The study in a file. One ConfigError lists every problem of its form; the cells' settings are checked apart."""
    try:
        table = parse_toml(read_bounded(path, STUDY_BYTES, found=False).decode("utf-8"))
    except OSError as error:
        raise ConfigError(f"could not read the study {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    ours = {*_TABLES, *(item.name for item in fields(Plan))}
    foreign = [name for name in table if name in sections() and name not in ours]
    if foreign and not any(name in table for name in ("levels", "grids", "cells")):
        raise ConfigError(
            f"{path} is a recipe, not a study: it has [{'], ['.join(foreign)}]. Train it with "
            f'{command("train", path)}; a study names it (recipe = "{path.name}") and has cells'
        )
    problems: list[str] = []
    if isinstance(table.get("seeds"), int):
        table["seeds"] = list(seed_list(table["seeds"], "seeds", problems))
    own = {key: value for key, value in table.items() if key not in _TABLES}
    plan = read_section(Plan, own, "", problems, _TABLES) or Plan()  # refused below; first see what else is wrong
    plan = replace(plan, name=plan.name or path.stem)
    recipe, settings = _beside(path, plan.recipe), _texts(table.get("set", []), "set", problems)
    common = Cell("", {}, tuple(settings), plan.seeds, recipe, plan.warmup, plan.against)
    warmups = _warmups(path, table.get("warmups", {}), common, problems)
    tables = {name: table.get(name, [] if name == "grids" else {}) for name in ("levels", "grids", "cells")}
    cells = expand(tables, common, path, problems)
    for cell in cells:
        if cell.warmup and cell.warmup not in warmups:
            problems.append(f"{cell.name}: there is no [warmups.{cell.warmup}]")
    if not cells and not problems:
        problems.append("no cells: write [cells.NAME], or [levels.AXIS.NAME] and [[grids]]")
    if problems:
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        raise ConfigError(f"{path}: {count} in the study\n" + "\n".join(f"- {problem}" for problem in problems))
    return Study(plan, tuple(cells), warmups, path)


def _beside(path: Path, recipe: str) -> Path | None:
    return recipe_beside(path, recipe) if recipe else None


def _texts(value: Any, where: str, problems: list[str]) -> list[str]:
    entries = cast("list[Any]", value) if isinstance(value, list) else [value]
    if all(isinstance(entry, str) for entry in entries):
        return [str(entry) for entry in entries]
    problems.append(f'{where}: expected a list of settings such as "learn.lr=1e-5"')
    return []


def _warmups(path: Path, tables: Any, common: Cell, problems: list[str]) -> dict[str, Cell]:
    found: dict[str, Cell] = {}
    for name, entry in cast("dict[str, Any]", tables).items() if isinstance(tables, dict) else ():
        where = f"warmups.{name}"
        table = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
        unknown = sorted(set(table) - {"recipe", "set"})
        if not isinstance(entry, dict) or unknown:
            other = f", not {unknown[0]}" if unknown else ""
            problems.append(f"{where}: expected a table with recipe and set{other}")
            continue
        if not can_name(name):
            problems.append(f"{where}: expected a name of letters, digits, . _ + and -")
        recipe = _beside(path, str(table["recipe"])) if "recipe" in table else common.recipe
        settings = (*common.settings, *_texts(table.get("set", []), where, problems))
        found[name] = Cell(name, settings=settings, recipe=recipe)
    return found


# -- the folder of a study, and the plan in it


PLAN = "study.json"
WARMUP = "warmup"
RESULTS = "results"
# what a table needs to know besides the cells
_KEPT = ("name", "split", "threshold", "converged")


def run_folder(study: Path, cell: str, seed: int) -> Path:
    return study / cell / f"seed-{seed}"


def results_folder(path: Path, name: str) -> Path:
    """Where the results of a study go. Those of a compact form, which lies among documents, go to results/NAME."""
    folder = path.parent if path.is_file() else path
    return folder / RESULTS if (folder / PLAN).is_file() else Path(RESULTS) / file_name(name)


def note_file(run: Path) -> Path:
    """Where a failure of the run is told."""
    return run.with_name(f"{run.name}.json")


def log_file(run: Path) -> Path:
    return run.with_name(f"{run.name}.log")


def read_note(run: Path) -> dict[str, Any] | None:
    try:
        note = read_json(note_file(run), NOTE_BYTES)
    except (OSError, ValueError):
        return None
    return cast("dict[str, Any]", note) if isinstance(note, dict) else None


def write_plan(folder: Path, study: Study) -> None:
    write_atomically(folder / PLAN, (json.dumps(plan_to_json(study), indent=1) + "\n").encode())


def plan_to_json(study: Study) -> dict[str, Any]:
    """The plan without what belongs to the machine: paths, budgets, how many at a time."""
    cells: list[dict[str, Any]] = []
    for cell in study.cells:
        entry = {"name": cell.name, "tags": dict(cell.tags), "set": list(cell.settings), "seeds": list(cell.seeds)}
        cells.append(entry | {"warmup": cell.warmup, "against": cell.against})
    return {name: getattr(study.plan, name) for name in _KEPT} | {"cells": cells}


def plan_from_json(table: Any, source: object) -> Study:
    """The plan as it was written down; recipes and warm-ups are not in it."""
    try:
        kept = {name: _same_kind(table[name], getattr(Plan(), name)) for name in _KEPT}
        plan, cells = Plan(**kept), tuple(_cell(entry) for entry in table["cells"])
        if sum(len(cell.seeds) for cell in cells) > STUDY_RUNS:
            raise ValueError(f"more than {STUDY_RUNS:,} runs")
        names = {cell.name for cell in cells}
        named = [*names, *(cell.warmup for cell in cells if cell.warmup)]
        if not all(can_name(name) for name in named) or not {cell.against for cell in cells} <= {*names, ""}:
            raise ValueError("a name that no cell can have")
        if len(names) < len(cells) or any(len(set(cell.seeds)) < len(cell.seeds) for cell in cells):
            raise ValueError("a cell or a seed stands there twice")
        return Study(plan, cells)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise RunError(f"{source} is not the plan of a study: {reason}") from error


def _same_kind(value: Any, like: Any) -> Any:
    if isinstance(like, float) and type(value) is int:
        return float(value)
    if type(value) is not type(like) or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError(f"{value!r:.60} where something like {like!r} is expected")
    return value


def _cell(entry: Mapping[str, Any]) -> Cell:
    tags = {str(key): str(value) for key, value in entry["tags"].items()}
    settings, seeds = tuple(str(one) for one in entry["set"]), tuple(int(seed) for seed in entry["seeds"])
    return Cell(str(entry["name"]), tags, settings, seeds, None, str(entry["warmup"]), str(entry["against"]))
