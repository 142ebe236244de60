"""What a run folder lets happen to it: no other command's run goes on in it, and one that never began may begin."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from isentrope.config.schema import LearnSettings
from isentrope.core.errors import ConfigError, RunError, TaskError, TrainError
from isentrope.learning.learner import Learner
from isentrope.learning.optimiser import make_optimiser
from isentrope.learning.sft_step import imitate
from isentrope.loop.imitate import warm_up
from isentrope.loop.train import train
from isentrope.runs.checkpoints import latest_checkpoint, load_state
from isentrope.runs.episodes import read_episodes
from isentrope.runs.log import read_records
from tests.builders.episodes import make_episodes
from tests.builders.toy_runs import make_model, toy_config
from tests.models.helpers import small_policy


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"))


def test_another_commands_folder_is_refused_and_left_alone(model: Path, tmp_path: Path) -> None:
    config = toy_config(model, "sft.epochs=1")
    warm_up(config, tmp_path / "a", quiet=True)
    before = (tmp_path / "a/metrics.jsonl").read_bytes()
    with pytest.raises(RunError, match="holds a run of `isentrope sft`, not of `isentrope train`"):
        train(config, tmp_path / "a", resume=True, quiet=True)
    with pytest.raises(RunError, match="not of `isentrope rft`"):
        warm_up(toy_config(model, "sft.epochs=1", "sft.source=own"), tmp_path / "a", resume=True, quiet=True)
    assert (tmp_path / "a/metrics.jsonl").read_bytes() == before


def test_a_run_that_failed_before_it_began_may_begin_anew(model: Path, tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="nothing to imitate"):
        warm_up(toy_config(model, "sft.source=own", "task.max_turns=1"), tmp_path / "a", quiet=True)
    warm_up(toy_config(model, "sft.epochs=1"), tmp_path / "a", quiet=True)
    with pytest.raises(RunError, match="already holds a run"):
        warm_up(toy_config(model, "sft.epochs=1"), tmp_path / "a", quiet=True)


def test_a_fault_in_a_methods_settings_leaves_no_folder(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean epo"):
        warm_up(toy_config(model, "methods=['epoo']"), tmp_path / "a", quiet=True)
    assert not (tmp_path / "a").exists()


def test_the_step_whose_update_fails_is_kept(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Learner, credited: object) -> None:
        raise TrainError("not finite")

    monkeypatch.setattr(Learner, "update", fail)
    with pytest.raises(TrainError):
        train(toy_config(model), tmp_path / "a", quiet=True)
    assert len(read_episodes(tmp_path / "a/episodes/step-000001.parquet")) == 6
    last = read_records(tmp_path / "a/metrics.jsonl")[-1]
    assert (last["step"], last["kind"]) == (1, "train")
    assert "return/mean" in last


def test_the_learning_rate_falls_although_all_groups_are_dropped(model: Path, tmp_path: Path) -> None:
    # Random weights solve nothing: all groups are equal by success, no step has an update, and the schedule goes on.
    train(toy_config(model, "learn.resample=1", "learn.resample_by=success"), tmp_path / "a", quiet=True)
    steps = [r for r in read_records(tmp_path / "a/metrics.jsonl") if r["kind"] == "train"]
    assert [step["update/count"] for step in steps] == [0.0] * 6
    assert [step["advantage/zero_groups"] for step in steps] == [1.0] * 6
    assert all("advantage/mean" not in step for step in steps)
    last = latest_checkpoint(tmp_path / "a/checkpoints")
    assert last is not None
    assert load_state(last)["learner"]["optimiser"]["updates"] == 12  # two for each of the six steps
    assert read_episodes(tmp_path / "a/episodes/step-000006.parquet") == []
    assert len(read_episodes(tmp_path / "a/episodes/dropped-000006.parquet")) == 12


def test_imitation_is_plain_cross_entropy_whatever_the_temperature_was() -> None:
    episodes = make_episodes(3)
    assert any((turn.temperatures != 1).any() for episode in episodes for turn in episode.turns)
    plain = [
        replace(e, turns=tuple(replace(t, temperatures=np.ones_like(t.temperatures)) for t in e.turns))
        for e in episodes
    ]
    losses = [imitate(policy, make_optimiser(policy, LearnSettings()), games, 1e-3, 4096)
              for policy, games in ((small_policy(), episodes), (small_policy(), plain))]  # fmt: skip
    assert losses[0] == losses[1]
