"""The studies that come with it still ask for what their kept runs were made with."""

from __future__ import annotations

from pathlib import Path

import pytest

from isentrope.study.begun import done_before
from isentrope.study.jobs import make_jobs
from isentrope.study.plan import laid_over, read_plan
from isentrope.study.read import DONE, read_study

ROOT = Path(__file__).parents[2]
STUDIES = ("household", "alfworld")  # those with GiGPO, whose runs were made in the form that is called mixed now


@pytest.mark.parametrize("name", STUDIES)
def test_a_recipe_repeats_its_kept_runs(name: str, tmp_path: Path) -> None:
    kept = read_study(ROOT / "docs" / "runs" / name)
    study = read_plan(ROOT / "recipes" / "studies" / f"{name}.toml")
    if name == "alfworld":  # the place of its games is given on the command line
        study = laid_over(study, ["task.options.games=games.jsonl.zst"])
    jobs = make_jobs(study, tmp_path)
    assert done_before(jobs, kept) == {run.name for run in kept.runs if run.status == DONE}  # raises where they differ
    forms = {cell.tags["algorithm"] for cell in study.cells if "learn.algorithm=gigpo_mixed" in cell.settings}
    assert forms == {"gigpo"}
    asked = {checked.config.learn.advantage for checked in jobs if checked.job.name.startswith("gigpo")}
    made = {run.config["learn.advantage"] for run in kept.runs if run.tags["algorithm"] == "gigpo"}
    assert asked == made == {"gigpo_mixed"}
