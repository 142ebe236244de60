"""Run folders as they are found: whole, half written, damaged, foreign."""

from __future__ import annotations

from pathlib import Path

import pytest

from isentrope.core.errors import RunError
from isentrope.runs.folder import Run
from tests.report.fake_run import make_run, make_warmup


def test_a_run_and_its_warmup(tmp_path: Path) -> None:
    run = Run.open(make_run(tmp_path / "a", steps=12))
    assert run.name == "a"
    assert len(run.of_kind("train")) == 12
    assert run.setting("run.steps") == 12
    assert run.setting("nowhere.x", 7) == 7
    assert [(file.step, file.split) for file in run.episode_files] == [
        (0, None), (0, "unseen"), (6, None), (11, None), (12, "unseen")
    ]  # fmt: skip
    warmup = run.warmup()
    assert warmup is not None
    assert warmup.path == tmp_path / "a" / "warmup"


def test_the_warmup_can_be_the_model(tmp_path: Path) -> None:
    make_warmup(tmp_path / "warm")
    for number, model in enumerate((str(tmp_path / "warm"), "warm", "../warm")):
        warmup = Run.open(make_run(tmp_path / f"run{number}", steps=2, model=model, warmup=False)).warmup()
        assert warmup is not None
        assert warmup.path.resolve() == tmp_path / "warm"


@pytest.mark.parametrize("model", ["pocket", "", ".", "x" * 5000, "\0"])
def test_a_model_that_is_no_run_gives_no_warmup(tmp_path: Path, model: str) -> None:
    run = Run.open(make_run(tmp_path / "a", steps=2, warmup=False, model="pocket"))
    run.config["policy"]["model"] = model
    assert run.warmup() is None


def test_a_run_that_is_still_going(tmp_path: Path) -> None:
    path = make_run(tmp_path / "a", steps=3)
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "ki')
    (path / "episodes" / ".step-000003.parquet.tmp").write_bytes(b"PAR1")
    run = Run.open(path)
    assert len(run.of_kind("train")) == 3
    assert len(run.episode_files) == 5


def test_an_empty_folder_is_a_run_that_has_not_begun(tmp_path: Path) -> None:
    run = Run.open(tmp_path)
    assert (run.records, run.timings, run.episode_files, run.config) == ([], [], [], {})


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="nowhere is not a run folder"):
        Run.open(tmp_path / "nowhere")
    (tmp_path / "config.toml").write_text("= 3")
    with pytest.raises(RunError, match=r"config\.toml"):
        Run.open(tmp_path)
