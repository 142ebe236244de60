"""Run folders made by hand: what a run writes, without a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isentrope.study.cells import Cell
from isentrope.study.folder import run_folder, write_plan
from isentrope.study.plan import Plan, Study

CONFIG = """[run]
seed = {seed}
steps = {steps}
[rollout]
groups = 2
group_size = 3
[learn]
lr = 1e-4
"""


def make_study(folder: Path, cells: Sequence[Cell], plan: Plan | None = None) -> Study:
    study = Study(plan or Plan(name="made"), tuple(cells))
    write_plan(folder, study)
    return study


def cell(name: str, seeds: Sequence[int] = (0, 1), against: str = "", **tags: str) -> Cell:
    return Cell(name, tags or {"method": name}, (f"method.x={name}",), tuple(seeds), None, "", against)


def write_run(
    folder: Path,
    name: str,
    seed: int,
    evals: Mapping[int, float],
    train: Sequence[Mapping[str, Any]] = (),
    steps: int = 10,
    timings: Sequence[Mapping[str, Any]] = (),
) -> Path:
    """A run with success on unseen games by step, and training rows numbered from 1."""
    run = run_folder(folder, name, seed)
    run.mkdir(parents=True)
    (run / "config.toml").write_text(CONFIG.format(seed=seed, steps=steps))
    (run / "run.json").write_text('{"kind": "train"}')
    rows: list[dict[str, Any]] = [{"step": n, "kind": "train", **row} for n, row in enumerate(train, start=1)]
    rows += [
        {"step": step, "kind": "eval", "eval/unseen/success": share, "eval/unseen/games": 100.0}
        for step, share in evals.items()
    ]
    rows.sort(key=lambda row: (row["step"], row["kind"] == "eval"))
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = [{"step": n, "kind": "train", **row} for n, row in enumerate(timings, start=1)]
    (run / "timings.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    return run


def whole_run(folder: Path, name: str, seed: int, last: float, steps: int = 10) -> Path:
    """A finished run that starts at 0.2 and ends at `last`."""
    train = [{"entropy/token": 0.5 - 0.01 * n, "episode/tokens": 10.0, "valid_ratio": 0.9} for n in range(steps)]
    seconds = [{"seconds/rollout": 1.0, "seconds/update": 2.0, "seconds/evaluate": 5.0}] * steps
    return write_run(folder, name, seed, {0: 0.2, steps // 2: last / 2, steps: last}, train, steps, seconds)
