"""Reads a study: every run with its numbers, from the run folders or from the compact form, which it writes as well.

    data = read_study(Path("runs/quick"))              # a study's folder, or docs/runs/quick with the compact form
    for run in data.select(algorithm="grpo", method="epo"):
        run.seed, run.status, run.reason
        steps, values = run.series("entropy/token")
    data.cell("grpo")                                  # the runs of one cell, by seed

Numbers are read to four significant digits, which the compact form keeps: both forms give the same StudyData.

The compact form is one small file with all numbers of all runs, without episodes and weights: lines of JSON, compressed
(xz). The first has the plan, each of the others a run. The rows of a run stand as columns, which compress better: for
each metric the list of its values. A study may be run in several places: their compact forms are merged, and none may
lose what another one has.
"""

from __future__ import annotations

import json
import lzma
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, cast

from isentrope.analysis.tables import one_line
from isentrope.config.older import upgraded_leaves
from isentrope.core.errors import RunError
from isentrope.core.limits import (
    COMPACT_BYTES,
    LOG_NUMBERS,
    LOG_ROWS,
    PLAN_BYTES,
    RUN_BYTES,
    STUDY_RUNS,
    open_plain,
    parse_json,
    read_json,
)
from isentrope.runs.atomic import write_atomically
from isentrope.runs.curves import curve
from isentrope.runs.folder import Run, leaves
from isentrope.runs.layout import CHECKPOINTS, checkpoint_name
from isentrope.runs.log import CLOCK, Names, Record, bounded
from isentrope.runs.origin import starts_of
from isentrope.study.cells import Cell
from isentrope.study.plan import PLAN, WARMUP, Study, plan_from_json, plan_to_json, read_note, run_folder

DONE, FAILED, UNFINISHED = "done", "failed", "unfinished"
DIGITS = 4
COMPACT = "runs.jsonl.xz"
FORM = 1
_LOGS = ("train", "evals", "sft", "timings")
_LACKING = "-"  # in a column: the row does not have the key. null is a number that was not finite


