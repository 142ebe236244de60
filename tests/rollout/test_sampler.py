"""Task samplers: those from outside are checked, survive a restart, and equal ours where they compute the same."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from isentrope.config.schema import Choice, RunConfig, TaskSettings, setting
from isentrope.core.errors import ConfigError, TaskError, TrainError
from isentrope.core.metric import Metric
from isentrope.core.seeding import stream
from isentrope.core.types import Episode, Metrics
from isentrope.loop.train import train
from isentrope.rollout.sampler import InTurn, TaskSampler, make_sampler, pick_instances
from isentrope.runs.episodes import read_episodes
from isentrope.runs.layout import train_path
from isentrope.runs.log import read_records
from isentrope.worlds.contract import World
from tests.builders.toy_runs import make_model, toy_config
from tests.toys import ToyWorld

HERE = "tests.rollout.test_sampler"
SHORT = ("run.steps=4", "run.eval_every=0", "run.checkpoint_every=1", "run.keep_last=4", "methods=[]")


class Small(ToyWorld):
    """Ten games to train on."""

    def size(self, split: str) -> int | None:
        return 10


@dataclass(frozen=True)
class Listed:
    first: int = setting(0, "the first index", low=0)


class Given(TaskSampler):
    """Picks what it is told to."""

    name = "given"

    def __init__(self, picked: Any) -> None:
        super().__init__()
        self.picked = picked

    def pick(self, size: int | None, count: int, step: int, attempt: int) -> Any:
        if isinstance(self.picked, Exception):
            raise self.picked
        return self.picked


class Copied(TaskSampler):
    """in_turn, written once more for a split without an end."""

    name = "copied"

    def pick(self, size: int | None, count: int, step: int, attempt: int) -> Sequence[int]:
        assert size is None
        names = (step,) if attempt == 0 else (step, attempt)
        first = int(stream(self.seed, "instances", *names).integers(2**31))
        return cast("Sequence[int]", np.arange(first, first + count))


class Counting(TaskSampler):
    """The next games after those that were played: what it picks depends on all the steps before."""

    name = "counting"
    options_class = Listed
    metrics = (Metric("counting/next", "The game that the next step begins with.", "index"),)

    def __init__(self, options: Any = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        self.next = int(self.options.first)

    def pick(self, size: int | None, count: int, step: int, attempt: int) -> Sequence[int]:
        return range(self.next, self.next + count)

    def played(self, step: int, episodes: Sequence[Episode]) -> Metrics:
        self.next += len({episode.index for episode in episodes}) * step
        return {"counting/next": float(self.next)}

    def state_dict(self) -> dict[str, Any]:
        return {"next": self.next}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.next = int(state["next"])


class Undeclared(Counting):
    name = "undeclared"
    metrics = ()


class Forgetful(Counting):
    """Gives a state that it cannot take back."""

    name = "forgetful"

    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise KeyError("next")


def sampled(kind: str, **options: Any) -> RunConfig:
    return RunConfig(task=TaskSettings(sampler=Choice(kind, options)))


# -- what may be picked


@pytest.mark.parametrize("picked", [[0, 9, 9], (3, 4, 5), np.array([1, 2, 3]), range(3), [np.int32(1), 2, True]])
def test_any_sequence_of_indices_will_do(picked: Any) -> None:
    chosen = pick_instances(Given(picked), Small(), 3, 1)
    assert [one.index for one in chosen] == [int(index) for index in picked]
    assert {one.split for one in chosen} == {"train"}


@pytest.mark.parametrize(
    ("picked", "told"),
    [
        ([0, 1, 10], r"picked \[10\]: expected 3 indices, each 0 to 9"),
        ([0, -1, -2], r"picked \[-1, -2\]: expected 3 indices"),
        ([0, 1], r"picked \[0, 1\]: expected 3 indices"),
        ([], r"picked \[\]: expected 3 indices"),
        ([0, 1, 2, 3], r"picked \[0, 1, 2, 3\]: expected 3 indices"),
    ],
)
def test_wrong_indices_are_refused(picked: list[int], told: str) -> None:
    with pytest.raises(TaskError, match=rf"task sampler given {told}"):
        pick_instances(Given(picked), Small(), 3, 1)


@pytest.mark.parametrize(
    "picked",
    [None, 7, "012", [0.5, 1.5, 2.0], [None, 1, 2], ["0", "1", "2"], [[0], [1], [2]], ValueError("no game left")],
)
def test_what_is_no_index_names_the_sampler_and_the_hook(picked: Any) -> None:
    with pytest.raises(TrainError, match=r"task sampler given, hook pick: "):
        pick_instances(Given(picked), Small(), 3, 1)


def test_a_split_without_an_end_has_no_last_index() -> None:
    assert [one.index for one in pick_instances(Given([10**9, 0]), ToyWorld(), 2, 1)] == [10**9, 0]
    with pytest.raises(TaskError, match=r"picked \[-1\]: expected 2 indices, each any number"):
        pick_instances(Given([-1, 0]), ToyWorld(), 2, 1)


# -- in turn


def indices(sampler: TaskSampler, world: World, count: int, step: int, attempt: int = 0) -> list[int]:
    return [one.index for one in pick_instances(sampler, world, count, step, attempt)]


def test_a_split_of_ten_is_gone_through_before_a_game_comes_again() -> None:
    found = [index for step in range(5) for index in indices(InTurn(seed=3), Small(), 4, step)]
    assert sorted(found[:10]) == sorted(found[10:]) == list(range(10))
    assert found[:10] != found[10:]
    assert found != [index for step in range(5) for index in indices(InTurn(seed=4), Small(), 4, step)]


def test_games_in_turn_are_those_that_earlier_versions_played() -> None:
    assert indices(InTurn(seed=0), Small(), 4, 1) == [5, 7, 4, 2]
    assert indices(InTurn(seed=0), Small(), 4, 1, attempt=1) == [5, 8, 0, 3]
    assert indices(InTurn(seed=0), ToyWorld(), 2, 1) == [1212250698, 1212250699]
    assert indices(InTurn(seed=0), ToyWorld(), 2, 1, attempt=1) == [1250392492, 1250392493]


# -- by name


def test_a_sampler_is_made_with_its_options_and_the_seed() -> None:
    made = make_sampler(RunConfig(task=TaskSettings(sampler=Choice(f"{HERE}:Counting", {"first": 5}))))
    assert isinstance(made, Counting)
    assert (made.next, made.seed) == (5, 0)
    assert isinstance(make_sampler(RunConfig()), InTurn)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (sampled(f"{HERE}:Counting", first=-1), r"task\.sampler\.first = -1: expected an integer of at least 0"),
        (sampled(f"{HERE}:Counting", frist=1), r"task\.sampler\.frist = 1: no such setting; did you mean"),
        (sampled(f"{HERE}:Small"), "expected a subclass of isentrope.TaskSampler"),
        (sampled(f"{HERE}:sampled"), "expected a subclass of isentrope.TaskSampler"),
        (sampled(f"{HERE}:Missing"), "could not load the task sampler"),
        (sampled("no_such_module_xyz:A"), "could not load the task sampler 'no_such_module_xyz:A'"),
    ],
)
def test_what_cannot_be_made_is_refused(config: RunConfig, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        make_sampler(config)


# -- in a run


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("sampler") / "model")


def played(run: Path, step: int) -> list[int]:
    return sorted({episode.index for episode in read_episodes(train_path(run, step))})


def test_a_run_with_the_same_picks_is_the_same_run(model: Path, tmp_path: Path) -> None:
    for name, sampler in (("ours", "in_turn"), ("theirs", f"{HERE}:Copied")):
        train(toy_config(model, *SHORT, f"task.sampler={sampler}"), tmp_path / name, quiet=True)
    ours, theirs = ((tmp_path / name / "metrics.jsonl").read_bytes() for name in ("ours", "theirs"))
    assert ours == theirs


def test_its_state_survives_a_restart(model: Path, tmp_path: Path) -> None:
    config = toy_config(model, *SHORT, f"task.sampler={HERE}:Counting", "task.sampler.first=3")
    train(config, tmp_path / "whole", quiet=True)
    assert [played(tmp_path / "whole", step) for step in (1, 2, 3, 4)] == [[3, 4], [5, 6], [9, 10], [15, 16]]
    records = [record for record in read_records(tmp_path / "whole" / "metrics.jsonl") if record["kind"] == "train"]
    assert [record["counting/next"] for record in records] == [5, 9, 15, 23]
    cut = Path(shutil.copytree(tmp_path / "whole", tmp_path / "cut"))
    for step in (3, 4):
        shutil.rmtree(cut / "checkpoints" / f"step-{step:06d}")
    train(config, cut, resume=True, quiet=True)
    assert (cut / "metrics.jsonl").read_bytes() == (tmp_path / "whole" / "metrics.jsonl").read_bytes()


def test_with_rollouts_ahead_its_state_survives_too(model: Path, tmp_path: Path) -> None:
    ahead = ("rollout.ahead=1", "learn.old_logprobs=recompute", "learn.mismatch=truncate")
    config = toy_config(model, *SHORT, *ahead, f"task.sampler={HERE}:Counting", "task.sampler.first=3")
    train(config, tmp_path / "whole", quiet=True)
    assert [played(tmp_path / "whole", step) for step in (1, 2, 3, 4)] == [[3, 4], [5, 6], [9, 10], [15, 16]]
    cut = Path(shutil.copytree(tmp_path / "whole", tmp_path / "cut"))
    for step in (3, 4):
        shutil.rmtree(cut / "checkpoints" / f"step-{step:06d}")
    train(config, cut, resume=True, quiet=True)
    assert (cut / "metrics.jsonl").read_bytes() == (tmp_path / "whole" / "metrics.jsonl").read_bytes()


def test_groups_played_again_ask_once_more(model: Path, tmp_path: Path) -> None:
    again = (*SHORT, "run.steps=1", "learn.resample=1", "learn.resample_by=success")
    for name, sampler in (("ours", "in_turn"), ("theirs", f"{HERE}:Copied")):
        train(toy_config(model, *again, f"task.sampler={sampler}"), tmp_path / name, quiet=True)
    ours, theirs = ((tmp_path / name / "metrics.jsonl").read_bytes() for name in ("ours", "theirs"))
    assert ours == theirs
    assert read_records(tmp_path / "ours" / "metrics.jsonl")[1]["resample/attempts"] == 2


def test_a_metric_that_is_not_declared_stops_the_run(model: Path, tmp_path: Path) -> None:
    config = toy_config(model, *SHORT, f"task.sampler={HERE}:Undeclared")
    with pytest.raises(TrainError, match=r"task sampler undeclared, hook played: gave the metric 'counting/next'"):
        train(config, tmp_path / "a", quiet=True)


def test_a_state_that_is_not_taken_back_names_the_sampler(model: Path, tmp_path: Path) -> None:
    config = toy_config(model, *SHORT, "run.steps=2", f"task.sampler={HERE}:Forgetful")
    train(config, tmp_path / "a", quiet=True)
    shutil.rmtree(tmp_path / "a" / "checkpoints" / "step-000002")
    with pytest.raises(TrainError, match=r"task sampler forgetful, hook load_state_dict: raised KeyError"):
        train(config, tmp_path / "a", resume=True, quiet=True)
