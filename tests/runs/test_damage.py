"""Damage to a run folder is found, said, and survived where an earlier checkpoint is sound."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from isentrope.core.errors import IsentropeError, RunError
from isentrope.loop.evaluate import Exam, evaluate_model
from isentrope.loop.export import export
from isentrope.loop.settings import recipe_or_run
from isentrope.loop.train import train
from isentrope.runs.checkpoints import best_step, kept_checkpoints
from isentrope.runs.folder import Run
from isentrope.runs.integrity import check_settings, folder_damage, log_damage, with_sum, write_sums
from isentrope.runs.recovery import ASIDE_KEPT, going_on, refuse_damaged
from tests.builders.toy_runs import make_model, toy_config

SETTINGS = ("run.steps=6", "run.eval_every=2", "run.keep_last=5", "learn.kl=0.1")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("damage")
    train(toy_config(make_model(place / "model"), *SETTINGS), place / "whole", quiet=True)
    return place / "whole"


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run"))


def flip(path: Path, place: float = 0.5) -> None:
    data = bytearray(path.read_bytes())
    data[int(place * len(data))] ^= 1
    path.write_bytes(data)


def resumed(run: Path, from_step: int | None = None) -> None:
    model = run.parent / "model"
    config = toy_config(model if model.exists() else Path(str(Run.open(run).setting("policy.model"))), *SETTINGS)
    train(config, run, resume=True, quiet=True, from_step=from_step)


def checkpoint(run: Path, step: int) -> Path:
    return run / "checkpoints" / f"step-{step:06d}"


def swap(a: Path, b: Path) -> None:
    kept = a.with_name("kept")
    a.rename(kept)
    b.rename(a)
    kept.rename(b)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "weights": (lambda c: flip(c / "policy" / "model.safetensors"), "model.safetensors has other content"),
    "tokenizer": (lambda c: flip(c / "policy" / "pocket_tokens.json"), "pocket_tokens.json has other content"),
    "model settings": (lambda c: flip(c / "policy" / "config.json"), "config.json has other content"),
    "optimiser": (lambda c: flip(c / "state.safetensors", 0.9), "state.safetensors has other content"),
    "state": (lambda c: flip(c / "state.json"), "state.json has other content"),
    "sums": (lambda c: flip(c / "sha256.json"), "sha256.json cannot be read"),
    "empty": (lambda c: (c / "state.json").write_text(""), "state.json has 0 bytes"),
    "missing": (lambda c: (c / "state.safetensors").unlink(), "state.safetensors is missing"),
    "a file of another": (
        lambda c: swap(c / "state.safetensors", c.with_name("step-000004") / "state.safetensors"),
        "state.safetensors has other content",
    ),
    "another": (lambda c: swap(c, c.with_name("step-000004")), "it is a checkpoint of step 4, from another folder"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_checkpoint_is_passed_over(name: str, run: Path) -> None:
    damage, words = DAMAGE[name]
    damage(checkpoint(run, 6))
    on = going_on(run, "train")
    assert on.checkpoint == checkpoint(run, 2 if "another" in name else 4)  # a swap damages two
    assert words in on.said[0]
    assert on.said[0] in {event["text"] for event in Run.open(run).events}
    assert (run / "checkpoints" / "aside-000006").is_dir()
    assert best_step(run / "checkpoints") in kept_checkpoints(run / "checkpoints")


def test_the_run_computes_again_what_the_damaged_checkpoint_had(whole: Path, run: Path) -> None:
    flip(checkpoint(run, 6) / "state.safetensors")
    resumed(run)
    assert (run / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    for name in ("policy/model.safetensors", "state.safetensors", "state.json"):
        assert (checkpoint(run, 6) / name).read_bytes() == (checkpoint(whole, 6) / name).read_bytes()
    assert (run / "checkpoints/best.json").read_bytes() == (whole / "checkpoints/best.json").read_bytes()
    assert [event["kind"] for event in Run.open(run).events].count("recovery") == 1
    assert going_on(run, "train").said == ()  # all is well again


def test_those_passed_over_are_bounded(run: Path) -> None:
    for step in (2, 4, 6):
        shutil.copytree(checkpoint(run, step), checkpoint(run, step + 10))  # from another folder, as their sums say
    assert going_on(run, "train").checkpoint == checkpoint(run, 6)
    kept = sorted(path.name for path in (run / "checkpoints").glob("aside-*"))
    assert kept == ["aside-000014", "aside-000016"]
    assert len(kept) == ASIDE_KEPT


def test_without_a_sound_one_the_choices_are_named_and_nothing_is_changed(run: Path) -> None:
    for step in (2, 4, 6):
        flip(checkpoint(run, step) / "state.json")
    before = sorted(run.rglob("*"))
    with pytest.raises(RunError, match=r"no checkpoint is without damage.*\(1\) Put the damaged file back") as told:
        going_on(run, "train")
    assert "(2) Begin a new run from the weights of step-000006, which are sound: " in str(told.value)
    flip(checkpoint(run, 6) / "policy" / "model.safetensors")
    with pytest.raises(RunError) as told:
        going_on(run, "train")
    assert "the weights of" not in str(told.value)
    assert sorted(run.rglob("*")) == before


def test_a_checkpoint_of_an_older_version_is_taken_as_it_is(run: Path) -> None:
    for step in (2, 4, 6):
        (checkpoint(run, step) / "sha256.json").unlink()
    on = going_on(run, "train")
    assert (on.checkpoint, on.said) == (checkpoint(run, 6), ())
    (checkpoint(run, 6) / "state.json").write_text("{")  # that much was always seen
    assert going_on(run, "train").checkpoint == checkpoint(run, 4)


def cut_lines(run: Path, kept: int) -> None:
    lines = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (run / "metrics.jsonl").write_bytes(b"".join(lines[:kept]))


def test_metrics_shorter_than_the_checkpoint_says_are_refused_with_the_choice(whole: Path, run: Path) -> None:
    cut_lines(run, 8)  # evaluations of steps 0, 2 and 4, and up to step 5
    with pytest.raises(RunError, match=r"metrics.jsonl has [\d,]+ bytes, [\d,]+ were written") as told:
        resumed(run)
    assert "--resume --from-step 4; or go on from step 6 with numbers" in str(told.value)
    resumed(run, from_step=4)
    assert (run / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    assert any("taken back to step-000004" in event["text"] for event in Run.open(run).events)


def test_the_loss_can_be_accepted(run: Path) -> None:
    cut_lines(run, 8)
    on = going_on(run, "train", from_step=6)
    assert on.checkpoint == checkpoint(run, 6)
    assert "numbers of earlier steps are lost" in on.said[0]
    assert len((run / "metrics.jsonl").read_bytes().splitlines()) == 8


def test_a_changed_digit_in_the_metrics_is_found(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text(
        text.replace('"entropy/token": 0.', '"entropy/token": 1.', 1).replace("0.", "1.", 1)
    )
    with pytest.raises(RunError, match=r"metrics\.jsonl has other content than was written"):
        going_on(run, "train")
    with caplog.at_level(logging.WARNING):
        Run.open(run)
    assert "by its checkpoint step-000006, metrics.jsonl has other content" in caplog.text
    assert log_damage(run, checkpoint(run, 6))


def test_a_line_that_is_cut_in_the_middle(run: Path) -> None:
    lines = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    lines[4] = lines[4][:40] + b"\n"
    (run / "metrics.jsonl").write_bytes(b"".join(lines))
    with pytest.raises(RunError, match=r"--from-step 2"):
        going_on(run, "train")
    going_on(run, "train", from_step=6)
    assert len((run / "metrics.jsonl").read_bytes().splitlines()) == len(lines) - 1


def test_a_missing_log_is_found(run: Path) -> None:
    (run / "metrics.jsonl").unlink()
    with pytest.raises(RunError, match=r"metrics\.jsonl is missing"):
        going_on(run, "train")


def test_settings_that_changed_are_found_and_can_be_put_back(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = run / "config.toml"
    path.write_text(path.read_text().replace("lr = 0.001", "lr = 0.003"))
    for act in (lambda: resumed(run), lambda: recipe_or_run(None, run, None, trust=True)):
        with pytest.raises(RunError, match=r"not as the run wrote it.*settings.toml"):
            act()
    with pytest.raises(RunError, match="not as the run wrote it"):
        export(run, run.parent / "exported")
    with caplog.at_level(logging.WARNING):
        Run.open(run)
    assert "not as the run wrote it" in caplog.text
    shutil.copy(checkpoint(run, 6) / "settings.toml", path)
    check_settings(path)
    path.write_text("\n".join(path.read_text().splitlines()[:-1]) + "\n")  # somebody's own change
    check_settings(path)


def test_a_damaged_run_json_is_found(run: Path) -> None:
    path = run / "run.json"
    path.write_text(path.read_text().replace('"kind": "train"', '"kind": "trail"'))
    with pytest.raises(RunError, match=r"does not fit its SHA-256; put it back from a copy, or delete it"):
        resumed(run)
    path.unlink()
    resumed(run)


def test_a_damaged_choice_of_the_best_is_found_and_made_again(whole: Path, run: Path) -> None:
    path = run / "checkpoints" / "best.json"
    path.write_text(path.read_text().replace('"success": ', '"success": 1'))
    with pytest.raises(RunError, match=r"delete .*best.json"):
        best_step(run / "checkpoints")
    assert "chosen anew" in going_on(run, "train").said[0]
    assert path.read_bytes() == (whole / "checkpoints" / "best.json").read_bytes()


def test_a_damaged_reference_is_found(run: Path) -> None:
    flip(run / "reference" / "model.safetensors")
    with pytest.raises(RunError, match=r"reference is damaged: model.safetensors .* begin the run once more elsewhere"):
        resumed(run)


def test_a_damaged_model_is_not_played_or_exported(run: Path) -> None:
    for step in (2, 6):
        flip(checkpoint(run, step) / "policy" / "model.safetensors")
    config = recipe_or_run(None, run, None, trust=True)
    exam = Exam(checkpoint="last")
    refused: list[Callable[[], object]] = [
        lambda: evaluate_model(config, str(run), exam, quiet=True),
        lambda: export(run, run.parent / "exported", step=6),
        lambda: train(toy_config(checkpoint(run, 6) / "policy"), run.parent / "next", quiet=True),
    ]
    for act in refused:
        with pytest.raises(IsentropeError, match=r"step-000006 is damaged.*without damage are those of the steps: 4 "):
            act()
    assert not (run.parent / "exported").exists()
    flip(checkpoint(run, 4) / "state.safetensors")  # is not asked for by those who play
    refuse_damaged(checkpoint(run, 4) / "policy")


def test_the_sums_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "a").write_text("a")
    (tmp_path / "in" / "b").write_text("b")
    write_sums(tmp_path)
    assert json.loads((tmp_path / "sha256.json").read_text())["files"]["a"] == {
        "bytes": 1,
        "sha256": "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb",
    }
    assert folder_damage(tmp_path) == ""
    (tmp_path / "in" / "b").write_text("c")
    assert "in/b has other content than was written (SHA-256 2e7d2c03a950…, expected 3e23e8160039…)" in folder_damage(
        tmp_path
    )
    assert folder_damage(tmp_path, "a") == ""


@pytest.mark.parametrize("name", ["../secret", "/etc/hostname", "a/../../secret"])
def test_sums_name_files_of_their_own_folder_alone(tmp_path: Path, name: str) -> None:
    """A foreign folder must not have our other files read and compared."""
    (tmp_path / "secret").write_text("x")
    folder = tmp_path / "step-000001"
    (folder / "a").mkdir(parents=True)
    entry = {"bytes": 1, "sha256": hashlib.sha256(b"x").hexdigest()}
    (folder / "sha256.json").write_text(json.dumps(with_sum({"files": {name: entry}})))
    assert "is no file of this folder" in folder_damage(folder)
