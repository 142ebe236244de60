"""Reads a study file (TOML), the list of runs to make. docs/study.md describes the format.

    study = read_plan(Path("recipes/studies/quick.toml"))
    for cell in study.cells:
        cell.name, cell.tags, cell.settings, cell.seeds      # "grpo-epo", {"algorithm": "grpo", "method": "epo"}, ...

A cell is one way to train, run once for each of its seeds. Its tags say in words what it is, so that tables and claims
can select by them. Settings are as `--set` takes them, laid over the recipe from left to right.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from isentrope.config.convert import read_section
from isentrope.config.schema import setting
from isentrope.core.errors import ConfigError
from isentrope.study.cells import Cell, can_name, expand, seed_list


@dataclass(frozen=True)
class Warmup:
    """A supervised warm-up that is run once; the cells that name it begin from it."""

    name: str
    recipe: Path | None
    settings: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """The settings of a study beside its cells."""

    name: str = setting("", "the study's name; by default the file's")
    recipe: str = setting("", "the recipe that all runs begin from, beside the study file; empty: the defaults")
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
    keep: str = setting(
        "metrics",
        "of a finished run: all, or metrics alone, without checkpoints and episodes",
        choices=("all", "metrics"),
    )


@dataclass(frozen=True)
class Study:
    plan: Plan
    cells: tuple[Cell, ...]
    warmups: Mapping[str, Warmup] = field(default_factory=dict[str, Warmup])
    file: Path | None = None  # where it was read from

    @property
    def name(self) -> str:
        return self.plan.name

    def cell(self, name: str) -> Cell:
        return next(cell for cell in self.cells if cell.name == name)


def laid_over(study: Study, settings: Sequence[str]) -> Study:
    """The study with more settings, which win, in every cell and every warm-up."""
    if seed := [one for one in settings if one.partition("=")[0].strip() == "run.seed"]:
        raise ConfigError(
            f"--set {seed[0]}: the seeds of a study are in its file (seeds = [...]); a warm-up's is under its own set"
        )
    cells = tuple(replace(cell, settings=(*cell.settings, *settings)) for cell in study.cells)
    warmups = {name: replace(one, settings=(*one.settings, *settings)) for name, one in study.warmups.items()}
    return replace(study, cells=cells, warmups=warmups)


_TABLES = ("set", "warmups", "levels", "grids", "cells")


def read_plan(path: Path) -> Study:
    """The study in a file. One ConfigError lists every problem of its form; the cells' settings are checked apart."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"could not read the study {path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
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
    cells = expand(tables, common, path.parent, problems)
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
    return path.parent / recipe if recipe else None


def _texts(value: Any, where: str, problems: list[str]) -> list[str]:
    entries = cast("list[Any]", value) if isinstance(value, list) else [value]
    if all(isinstance(entry, str) for entry in entries):
        return [str(entry) for entry in entries]
    problems.append(f'{where}: expected a list of settings such as "learn.lr=1e-5"')
    return []


def _warmups(path: Path, tables: Any, common: Cell, problems: list[str]) -> dict[str, Warmup]:
    found: dict[str, Warmup] = {}
    for name, entry in cast("dict[str, Any]", tables).items() if isinstance(tables, dict) else ():
        where = f"warmups.{name}"
        table = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
        unknown = sorted(set(table) - {"recipe", "set"})
        if not isinstance(entry, dict) or unknown:
            problems.append(
                f"{where}: expected a table with recipe and set" + (f", not {unknown[0]}" if unknown else "")
            )
            continue
        if not can_name(name):
            problems.append(f"{where}: expected a name of letters, digits, . _ + and -")
        recipe = _beside(path, str(table["recipe"])) if "recipe" in table else common.recipe
        settings = (*common.settings, *_texts(table.get("set", []), where, problems))
        found[name] = Warmup(name, recipe, settings)
    return found
