"""Run folders: nothing overwritten, one writer at a time, clear words when the disk says no."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import safetensors.torch
import torch
from safetensors import SafetensorError

from isentrope.config.load import load_config
from isentrope.core.errors import IsentropeError, RunError, TaskError
from isentrope.loop.imitate import warm_up
from isentrope.loop.train import train
from isentrope.methods.options import with_options
from isentrope.models.load import load_folder
from isentrope.models.sources.find import find_folder
from isentrope.runs.checkpoints import CheckpointRetention, best_checkpoint, join_tensors, split_tensors
from isentrope.runs.episodes import read_episodes
from isentrope.runs.writer import RunFolder, differences
from tests.builders.toy_runs import make_model, toy_config


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"))


def run(model: Path, out: Path, *changes: str, resume: bool = False) -> dict[str, float]:
    return train(toy_config(model, *changes), out, resume=resume, quiet=True)


def test_a_run_folder_has_everything_and_reproduces_the_run(model: Path, tmp_path: Path) -> None:
    final = run(model, tmp_path / "a", "run.steps=2")
    names = {path.name for path in (tmp_path / "a").iterdir()}
    assert {
        "config.toml",
        "metrics.jsonl",
        "timings.jsonl",
        "episodes",
        "checkpoints",
        "tensorboard",
        "tokens.json",
    } <= names
    assert 0 <= final["eval/seen/success"] <= 1
    episodes = read_episodes(tmp_path / "a" / "episodes" / "step-000002.parquet")
    assert len(episodes) == 6
    assert all(turn.response_ids.size for episode in episodes for turn in episode.turns)
    train(load_config(tmp_path / "a" / "config.toml", []), tmp_path / "b", quiet=True)
    assert (tmp_path / "a" / "metrics.jsonl").read_bytes() == (tmp_path / "b" / "metrics.jsonl").read_bytes()
    assert find_folder(str(tmp_path / "a")).parent.name == "step-000002"


def test_task_workers_give_the_same_run(model: Path, tmp_path: Path) -> None:
    run(model, tmp_path / "a", "run.steps=2")
    run(model, tmp_path / "b", "run.steps=2", "task.workers=2")
    assert (tmp_path / "a" / "metrics.jsonl").read_bytes() == (tmp_path / "b" / "metrics.jsonl").read_bytes()


def test_window_context_and_other_forms_run_too(model: Path, tmp_path: Path) -> None:
    for i, order in enumerate(("act_think", "act")):
        out = tmp_path / str(i)
        run(model, out, "run.steps=1", "agent.context=window", f"agent.order={order}", "agent.max_context=900")
        record = json.loads((out / "metrics.jsonl").read_text().splitlines()[1])
        assert record["context/tokens"] > 0
        assert "loss/total" in record


def test_a_folder_with_a_run_is_not_overwritten(model: Path, tmp_path: Path) -> None:
    run(model, tmp_path / "a", "run.steps=1")
    before = (tmp_path / "a" / "metrics.jsonl").read_bytes()
    with pytest.raises(RunError, match="already holds a run; continue it with --resume"):
        run(model, tmp_path / "a", "run.steps=1")
    with pytest.raises(RunError, match=r"other settings: learn\.lr was 0\.001, now 0\.5"):
        run(model, tmp_path / "a", "run.steps=1", "learn.lr=0.5", resume=True)
    assert (tmp_path / "a" / "metrics.jsonl").read_bytes() == before
    (tmp_path / "a" / "metrics.jsonl").unlink()
    with pytest.raises(RunError, match="already holds a run"):  # its checkpoint is worth keeping
        run(model, tmp_path / "a", "run.steps=1")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.tex").write_text("x")
    with pytest.raises(RunError, match=r"not empty \(it has thesis.tex\)"):
        run(model, tmp_path / "b")


def test_a_start_that_failed_does_not_keep_its_folder(model: Path, tmp_path: Path) -> None:
    with pytest.raises(IsentropeError, match="had room"):
        run(model, tmp_path / "a", "run.steps=1", "agent.max_context=64")
    assert (tmp_path / "a" / "events.jsonl").exists()
    run(model, tmp_path / "a", "run.steps=1")
    events = [json.loads(line) for line in (tmp_path / "a" / "events.jsonl").read_text().splitlines()]
    assert "stop" not in {event["kind"] for event in events}  # it warns of answers that are no actions
    assert load_config(tmp_path / "a" / "config.toml", []).agent.max_context != 64


def test_resuming_a_finished_run_changes_nothing(model: Path, tmp_path: Path) -> None:
    run(model, tmp_path / "a", "run.steps=2")
    before = (tmp_path / "a" / "metrics.jsonl").read_bytes()
    run(model, tmp_path / "a", "run.steps=2", resume=True)
    assert (tmp_path / "a" / "metrics.jsonl").read_bytes() == before


def test_a_second_run_in_the_same_folder_is_refused(model: Path, tmp_path: Path) -> None:
    config = toy_config(model)
    with (
        RunFolder(tmp_path / "a", config, resume=False, complete=with_options),
        pytest.raises(RunError, match=f"process {os.getpid()}"),
    ):
        RunFolder(tmp_path / "a", config, resume=True, complete=with_options)
    RunFolder(tmp_path / "a", config, resume=True, complete=with_options).close()


def test_a_folder_that_cannot_be_made(model: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="could not write"):
        run(model, tmp_path / "file" / "run")


def test_a_full_disk_in_a_checkpoint_leaves_the_older_ones_and_can_be_resumed(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, calls = safetensors.torch.save_file, 0

    def full(tensors: dict[str, torch.Tensor], path: Path) -> None:
        nonlocal calls
        calls += 1
        original(tensors, path)
        if calls == 2:
            path.write_bytes(path.read_bytes()[:100])
            raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(safetensors.torch, "save_file", full)
    with pytest.raises(RunError, match=r"No space left on device.*; free some space, then continue with --resume"):
        run(model, tmp_path / "a")
    assert [p.name for p in sorted((tmp_path / "a" / "checkpoints").glob("*-*"))] == ["step-000002"]
    run(model, tmp_path / "a", resume=True)
    monkeypatch.undo()
    run(model, tmp_path / "b")
    assert (tmp_path / "a" / "metrics.jsonl").read_bytes() == (tmp_path / "b" / "metrics.jsonl").read_bytes()


def test_only_the_newest_and_the_best_checkpoints_stay(model: Path, tmp_path: Path) -> None:
    run(model, tmp_path / "a", "run.checkpoint_every=1", "run.eval_every=0", "run.keep_last=2")
    names = sorted(p.name for p in (tmp_path / "a" / "checkpoints").glob("step-*"))
    assert names == ["step-000005", "step-000006"]


def test_a_damaged_checkpoint_is_named(model: Path, tmp_path: Path) -> None:
    run(model, tmp_path / "a", "run.steps=2")
    (tmp_path / "a" / "checkpoints" / "step-000002" / "state.json").write_text("{")
    with pytest.raises(RunError, match=r"no checkpoint is without damage \(step-000002: state.json has 1 bytes"):
        run(model, tmp_path / "a", "run.steps=2", resume=True)


def test_warm_up_learns_and_can_be_trained_from(model: Path, tmp_path: Path) -> None:
    final = warm_up(toy_config(model, "sft.epochs=40", "sft.lr=1e-2", "run.eval_every=0"), tmp_path / "w", quiet=True)
    losses = [json.loads(line)["sft/loss"] for line in (tmp_path / "w" / "metrics.jsonl").open() if "sft/loss" in line]
    assert losses[-1] < 0.2 * losses[0]
    assert final["eval/seen/success"] == 1.0  # the toy is solved by always doing the same
    run(tmp_path / "w", tmp_path / "r", "run.steps=1")
    first = json.loads((tmp_path / "r" / "metrics.jsonl").read_text().splitlines()[0])
    assert first["eval/seen/success"] == 1.0


def test_a_warm_up_without_a_single_solved_game_says_why(model: Path, tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"none of the expert.s 6 games.*6 are not solved in task\.max_turns = 2"):
        warm_up(toy_config(model, "task.max_turns=2"), tmp_path / "w", quiet=True)


def test_tensors_survive_the_split() -> None:
    state = {"a": [1, {"b": torch.arange(3)}], 7: torch.ones(2), "none": None}
    tensors, rest = split_tensors(state)
    again = join_tensors(json.loads(json.dumps(rest)), tensors)
    assert torch.equal(again["a"][1]["b"], torch.arange(3))
    assert torch.equal(again[7], torch.ones(2))
    assert again["none"] is None


def test_a_checkpoint_copies_no_tensor_that_is_in_main_memory_alone() -> None:
    """AdamW's moments on the host may fill half of it. Two that share memory would be refused as one."""
    whole = torch.arange(6.0)
    tensors, _ = split_tensors({"a": whole, "b": whole[:3], "c": torch.ones(2)}, copies=False)
    assert tensors["/a"].data_ptr() == whole.data_ptr()
    assert tensors["/b"].data_ptr() != whole.data_ptr()
    assert torch.equal(tensors["/b"], whole[:3])
    assert split_tensors({"a": whole})[0]["/a"].data_ptr() != whole.data_ptr()


def test_differences_are_told_one_by_one(model: Path) -> None:
    told = differences(toy_config(model), toy_config(model, "run.seed=3", "run.device=cpu", "methods=[]"))
    assert told == ["methods was ['entropy_bonus'], now []", "run.seed was 0, now 3"]


def test_the_best_checkpoint_is_the_one_with_the_highest_success(model: Path, tmp_path: Path) -> None:
    policy = load_folder(model, torch.device("cpu"), "float32")
    retention = CheckpointRetention(tmp_path, toy_config(model, "run.keep_last=1"))
    for step, success in ((1, 0.4), (2, 0.9), (3, 0.6), (4, None)):
        retention.save(step, policy, {}, {} if success is None else {"eval/seen/success": success})
    assert best_checkpoint(tmp_path) == ("step-000002", 0.9)
    assert sorted(p.name for p in tmp_path.glob("step-*")) == ["step-000002", "step-000004"]
