"""Which results may share a row, and what is said of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from isentrope.analysis.compare import Choices, make_tables
from isentrope.analysis.record import SAME_TEST
from isentrope.analysis.rows import check_row, check_rows, read_rows
from isentrope.core.errors import RunError
from tests.analysis.helpers import write
from tests.builders.run_folders import run_folder


def notes_of(*named: str, **choices: Any) -> tuple[str, ...]:
    return make_tables(read_rows([], named), Choices(**choices))[0].notes


@pytest.mark.parametrize(("key", "values"), [
    ("agent.max_response", (512, 64)),
    ("agent.max_context", (4096, 512)),
    ("agent.overflow", ("drop", "end")),
    ("task.episode_seconds", (600.0, 60.0)),
    ("policy.chat_template", ("", "plain")),
])  # fmt: skip
def test_limits_and_the_template_belong_to_the_test(tmp_path: Path, key: str, values: tuple[Any, Any]) -> None:
    assert key in SAME_TEST
    for name, value in zip("ab", values, strict=True):
        write(tmp_path / f"{name}.json", {"seen": [1, 0]}, seed=ord(name), **{key.replace(".", "__"): value})
    with pytest.raises(RunError, match=f"differ in {key}"):
        notes_of(f"GRPO={tmp_path}/*.json")
    assert any(key in note for note in notes_of(f"A={tmp_path}/a.json", f"B={tmp_path}/b.json"))


def test_an_option_that_one_side_lacks(tmp_path: Path) -> None:
    first = write(tmp_path / "a.json", {"seen": [1]}, task__options={})
    second = write(tmp_path / "b.json", {"seen": [1]}, task__options={"rooms": "small"})
    for paths in ((first, second), (second, first)):
        (note,) = check_rows(read_rows([], [f"{name}={path}" for name, path in zip("AB", paths, strict=True)]))
        assert "task.options.rooms (" in note
        assert "not set" in note


def test_two_models_that_end_in_the_same_name(tmp_path: Path) -> None:
    """Named by nobody, they are two models and not two seeds of one."""
    paths = [str(write(tmp_path / f"{name}.json", {"seen": [1]}, name="model", model=f"{name}/model")) for name in "ab"]
    with pytest.raises(RunError, match=r"both called 'model'.*a/model.*b/model.*--row"):
        read_rows(paths, [])
    assert len(read_rows([], [f"A={paths[0]}", f"B={paths[1]}"])) == 2
    notes = notes_of(*(f"GRPO={path}" for path in paths))  # named by --row: allowed, and said
    assert any("two of its files have the same seed (0, 0)" in note for note in notes)
    assert any("of 2 models ('a/model', 'b/model')" in note for note in notes)
    named = [write(tmp_path / f"{i}.json", {"seen": [1]}, name="GRPO", model=f"runs/{i}", seed=i) for i in (1, 2)]
    assert len(read_rows([str(path) for path in named], [])[0].sources) == 2  # named by --name


@pytest.mark.parametrize("spelling", ["./runs/g", "runs/../runs/g", "runs/g/", "{}/runs/g", "link"])
def test_one_model_in_two_spellings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelling: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs/g").mkdir(parents=True)
    Path("link").symlink_to("runs/g")
    write(tmp_path / "a.json", {"seen": [1]}, model="runs/g")
    write(tmp_path / "b.json", {"seen": [1]}, model=spelling.format(tmp_path))
    with pytest.raises(RunError, match="the same measurement twice"):
        read_rows([], ["GRPO=*.json"])


def test_spellings_of_a_model_that_is_elsewhere(tmp_path: Path) -> None:
    for name, model in (("a", "runs/g"), ("b", "./runs/g")):
        write(tmp_path / f"{name}.json", {"seen": [1]}, model=model)
    with pytest.raises(RunError, match="the same measurement twice"):
        read_rows([], [f"GRPO={tmp_path}/*.json"])
    write(tmp_path / "b.json", {"seen": [1]}, model="x\0y")
    assert len(read_rows([], [f"GRPO={tmp_path}/*.json"])[0].sources) == 2


def test_one_model_played_twice_is_not_two_seeds(tmp_path: Path) -> None:
    for seed in (0, 1):
        write(tmp_path / f"{seed}.json", {"seen": [seed]}, model="runs/g", seed=seed)
    with pytest.raises(RunError, match=r"one model twice.*not another seed.*--episodes"):
        notes_of(f"GRPO={tmp_path}/*.json")
    notes = notes_of(f"GRPO={tmp_path}/*.json", mixed=True)
    assert any("are of one model, not of two trainings" in note for note in notes)


def test_a_run_and_the_file_of_its_model_share_a_row(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", {10: 0.5}, steps=10)
    path = write(tmp_path / "a.json", {"seen": [1]}, model=str(run), step=10)
    (row,) = read_rows([], [f"GRPO={run}", f"GRPO={path}"])
    assert check_row(row, mixed=False) == []


def test_other_splits_with_mixed(tmp_path: Path) -> None:
    """Each table leaves out what was not evaluated on its split, in the differences too, and says so."""
    write(tmp_path / "a.json", {"seen": [1, 0], "unseen": [1, 1]}, seed=0)
    write(tmp_path / "b.json", {"unseen": [1, 0]}, seed=1)
    base = write(tmp_path / "base", {"seen": [0, 0], "unseen": [0, 0]})
    named = [f"GRPO={tmp_path}/*.json", f"SFT={base}"]
    with pytest.raises(RunError, match=r"mixes splits.*--mixed"):
        make_tables(read_rows([], named), Choices())
    seen, unseen = make_tables(read_rows([], named), Choices(mixed=True, against="SFT"))
    assert (seen.rows[0].seeds, seen.rows[0].cells["all"].value) == (1, 50.0)
    assert seen.rows[0].cells["difference"].value == 50.0
    assert f"GRPO: {tmp_path}/b.json was not evaluated on seen and is left out" in seen.notes
    assert (unseen.rows[0].seeds, unseen.rows[0].cells["all"].value) == (2, 75.0)
    assert not any("left out" in note for note in unseen.notes)


def test_the_best_checkpoint_is_pointed_out(tmp_path: Path) -> None:
    for name, checkpoint in (("a", "best"), ("b", "last"), ("c", "step 10")):
        write(tmp_path / f"{name}.json", {"seen": [1]}, step=10, eval__checkpoint=checkpoint)
    notes = notes_of(*(f"{name}={tmp_path}/{name}.json" for name in "abc"))
    assert [note.split(":")[0] for note in notes if "did best in its run's evaluations" in note] == ["a"]


def test_succ_of_fewer_runs_than_the_row_has(tmp_path: Path) -> None:
    run_folder(tmp_path / "run-0", {0: 0.1, 10: 0.5}, steps=10, seed=0)
    run_folder(tmp_path / "run-1", {0: 0.1}, steps=10, seed=1)
    notes = notes_of(f"GRPO={tmp_path}/run-*")
    assert any("Succ.* is over 1 of 2 seeds" in note for note in notes)
    for seed in (0, 1, 2):  # three files of final models, but the curve of two runs
        write(tmp_path / f"{seed}.json", {"seen": [1]}, seed=seed)
    notes = notes_of(f"GRPO={tmp_path}/*.json", f"GRPO={tmp_path}/run-0")
    assert any("Succ.* is over 1 of 3 seeds" in note for note in notes)
    assert not any("Succ.* is over" in note for note in notes_of(f"GRPO={tmp_path}/run-0"))
