"""Reads a study: every run with its numbers, from the run folders or from the compact form.

    data = read_study(Path("runs/quick"))              # a study's folder, or docs/runs/quick with the compact form
    for run in data.select(algorithm="grpo", method="epo"):
        run.seed, run.status, run.reason
        steps, values = run.series("entropy/token")
    data.cell("grpo")                                  # the runs of one cell, by seed

Numbers are read to four significant digits, which the compact form keeps: both forms give the same StudyData.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isentrope.core.errors import RunError
from isentrope.runs.folder import Run, leaves
from isentrope.runs.layout import CHECKPOINTS, checkpoint_name
from isentrope.runs.log import CLOCK, Record
from isentrope.study.cells import Cell
from isentrope.study.folder import PLAN, WARMUP, plan_from_json, read_note, run_folder
from isentrope.study.plan import Study

DONE, FAILED, UNFINISHED = "done", "failed", "unfinished"
DIGITS = 4


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
        found = [
            (int(row["step"]), float(row[key]))
            for row in rows
            if isinstance(row.get(key), int | float) and math.isfinite(row[key])
            if key.startswith("eval/") or row.get("kind") != "eval"
        ]
        return tuple(step for step, _ in found), tuple(value for _, value in found)


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
        return [
            run
            for run in self.runs
            if status in (None, run.status) and all(run.tags.get(key, "") == value for key, value in tags.items())
        ]

    def cells(self, **tags: str) -> list[Cell]:
        return [cell for cell in self.study.cells if all(cell.tags.get(k, "") == v for k, v in tags.items())]


def read_study(path: Path) -> StudyData:
    """From a study's folder, from a folder with the compact form in it, or from that file itself."""
    from isentrope.study.compact import COMPACT, read_compact

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
        table = json.loads((folder / PLAN).read_bytes())
    except (OSError, ValueError, RecursionError) as error:
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
    status = DONE if is_done(run) else FAILED if note is not None else UNFINISHED
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
    words = {"begun": 20, "version": 40, "start": 64}
    texts = {name: str(told.get(name) or "")[:most] for name, most in words.items()}
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
