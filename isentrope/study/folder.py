"""The files of a study's folder.

study.json              the plan: cells with their tags, settings and seeds
CELL/seed-0/            a run folder
CELL/seed-0.log         what the run said
CELL/seed-0.json        why it failed, if it did
warmup/NAME/            the run folder of a warm-up
results/                tables and curves, made from the rest
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from isentrope.charts.text import file_name
from isentrope.core.errors import RunError
from isentrope.runs.atomic import write_atomically
from isentrope.study.cells import Cell, can_name
from isentrope.study.plan import Plan, Study

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
        note = json.loads(note_file(run).read_bytes())
    except (OSError, ValueError, RecursionError):
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
    if type(value) is not type(like):
        raise ValueError(f"{value!r:.60} where something like {like!r} is expected")
    return value


def _cell(entry: Mapping[str, Any]) -> Cell:
    tags = {str(key): str(value) for key, value in entry["tags"].items()}
    settings, seeds = tuple(str(one) for one in entry["set"]), tuple(int(seed) for seed in entry["seeds"])
    return Cell(str(entry["name"]), tags, settings, seeds, None, str(entry["warmup"]), str(entry["against"]))