@dataclass(frozen=True)
class StudyRun:
    """One run of a cell. One that has not begun is unfinished, without rows."""

    cell: str
    tags: Mapping[str, str]
    seed: int
    status: str  # done, failed or unfinished
    reason: str = ""  # why it failed
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])  # by full names: "learn.lr"
    train: tuple[Record, ...] = ()
    evals: tuple[Record, ...] = ()
    sft: tuple[Record, ...] = ()  # of a warm-up
    timings: tuple[Record, ...] = ()
    events: tuple[Record, ...] = ()
    begun: str = ""  # when, UTC, as 2026-11-15T17:00:00Z; empty: not known
    version: str = ""  # of the package that began it
    parameters: int = 0  # of the policy; 0: not recorded
    start: str = ""  # fingerprint of the weights that it began from
    machine: str = ""  # that it was begun on, and the versions there, in words; empty: not recorded
    versions: str = ""
    command: str = ""  # that began it; not kept in the compact form, since it names places of that machine

    @property
    def name(self) -> str:
        return f"{self.cell}/seed-{self.seed}"

    @property
    def steps(self) -> int:
        """The steps that it was to have; 0 if nothing is known."""
        wanted = self.config.get("run.steps", 0)
        return wanted if isinstance(wanted, int) else 0

    @property
    def reached(self) -> int:
        """The last training step there is."""
        return max((record["step"] for record in self.train), default=0)

    def series(self, key: str) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Steps and values of a metric: of evaluations for eval/..., by the clock for seconds/..., else of training.
        Steps at which it was not measured, or not finite, are left out."""
        rows = self.evals if key.startswith("eval/") else self.timings if key.startswith(CLOCK) else self.train
        rows = self.sft if not rows and self.sft else rows
        found = curve([row for row in rows if key.startswith("eval/") or row.get("kind") != "eval"], key)
        return found.steps, found.values


@dataclass(frozen=True)
class StudyData:
    study: Study
    runs: tuple[StudyRun, ...]  # in the order of the plan, by cell and then by seed
    warmups: Mapping[str, StudyRun] = field(default_factory=dict[str, StudyRun])

    @property
    def name(self) -> str:
        return self.study.name

    def cell(self, name: str, status: str | None = None) -> list[StudyRun]:
        """The runs of a cell; with `status` those that have it."""
        return [run for run in self.runs if run.cell == name and status in (None, run.status)]

    def select(self, status: str | None = None, **tags: str) -> list[StudyRun]:
        """The runs whose tags have these values. A tag that a cell does not have counts as empty."""
        runs = [run for run in self.runs if status in (None, run.status)]
        return [run for run in runs if all(run.tags.get(key, "") == value for key, value in tags.items())]

    def cells(self, **tags: str) -> list[Cell]:
        return [cell for cell in self.study.cells if all(cell.tags.get(k, "") == v for k, v in tags.items())]


def read_study(path: Path) -> StudyData:
    """From a study's folder, from a folder with the compact form in it, or from that file itself."""
    if path.suffix == ".toml" and path.is_file():
        raise RunError(f"{path} is a study file; give the study's folder, runs/{path.stem} unless you named another")
    if path.is_file() and path.name != PLAN:
        return read_compact(path)
    folder = path.parent if path.is_file() else path
    if not (folder / PLAN).is_file():
        if (folder / COMPACT).is_file():
            return read_compact(folder / COMPACT)
        raise RunError(f"{path} holds no study: neither {PLAN}, which isentrope study writes, nor {COMPACT}")
    try:
        table = read_json(folder / PLAN, PLAN_BYTES)
    except (OSError, ValueError) as error:
        raise RunError(f"could not read {folder / PLAN}: {error}") from error
    study = plan_from_json(table, folder / PLAN)
    runs = [read_one(folder, cell, seed) for cell in study.cells for seed in cell.seeds]
    names = dict.fromkeys(cell.warmup for cell in study.cells if cell.warmup)
    warmups = {name: read_warmup(folder, name) for name in names}
    return StudyData(study, tuple(runs), warmups)


def read_one(folder: Path, cell: Cell, seed: int) -> StudyRun:
    return _study_run(run_folder(folder, cell.name, seed), cell.name, cell.tags, seed)


def read_warmup(folder: Path, name: str) -> StudyRun:
    return _study_run(folder / WARMUP / name, WARMUP, {"warmup": name}, 0)


def _study_run(path: Path, cell: str, tags: Mapping[str, str], seed: int) -> StudyRun:
    note = read_note(path)
    reason = str(note.get("reason", "no reason was told")) if note is not None else ""
    if not path.is_dir():
        return StudyRun(cell, tags, seed, FAILED if note is not None else UNFINISHED, reason)
    try:
        run = Run.open(path)
    except RunError as error:
        return StudyRun(cell, tags, seed, FAILED, str(error))
    broken = note is not None or bool(run.problems)
    reason = reason if note is not None else "; ".join(run.problems)
    status = DONE if is_done(run) else FAILED if broken else UNFINISHED
    settings = leaves(run.config)
    model = Path(str(settings.get("policy.model", "")))
    if model.is_absolute() and model.parent.name == WARMUP:  # where on the disk the study lay is nobody's business
        settings["policy.model"] = f"{WARMUP}/{model.name}"
    logs = (*(run.of_kind(kind) for kind in ("train", "eval", "sft")), run.timings, run.events)
    train, evals, sft, timings, events = (tuple(rounded(record) for record in log) for log in logs)
    reason, about = reason if status == FAILED else "", recorded(run.about)
    return StudyRun(cell, tags, seed, status, reason, settings, train, evals, sft, timings, events, **about)


