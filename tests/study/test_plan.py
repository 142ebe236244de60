"""Study files: what they come to, and what is refused."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest

from isentrope.config.load import load_config
from isentrope.core.errors import ConfigError, RunError
from isentrope.study.jobs import make_jobs
from isentrope.study.plan import Study, laid_over, plan_from_json, plan_to_json, read_plan

STUDIES = Path(__file__).parents[2] / "recipes" / "studies"

GRID = """
seeds = 2
set = ["run.steps=7"]
against = "{algorithm}"
[levels.algorithm.grpo]
set = ["learn.algorithm=grpo"]
[levels.algorithm.ppo]
set = ["learn.algorithm=ppo"]
[levels.method.none]
[levels.method.seal-03]
set = ["methods=seal", "method.seal.alpha=0.3"]
tags = { method = "seal", alpha = "0.3" }
[[grids]]
over = { algorithm = "all", method = ["none", "seal-03"] }
[cells.warm]
extends = "grpo-seal-03"
set = ["method.seal.alpha=0.5"]
tags = { alpha = "0.5" }
seeds = [7]
"""


def plan(folder: Path, text: str) -> Study:
    (folder / "study.toml").write_text(text)
    return read_plan(folder / "study.toml")


def test_a_grid_is_every_combination(tmp_path: Path) -> None:
    study = plan(tmp_path, GRID)
    assert [cell.name for cell in study.cells] == ["grpo", "grpo-seal-03", "ppo", "ppo-seal-03", "warm"]
    cell = study.cell("ppo-seal-03")
    assert cell.tags == {"algorithm": "ppo", "method": "seal", "alpha": "0.3"}
    assert cell.settings == ("run.steps=7", "learn.algorithm=ppo", "methods=seal", "method.seal.alpha=0.3")
    assert cell.seeds == (0, 1)
    assert cell.against == "ppo"
    assert study.cell("ppo").against == ""  # the baseline is compared with nothing
    assert study.name == "study"


def test_a_cell_extends_another(tmp_path: Path) -> None:
    cell = plan(tmp_path, GRID).cell("warm")
    assert cell.tags == {"algorithm": "grpo", "method": "seal", "alpha": "0.5"}
    assert cell.settings[-1] == "method.seal.alpha=0.5"
    assert cell.seeds == (7,)
    config = load_config(None, cell.settings)
    assert config.method["seal"]["alpha"] == 0.5
    assert config.run.steps == 7


def test_cells_may_extend_what_stands_below(tmp_path: Path) -> None:
    study = plan(tmp_path, "[cells.b]\nextends = 'a'\n[cells.a]\nset = ['run.steps=3']\n")
    assert study.cell("b").settings == ("run.steps=3",)


def test_a_suffix_makes_another_grid(tmp_path: Path) -> None:
    more = "[[grids]]\nover = { algorithm = ['grpo'] }\nsuffix = 'long'\nset = ['run.steps=9']\nrank = 2\n"
    cell = plan(tmp_path, GRID + more).cell("grpo-long")
    assert cell.settings == ("run.steps=7", "learn.algorithm=grpo", "run.steps=9")
    assert (cell.rank, cell.against) == (2, "grpo")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no cells"),
        ("sedes = 3\n[cells.a]", "did you mean seeds"),
        ("seeds = 0\n[cells.a]", "seeds"),
        ("[cells.a]\nseeds = [1, 1]", "different ones"),
        ("[cells.a]\nextends = 'b'", "no such cell"),
        ("[cells.a]\nextends = 'b'\n[cells.b]\nextends = 'a'", "circle"),
        ("[cells.warmup]", "cannot name a cell"),
        ('[cells."../a"]', "cannot name a cell"),
        ("[cells.a]\nagainst = 'b'", "no such cell"),
        ("[cells.a]\nagainst = '{method}'", "with a tag"),
        ("[cells.a]\nagainst = '{method.__class__}'", "with a tag"),
        ("[cells.a]\nsett = []", "did you mean set"),
        ("[cells.a]\nset = [1]", "expected settings"),
        ("[cells.a]\nwarmup = 'w'", "no [warmups.w]"),
        ("[cells.a]\nrank = 'first'", "whole number"),
        ("[levels.method.epo]\n[[grids]]\nover = { method = ['ep'] }", "did you mean epo"),
        ("[levels.m.a]\n[[grids]]\nover = { m = ['a'] }\n[[grids]]\nover = { m = ['a'] }", "suffix"),
        ("keep = 'some'\n[cells.a]", "one of all, metrics"),
        ("cells = 3", "expected a table"),
        ("= 3", "not valid TOML"),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(tmp_path, text)
    assert told in str(caught.value)


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="3 problems") as caught:
        plan(tmp_path, "seedz = 3\n[levels.m.a]\nsett = []\n[[grids]]\nover = { m = ['b'] }")
    for told in ("did you mean seeds", "did you mean set", "no [levels.m.b]"):
        assert told in str(caught.value)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="could not read the study"):
        read_plan(tmp_path / "none.toml")


def test_every_cell_is_checked_before_anything_runs(tmp_path: Path) -> None:
    text = "[cells.good]\n[cells.bad]\nset = ['learn.lr=fast']\n[cells.worse]\nset = ['methods=epoo']\n"
    text += "[cells.worst]\nset = ['task.world=nowhere']\n"
    with pytest.raises(ConfigError) as caught:
        make_jobs(plan(tmp_path, text), tmp_path / "out")
    for name in ("bad: ", "worse: ", "worst: ", "learn.lr", "did you mean epo", "nowhere"):
        assert name in str(caught.value)
    assert "good" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_jobs_go_by_rank_and_then_seed_by_seed(tmp_path: Path) -> None:
    text = "seeds = 2\nwarmup = 'w'\n[warmups.w]\n[cells.late]\nrank = 1\n[cells.a]\n[cells.b]\nseeds = [5]\n"
    jobs = make_jobs(plan(tmp_path, text), tmp_path / "out")
    assert [job.name for job in jobs] == ["warmup/w", "a/seed-0", "b/seed-5", "a/seed-1", "late/seed-0", "late/seed-1"]
    assert [job.needs for job in jobs] == ["", *["warmup/w"] * 5]
    assert "run.seed=5" in jobs[2].command
    assert f"policy.model={tmp_path / 'out' / 'warmup' / 'w'}" in jobs[2].command
    assert jobs[0].command[0] == "sft"


def test_settings_of_the_command_win_in_cells_and_warmups(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        'warmup = "w"\n[warmups.w]\nset = ["sft.games=6"]\n[cells.a]\nset = ["run.steps=7"]\n'
    )
    with pytest.raises(ConfigError, match=r"run\.seed=7: the seeds of a study are in its file"):
        laid_over(read_plan(tmp_path / "s.toml"), ["run.steps=9", "run.seed=7"])
    study = laid_over(read_plan(tmp_path / "s.toml"), ["run.steps=9", "sft.games=2"])
    jobs = make_jobs(study, tmp_path / "out")
    assert [(one.config.run.steps, one.config.sft.games) for one in jobs] == [(9, 2)] * len(jobs)
    assert {one.name.split("/")[0] for one in jobs} == {"warmup", "a"}


def test_only_some_cells(tmp_path: Path) -> None:
    study = plan(tmp_path, GRID)
    assert {one.folder.parent.name for one in make_jobs(study, tmp_path, ["ppo"])} == {"ppo"}
    with pytest.raises(ConfigError, match="no such cell"):
        make_jobs(study, tmp_path, ["pppo"])


def test_a_plan_survives_being_written_down(tmp_path: Path) -> None:
    study = plan(tmp_path, GRID)
    again = plan_from_json(plan_to_json(study), "here")
    assert [vars(cell) for cell in again.cells] == [vars(cell) for cell in study.cells]
    assert (again.name, again.plan.threshold) == (study.name, study.plan.threshold)


def test_a_plan_with_a_number_that_is_none_is_refused(tmp_path: Path) -> None:
    """1e309 in study.json: it could not be written down again."""
    table = plan_to_json(plan(tmp_path, GRID))
    for number in (math.inf, math.nan):
        with pytest.raises(RunError, match="is not the plan of a study"):
            plan_from_json(table | {"threshold": number}, "here")


COMPARES_NOTHING = ("setting", "erupted")


@pytest.mark.parametrize("name", sorted(path.stem for path in STUDIES.glob("*.toml")))
def test_the_studies_that_come_with_it_can_be_run(name: str, tmp_path: Path) -> None:
    study = read_plan(STUDIES / f"{name}.toml")
    jobs = make_jobs(study, tmp_path)
    runs = [checked for checked in jobs if checked.steps]
    assert len(runs) == sum(len(cell.seeds) for cell in study.cells)
    assert len({str(sorted(vars(checked.config).items())) for checked in runs}) == len(runs)  # no two runs alike
    baselines = [cell for cell in study.cells if not cell.against]
    assert name in COMPARES_NOTHING or all(cell.tags.get("method", "none") == "none" for cell in baselines)


def test_the_large_study_has_what_was_promised() -> None:
    study = read_plan(STUDIES / "household.toml")
    methods = {"none", "entropy_bonus", "higher_temperature", "ea", "epo", "seal", "aem", "actre", "no_think"}
    for algorithm in ("grpo", "ppo", "dapo", "gspo", "gigpo", "rloo"):
        of_it = [cell for cell in study.cells if cell.tags["algorithm"] == algorithm]
        cells = [cell for cell in of_it if not {"length", "start"} & cell.tags.keys()]
        assert methods <= {cell.tags["method"] for cell in cells}, algorithm
        found = Counter((cell.tags["method"], "variant" in cell.tags) for cell in cells)
        assert found["epo", True] == 3
        assert found["actre", True] == 3
        assert {cell.tags.get("alpha") for cell in cells if cell.tags["method"] == "seal"} == {"0.03", "0.1", "0.3"}
        assert all(len(cell.seeds) >= (5 if algorithm == "grpo" else 3) for cell in cells)
    long = [cell for cell in study.cells if cell.tags.get("length") == "long"]
    assert all("run.steps=400" in cell.settings for cell in long)
    assert len(long) == 13
