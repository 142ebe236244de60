"""Studies made by hand whose runs belong to cells, as those of a study file do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from isentrope.study.plan import Plan, Study
from isentrope.study.read import StudyData, StudyRun
from tests.builders.run_folders import cell
from tests.papers.made import made_run


def run_of(
    name: str, seed: int, success: Sequence[float] | None = None, steps: int = 4, **train: Sequence[float]
) -> StudyRun:
    """A run of a cell: `success` at step 0 and at every second step, other metrics step by step."""
    made = made_run(seed, steps=steps, train={key.replace("__", "/"): values for key, values in train.items()})
    rows = [{"step": 2 * n, "kind": "eval", "eval/unseen/success": value} for n, value in enumerate(success or ())]
    return replace(made, cell=name, evals=tuple(rows))


def study_of(runs: Sequence[StudyRun], against: Mapping[str, str], name: str = "household") -> StudyData:
    """`against`: every cell with its baseline, empty for none."""
    seeds = {cell: sorted(run.seed for run in runs if run.cell == cell) for cell in against}
    cells = tuple(cell(one, seeds[one], base) for one, base in against.items())
    return StudyData(Study(Plan(name=name), cells), tuple(runs))