def recorded(told: Mapping[str, Any]) -> dict[str, Any]:
    """What run.json says of a run's beginning; a run that is older than an entry does not have it."""
    parameters = told.get("parameters", 0)
    words = {"begun": 20, "version": 40, "start": 64, "machine": 400, "versions": 400}
    texts = {name: str(told.get(name) or "")[:most] for name, most in words.items()}
    if starts := starts_of(told):  # of a run folder
        texts |= {"machine": starts[0].machine_words[:400], "versions": starts[0].version_words[:400]}
        texts["command"] = starts[0].command
    return {**texts, "parameters": parameters if isinstance(parameters, int) and 0 <= parameters < 10**15 else 0}


def is_done(run: Run) -> bool:
    """Whether a run has come to its end: its last step, and the evaluation after it."""
    evaluated = max((record["step"] for record in run.of_kind("eval")), default=-1)
    if run.kind != "train":
        done = max((record["step"] for record in run.of_kind("sft")), default=-1)
        last = run.path / CHECKPOINTS
        return done > 0 and evaluated == done and (not last.is_dir() or any(last.glob(f"{checkpoint_name(done)}*")))
    wanted = run.setting("run.steps")
    reached = max((record["step"] for record in run.of_kind("train")), default=-1)
    return isinstance(wanted, int) and reached >= wanted and evaluated >= wanted


def rounded(record: Mapping[str, Any]) -> Record:
    return {key: significant(value) if isinstance(value, float) else value for key, value in record.items()}


def significant(value: float) -> float:
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else value


# -- the compact form


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
        found = [_to_run(line) for line in islice(lines, 2 * STUDY_RUNS)]
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
    """The lines of the compact form, one at a time. A kilobyte of it may unpack to gigabytes."""
    size = 0
    try:
        with open_plain(path, found=False) as packed, lzma.open(packed, "rb") as file:
            while line := file.readline(RUN_BYTES + 1):
                size += len(line)
                if len(line) > RUN_BYTES:
                    raise RunError(f"{path} has a run of more than {RUN_BYTES:,} bytes; that is no study of ours")
                if size > COMPACT_BYTES:
                    raise RunError(f"{path} unpacks to more than {COMPACT_BYTES:,} bytes; that is no study of ours")
                yield parse_json(line)
    except (OSError, EOFError, lzma.LZMAError, ValueError) as error:
        raise RunError(f"could not read {path}: {error}") from error


def _of_run(run: StudyRun) -> dict[str, Any]:
    told: dict[str, Any] = {"cell": run.cell, "tags": dict(run.tags), "seed": run.seed, "status": run.status}
    told |= {"reason": run.reason, "config": dict(run.config), "events": list(run.events)}
    told |= {"begun": run.begun, "version": run.version, "parameters": run.parameters, "start": run.start}
    told |= {name: text for name, text in (("machine", run.machine), ("versions", run.versions)) if text}
    for name in _LOGS:
        rows: Sequence[Record] = getattr(run, name)
        keys = sorted({key for row in rows for key in row})
        told[name] = {key: [row.get(key, _LACKING) for row in rows] for key in keys}
    return told


def _rows(columns: Mapping[str, Sequence[Any]], names: Names) -> tuple[Record, ...]:
    count = len(columns["step"]) if columns else 0
    if count > LOG_ROWS or count * len(columns) > LOG_NUMBERS:
        raise ValueError("a run of more rows than a log may have")
    rows = [{key: column[n] for key, column in columns.items() if column[n] != _LACKING} for n in range(count)]
    if not all(type(row["step"]) is int for row in rows):
        raise ValueError("a row without its step")
    return tuple(bounded(row, names) for row in rows)


def _to_run(line: Mapping[str, Any]) -> StudyRun:
    if line["status"] not in (DONE, FAILED, UNFINISHED):
        raise ValueError(f"status is {line['status']!r:.40}")
    tags = {str(key): str(value) for key, value in line["tags"].items()}
    cell, seed, status, reason = str(line["cell"]), int(line["seed"]), str(line["status"]), str(line["reason"])
    names = Names()
    config = upgraded_leaves(line["config"])
    events = tuple(
        bounded(event, names) for event in cast("list[Record]", line["events"]) if type(event["step"]) is int
    )
    train, evals, sft, timings = (_rows(line[name], names) for name in _LOGS)
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
