"""The studies that come with it still ask for what their kept runs were made with."""

from __future__ import annotations

from pathlib import Path

import pytest

from isentrope.config.text import config_to_toml
from isentrope.core.errors import RunError
from isentrope.methods.options import with_options
from isentrope.study.jobs import make_jobs
from isentrope.study.plan import laid_over, read_plan
from isentrope.study.read import DONE
from isentrope.study.run import check_begun, done_before
from tests.builders.kept_studies import kept_study
from tests.builders.older import in_older_words

ROOT = Path(__file__).parents[2]
STUDIES = ("household", "alfworld")  # those with GiGPO, whose runs were made in the form that is called mixed now


@pytest.mark.slow(4)
@pytest.mark.parametrize("name", STUDIES)
def test_a_recipe_repeats_its_kept_runs(name: str, tmp_path: Path) -> None:
    kept = kept_study(name)
    study = read_plan(ROOT / "recipes" / "studies" / f"{name}.toml")
    if name == "alfworld":  # the place of its games is given on the command line
        study = laid_over(study, ["task.options.games=games.jsonl.zst"])
    jobs = make_jobs(study, tmp_path)
    assert done_before(jobs, kept) == {run.name for run in kept.runs if run.status == DONE}  # raises where they differ
    forms = {cell.tags["algorithm"] for cell in study.cells if "learn.algorithm=gigpo_mixed" in cell.settings}
    assert forms == {"gigpo"}
    asked = {checked.config.learn.advantage.kind for checked in jobs if checked.name.startswith("gigpo")}
    made = {run.config["learn.advantage.kind"] for run in kept.runs if run.tags["algorithm"] == "gigpo"}
    assert asked == made == {"gigpo_mixed"}


def test_a_study_goes_on_in_the_folder_of_an_earlier_version(tmp_path: Path) -> None:
    """Its run folders say gigpo and step_std; the study's file says gigpo_mixed today."""
    (tmp_path / "study.toml").write_text("seeds = 1\n[cells.a]\nset = ['learn.algorithm=gigpo_mixed']\n")
    (tmp_path / "other.toml").write_text("seeds = 1\n[cells.a]\nset = ['learn.algorithm=gigpo']\n")
    jobs, other = (make_jobs(read_plan(tmp_path / f"{name}.toml"), tmp_path / "out") for name in ("study", "other"))
    recorded = in_older_words(config_to_toml(with_options(jobs[0].config))).replace('"gigpo_mixed"', '"gigpo"')
    folder = jobs[0].folder
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(recorded.replace("\nstep_weight", "\nstep_std = false\nstep_weight"))
    (folder / "metrics.jsonl").write_text("")
    check_begun(jobs)
    with pytest.raises(RunError, match=r"learn\.advantage\.kind was 'gigpo_mixed', now 'gigpo'"):
        check_begun(other)
