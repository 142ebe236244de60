"""What a run says: at its start and end, when it is resumed, and when something is not right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from isentrope import __version__
from isentrope.config.load import load_config
from isentrope.config.text import config_to_toml
from isentrope.core.command import command
from isentrope.core.errors import ConfigError, TaskError
from isentrope.loop.imitate import warm_up
from isentrope.loop.messages import summary
from isentrope.loop.train import train
from isentrope.methods.aem import Aem
from isentrope.runs.episodes import read_episodes
from isentrope.runs.log import read_records
from isentrope.worlds.contract import Instance, View
from tests.builders.toy_runs import make_model, toy_config
from tests.toys import ToyTask, ToyWorld

PARAMETERS = 6736  # of the toy model: 274 tokens of width 16, a layer of 768 + 1536, three norms of 16
SHORT = ("run.steps=2", "run.eval_every=0", "eval.games=2", "methods=[]", "learn.mini_batches=1")


class BrokenTask(ToyTask):
    def start(self, instance: Instance) -> View:
        raise RuntimeError("the shop is closed")


class BrokenWorld(ToyWorld):
    """No game of it can be started."""

    def __init__(self) -> None:
        super().__init__()

    def open(self) -> ToyTask:
        return BrokenTask(self._options)


class BrokenInTrainingTask(BrokenTask):
    def start(self, instance: Instance) -> View:
        return super().start(instance) if instance.split == "train" else ToyTask.start(self, instance)


class BrokenInTrainingWorld(BrokenWorld):
    """No training game of it can be started."""

    def open(self) -> ToyTask:
        return BrokenInTrainingTask(self._options)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"))


def test_a_run_says_what_it_does_and_where_the_page_is(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a"
    first = train(toy_config(model, *SHORT, "methods=['epo','aem']"), out)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"train: {model} (")
    assert "cpu) in tests.toys:ToyWorld by grpo with epo, aem; 2 steps of 2 × 3 episodes" in lines[0]
    assert lines[0].endswith(f"folder {out}")
    assert [line.split()[1] for line in lines if line.startswith("train ")] == ["1/2", "2/2"]
    assert any("entropy" in line and line.endswith("left") for line in lines)
    assert lines[-1] == f"done: {out}; its page: {command('report', out)}"
    before = (out / "metrics.jsonl").read_bytes()
    assert train(toy_config(model, *SHORT, "methods=['epo','aem']"), out, resume=True) == first
    (said,) = capsys.readouterr().out.splitlines()
    assert said.startswith(f"{out} is finished: all 2 steps are done. Last evaluation, step 2: seen ")
    assert said.endswith(f"isentrope report {out}")
    assert (out / "metrics.jsonl").read_bytes() == before


def test_resuming_what_is_not_there_says_so(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(toy_config(model, *SHORT), tmp_path / "a", resume=True)
    assert f"nothing to resume at {tmp_path / 'a'}: beginning a new run" in capsys.readouterr().out
    train(toy_config(model, *SHORT), tmp_path / "b")
    assert "resume" not in capsys.readouterr().out


def test_resuming_from_a_checkpoint_names_it(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = toy_config(model, *SHORT, "run.checkpoint_every=1")
    monkeypatch.setattr("isentrope.loop.train.say_end", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train(config, tmp_path / "a", quiet=True)
    for name in ("step-000002",):
        for path in sorted((tmp_path / "a/checkpoints" / name).rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        (tmp_path / "a/checkpoints" / name).rmdir()
    monkeypatch.undo()
    train(config, tmp_path / "a", resume=True)
    said = capsys.readouterr().out
    assert f"{tmp_path / 'a'}: going on from step-000001" in said
    assert "train 2/2" in said


def test_imitation_says_whose_games_and_ends_alike(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = toy_config(model, "sft.epochs=1")
    first = warm_up(config, tmp_path / "a")
    said = capsys.readouterr().out
    assert "imitates an expert's games" in said
    assert said.splitlines()[-1] == f"done: {tmp_path / 'a'}; its page: {command('report', tmp_path / 'a')}"
    assert warm_up(config, tmp_path / "a", resume=True) == first
    assert "is finished: all 2 steps are done" in capsys.readouterr().out


def test_own_games_count_how_many_were_solved(model: Path, tmp_path: Path) -> None:
    easy = ("task.options={goal=1}", "sft.lr=2e-2", "sft.batch_games=2", "run.eval_every=0", "agent.max_response=12")
    warm_up(toy_config(model, *easy, "sft.epochs=15"), tmp_path / "warm", quiet=True)
    own = ("sft.source=own", "sft.games=5", "sft.samples=4", "sft.epochs=2", "rollout.temperature=1.5")
    warm_up(toy_config(tmp_path / "warm", *easy, *own), tmp_path / "a", quiet=True)
    kept = len(read_episodes(tmp_path / "a/episodes/own.parquet"))
    first, *others = (record for record in read_records(tmp_path / "a/metrics.jsonl") if record["kind"] == "sft")
    assert 0 < kept < 20
    assert first["rft/solved"] == kept / 20
    assert others
    assert all("rft/solved" not in record for record in others)


@pytest.mark.parametrize("run", [train, warm_up])
def test_the_pocket_model_is_not_given_the_full_prompt(run: object, tmp_path: Path) -> None:
    assert callable(run)
    with pytest.raises(ConfigError, match=r"agent\.prompt=brief.*policy\.model=smollm2"):
        run(load_config(None, ["agent.prompt=full"]), tmp_path / "a", quiet=True)
    assert not (tmp_path / "a").exists()


def test_a_policy_that_cannot_answer_is_told_apart(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(toy_config(model, *SHORT, "agent.max_response=3"), tmp_path / "a")
    said = capsys.readouterr().out
    assert said.count("not one response of the first rollout was a valid action") == 1
    assert "isentrope sft" in said
    records = read_records(tmp_path / "a/metrics.jsonl")
    assert [r["valid_ratio"] for r in records if r["kind"] == "train"] == [0.0, 0.0]


def test_a_world_whose_every_task_fails_stops_the_run(model: Path, tmp_path: Path) -> None:
    broken = "task.world=tests.loop.test_notices:BrokenInTrainingWorld"
    with pytest.raises(TaskError, match=r"all 6 episodes failed.*train game \d+.*task_error.*the shop is closed"):
        train(toy_config(model, *SHORT, broken), tmp_path / "a", quiet=True)
    last = read_records(tmp_path / "a/metrics.jsonl")[-1]
    assert (last["kind"], last["step"], last["failures"]) == ("train", 1, 6.0)
    with pytest.raises(TaskError, match="all 24 episodes failed"):
        warm_up(toy_config(model, broken, "sft.source=own"), tmp_path / "b", quiet=True)


def test_an_evaluation_whose_every_game_fails_stops_the_run(model: Path, tmp_path: Path) -> None:
    """It is no success of 0 %, which the log and the tables would take it for."""
    broken = "task.world=tests.loop.test_notices:BrokenWorld"
    with pytest.raises(TaskError, match=r"all 2 episodes failed, so there is nothing to measure.*seen game 0.*closed"):
        train(toy_config(model, *SHORT, broken), tmp_path / "a", quiet=True)
    assert len(read_episodes(tmp_path / "a/episodes/eval-000000-seen.parquet")) == 2  # to look at
    with pytest.raises(TaskError, match=r"ended as clock.*episode_seconds.*rollout\.batch"):
        train(toy_config(model, *SHORT, "task.episode_seconds=1e-9"), tmp_path / "b", quiet=True)


def test_games_lost_to_a_fault_are_said() -> None:
    metrics = {"eval/seen/success": 0.5, "eval/seen/low": 0.4, "eval/seen/high": 0.6}
    assert summary(metrics, ["seen", "unseen"]) == "seen 50.0 % [40, 60]"
    assert summary({**metrics, "eval/seen/failures": 3.0}, ["seen"]) == "seen 50.0 % [40, 60] (3 lost to a fault)"


def test_a_run_folder_holds_what_was_recorded(model: Path, tmp_path: Path) -> None:
    train(toy_config(model, *SHORT, "methods=['aem']"), tmp_path / "a", quiet=True)
    written = (tmp_path / "a/config.toml").read_text()
    assert "strength = 1.0" in written
    assert "goal = 3" in written
    record = json.loads((tmp_path / "a/run.json").read_text())
    assert record.pop("begun").endswith("Z")  # when, which rules of claims may be older or younger than
    assert record.pop("start")  # what of: tests/loop/test_start.py
    assert len(record.pop("starts")) == 1  # how: tests/runs/test_origin.py
    clock = [json.loads(line) for line in (tmp_path / "a/timings.jsonl").read_text().splitlines()]
    if Path("/proc/self/status").exists():
        assert 0.05 < clock[1]["memory/peak"] <= clock[2]["memory/peak"] < 1000  # GiB; the first line is an evaluation
    assert record.pop("sha256")  # of the rest: tests/runs/test_damage.py
    declared = {metric.key: [metric.unit, metric.meaning] for metric in Aem.metrics}
    assert record == {"kind": "train", "version": __version__, "parameters": PARAMETERS, "metrics": declared}
    # a folder of an earlier version, without the options, is still taken up
    (tmp_path / "a/config.toml").write_text(config_to_toml(toy_config(model, *SHORT, "methods=['aem']")))
    train(toy_config(model, *SHORT, "methods=['aem']"), tmp_path / "a", resume=True, quiet=True)
