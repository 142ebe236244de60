"""Run folders as they are found: whole, half written, damaged, foreign."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from isentrope.core.errors import RunError
from isentrope.runs.episodes import pack_episodes, read_episodes
from isentrope.runs.folder import Run
from isentrope.runs.integrity import with_sum
from isentrope.runs.layout import ABOUT, CONFIG, EVENTS, LOCK, METRICS, TIMINGS, eval_path, train_path
from isentrope.runs.lock import hold, is_alive
from tests.builders.run_folders import make_run, make_warmup


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


def test_curves_settings_and_episodes_by_name(tmp_path: Path) -> None:
    run = Run.open(make_run(tmp_path / "a", steps=12))
    assert run.curve("entropy/token").steps == tuple(range(12))
    assert run.curve("eval/unseen/success").steps == (0, 10, 12)
    assert run.curve("eval/unseen/success") == run.curve("eval/unseen/success", "eval")
    assert len(run.curve("seconds/rollout")) == len(run.timings)
    assert run.setting("learn.lr") == run.config["learn"]["lr"]
    assert run.setting("learn.lr.deeper", "none") == "none"
    for file, episodes in ((train_path(run.path, 6), run.episodes(6)),
                           (eval_path(run.path, 12, "unseen"), run.episodes(12, "unseen"))):  # fmt: skip
        assert pack_episodes(episodes) == pack_episodes(read_episodes(file))
    with pytest.raises(RunError, match=r"no episodes of training at step 7; stored are those of: 0, 6, 11"):
        run.episodes(7)


def test_a_run_is_alive_while_its_lock_is_held(tmp_path: Path) -> None:
    path = make_run(tmp_path / "a", steps=2)
    with hold(path / LOCK, "held by {owner}"):
        assert Run.open(path).alive
        with pytest.raises(RunError, match=f"held by {os.getpid()}"):
            hold(path / LOCK, "held by {owner}")
    assert not Run.open(path).alive


def test_a_lock_of_another_file_system_with_the_same_number_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_text("1")
    status = (tmp_path / LOCK).stat()
    assert is_alive(tmp_path, {(status.st_dev, status.st_ino)})
    assert not is_alive(tmp_path, {(status.st_dev + 1, status.st_ino)})


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / CONFIG)
    with pytest.raises(RunError, match="is not a file"):
        Run.open(tmp_path)


@pytest.mark.parametrize("name", [METRICS, EVENTS, TIMINGS])
def test_a_log_that_is_no_file_is_passed_over_and_named(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    assert Run.open(tmp_path).problems == (f"{name} could not be read: {name} is not a file",)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"kind": 3}', "[" * 100_000])
def test_a_damaged_note_on_the_beginning_is_as_good_as_none(tmp_path: Path, text: str) -> None:
    path = make_run(tmp_path / "a", steps=2)
    (path / ABOUT).write_text(text)
    assert Run.open(path).kind == "train"
    (path / METRICS).write_text('{"step": 1, "kind": "sft"}\n')
    assert Run.open(path).kind == "sft"


def test_a_damaged_note_on_the_beginning_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = make_run(tmp_path / "a", steps=2)
    (path / ABOUT).write_text(json.dumps(with_sum({"kind": "train", "version": "0.4.0"})))
    Run.open(path)
    assert not caplog.records
    (path / ABOUT).write_text((path / ABOUT).read_text().replace("0.4.0", "0.4.1"))
    Run.open(path)
    assert f"could not read {path / ABOUT}: its content does not fit its SHA-256" in caplog.text
