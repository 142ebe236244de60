"""The compact form of a study: one small file with all numbers of all runs, without episodes and weights.

    write_compact(read_study(Path("runs/quick")), Path("docs/runs/quick"))

Lines of JSON, compressed (xz). The first has the plan, each of the others a run. The rows of a run stand as columns:
for each metric the list of its values, null where a row does not have it. Columns compress better than rows.

A study may be run in several places: their compact forms are merged, and none may lose what another one has.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from isentrope.analysis.tables import one_line
from isentrope.config.older import upgraded_leaves
from isentrope.core.errors import RunError
from isentrope.runs.atomic import write_atomically
from isentrope.runs.log import Record
from isentrope.study.folder import WARMUP, plan_from_json, plan_to_json
from isentrope.study.plan import Study
from isentrope.study.read import DONE, FAILED, UNFINISHED, StudyData, StudyRun, recorded

COMPACT = "runs.jsonl.xz"
FORM = 1
_MOST_BYTES = 2**29  # of the lines: more is no study
_LOGS = ("train", "evals", "sft", "timings")
_LACKING = "-"  # in a column: the row does not have the key. null is a number that was not finite


def write_compact(data: StudyData, folder: Path) -> Path:
    head = {"isentrope_study": FORM, "plan": plan_to_json(data.study)}
    lines = [head, *(_of_run(run) for run in (*data.warmups.values(), *data.runs))]
    text = "".join(json.dumps(line, separators=(",", ":"), allow_nan=False) + "\n" for line in lines)
    write_atomically(folder / COMPACT, lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    return folder / COMPACT


def read_compact(path: Path) -> StudyData:
    lines = _lines(path)
    try:
        head = next(lines, None)
        if not isinstance(head, dict) or cast("dict[str, Any]", head).get("isentrope_study") != FORM:
            raise RunError(f"{path} is not a study in the compact form {FORM}, which isentrope study --compact writes")
        study = plan_from_json(cast("dict[str, Any]", head)["plan"], path)
        found = [_to_run(line) for line in lines]
        warmups = {run.tags["warmup"]: run for run in found if run.cell == WARMUP}
        runs = tuple(run for run in found if run.cell != WARMUP)
        _check_planned(study, runs)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise RunError(f"{path} is damaged: {type(error).__name__}: {error}"[:300]) from error
    return StudyData(study, runs, warmups)


def _check_planned(study: Study, runs: Sequence[StudyRun]) -> None:
    """A run of no cell would be counted and not shown, and one that stands there twice would count as two seeds."""
    planned = {(cell.name, seed) for cell in study.cells for seed in cell.seeds}
    for run in runs:
        if (run.cell, run.seed) not in planned:
            raise ValueError(f"the run {run.name!r:.80} is not in the plan, or stands there twice")
        planned.remove((run.cell, run.seed))


def _lines(path: Path) -> Iterator[Any]:
    size = 0
    try:
        with lzma.open(path, "rt", encoding="utf-8") as file:
            while line := file.readline(_MOST_BYTES):
                size += len(line)
                if size > _MOST_BYTES:
                    raise RunError(f"{path} holds more than {_MOST_BYTES} letters; that is no study of ours")
                yield json.loads(line)
    except (OSError, EOFError, lzma.LZMAError, ValueError, RecursionError) as error:
        raise RunError(f"could not read {path}: {error}") from error


def _of_run(run: StudyRun) -> dict[str, Any]:
    told: dict[str, Any] = {"cell": run.cell, "tags": dict(run.tags), "seed": run.seed, "status": run.status}
    told |= {"reason": run.reason, "config": dict(run.config), "events": list(run.events)}
    told |= {"begun": run.begun, "version": run.version, "parameters": run.parameters, "start": run.start}
    for name in _LOGS:
        rows: Sequence[Record] = getattr(run, name)
        keys = sorted({key for row in rows for key in row})
        told[name] = {key: [row.get(key, _LACKING) for row in rows] for key in keys}
    return told


def _rows(columns: Mapping[str, Sequence[Any]]) -> tuple[Record, ...]:
    count = len(columns["step"]) if columns else 0
    rows = [{key: column[n] for key, column in columns.items() if column[n] != _LACKING} for n in range(count)]
    if not all(type(row["step"]) is int for row in rows):
        raise ValueError("a row without its step")
    return tuple(rows)


def _to_run(line: Mapping[str, Any]) -> StudyRun:
    if line["status"] not in (DONE, FAILED, UNFINISHED):
        raise ValueError(f"status is {line['status']!r:.40}")
    tags = {str(key): str(value) for key, value in line["tags"].items()}
    cell, seed, status, reason = str(line["cell"]), int(line["seed"]), str(line["status"]), str(line["reason"])
    config, events = upgraded_leaves(line["config"]), tuple(cast("list[Record]", line["events"]))
    train, evals, sft, timings = (_rows(line[name]) for name in _LOGS)
    return StudyRun(cell, tags, seed, status, reason, config, train, evals, sft, timings, events, **recorded(line))


# -- studies whose parts were run in several places


def merged(data: StudyData, earlier: StudyData) -> StudyData:
    """What is not done here is taken from there if it is done there; what was not begun here, as far as it came."""
    elsewhere = {run.name: run for run in earlier.runs}
    runs: list[StudyRun] = []
    for here in data.runs:
        there, not_begun = elsewhere.get(here.name, here), here.status == UNFINISHED and not here.reached
        further = there if here.status != DONE and (there.status == DONE or not_begun) else here
        runs.append(replace(further, tags=data.study.cell(here.cell).tags))
    warmups = {
        name: earlier.warmups.get(name, run) if run.status != DONE else run for name, run in data.warmups.items()
    }
    return StudyData(data.study, tuple(runs), warmups)


def left_behind(data: StudyData, there: StudyData, path: Path) -> str:
    """Which finished runs lie in `path` and are not in `data`, in words; empty if all are. After merging these are
    the ones whose cell or seed the plan no longer has."""
    here = {run.name for run in data.runs if run.status == DONE}
    gone = [run.name for run in there.runs if run.status == DONE and run.name not in here]
    names = one_line(", ".join(gone[:3])) + (f" and {len(gone) - 3} more" if len(gone) > 3 else "")
    return f"{path} has finished runs that are not among these: {names}" if gone else ""


def write_over(data: StudyData, folder: Path) -> Path:
    """The compact form, in the place of an older one only if that one has nothing more."""
    old = folder / COMPACT
    if old.is_file() and (told := left_behind(data, read_compact(old), old)):
        raise RunError(f"{told}. Add them with --earlier {folder}, or remove the file if they are not wanted")
    return write_compact(data, folder)
