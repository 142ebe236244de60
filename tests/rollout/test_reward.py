"""Reward functions from outside: what they may give, and what becomes of the episode if they give something else."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from isentrope.core.errors import ConfigError
from isentrope.core.types import FAILURES, Episode
from isentrope.loop.train import train
from isentrope.rollout.reward import LARGEST_REWARD, load_reward, rewarded
from isentrope.runs.episodes import read_episodes
from isentrope.runs.layout import eval_path, train_path
from isentrope.runs.log import read_records
from tests.builders.episodes import episode
from tests.builders.toy_runs import make_model, toy_config
from tests.builders.turns import turn

HERE = "tests.rollout.test_reward"
SHORT = ("run.steps=2", "run.eval_every=0", "methods=[]")
NOT_A_FUNCTION = 3


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even that")


def three(**changes: Any) -> Episode:
    """Three turns, whose own rewards are 1, 2 and 3."""
    return episode(*(turn([1.0, 0.5], reward=float(reward)) for reward in (1, 2, 3)), **({"success": True} | changes))


def rewards(of: Episode) -> list[float]:
    return [one.reward for one in of.turns]


def given(value: object) -> Callable[[Episode], object]:
    return lambda _: value


def raising(error: BaseException) -> Callable[[Episode], object]:
    def function(_: Episode) -> object:
        raise error

    return function


# -- what may be given


@pytest.mark.parametrize("value", [2.5, np.float32(2.5), np.float64(2.5), np.array(2.5), torch.tensor(2.5)])
def test_a_number_is_the_return_and_stands_at_the_last_turn(value: Any) -> None:
    found = rewarded(three(), given(value))
    assert rewards(found) == [0.0, 0.0, 2.5]
    assert (found.ret, found.success, found.stop, found.detail) == (2.5, True, "terminated", "")


@pytest.mark.parametrize("value", [0, 7, True, np.int64(7)])
def test_whole_numbers_too(value: Any) -> None:
    assert rewards(rewarded(three(), given(value))) == [0.0, 0.0, float(value)]


@pytest.mark.parametrize("value", [[0.5, -1, 2], (0.5, -1, 2), np.array([0.5, -1, 2]), torch.tensor([0.5, -1, 2])])
def test_a_list_has_one_for_each_turn(value: Any) -> None:
    found = rewarded(three(), given(value))
    assert rewards(found) == [0.5, -1.0, 2.0]
    assert all(type(reward) is float for reward in rewards(found))


def test_the_largest_reward_is_taken() -> None:
    assert rewarded(three(), given(-LARGEST_REWARD)).ret == -1e6


def test_nothing_else_of_the_episode_changes() -> None:
    before = three(detail="as it was", goal="heat it")
    found = rewarded(before, given([9, 9, 9]))
    assert (found.success, found.goal, found.detail, found.index) == (True, "heat it", "as it was", before.index)
    for one, other in zip(found.turns, before.turns, strict=True):
        np.testing.assert_array_equal(one.response_ids, other.response_ids)
        np.testing.assert_array_equal(one.logprobs, other.logprobs)


def test_without_a_function_rewards_are_the_worlds_own() -> None:
    before = three()
    assert rewarded(before, None) is before
    assert load_reward("") is None


@pytest.mark.parametrize("stop", sorted(FAILURES))
def test_it_is_not_asked_about_an_episode_that_broke(stop: str) -> None:
    before = three(stop=stop, success=False)
    assert rewarded(before, raising(AssertionError("asked"))) is before


def test_it_is_not_asked_about_an_episode_without_turns() -> None:
    before = episode(stop="context_limit")
    assert rewarded(before, raising(AssertionError("asked"))) is before


# -- what costs the episode


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (math.nan, "reward nan"),
        (math.inf, "reward inf"),
        (-math.inf, "reward -inf"),
        (1e308, "reward 1e+308, expected a number of at most 1,000,000 in size"),
        (-1e308, "reward -1e+308"),
        pytest.param(10**400, "OverflowError", id="huge"),
        ([0, math.nan, 0], "reward nan"),
        ([0, 1e308, 0], "reward 1e+308"),
        ([1, 2], "it gave 2 rewards for 3 turns"),
        ([1, 2, 3, 4], "it gave 4 rewards for 3 turns"),
        ([], "it gave 0 rewards for 3 turns"),
        (np.zeros((3, 2)), "TypeError"),
        (None, "TypeError"),
        ("a number", "ValueError"),
        ({"reward": 1}, "ValueError"),
        ([1, "x", 3], "ValueError"),
        (1j, "TypeError"),
    ],
)
def test_something_else_is_recorded_as_a_failure(value: object, told: str) -> None:
    found = rewarded(three(), given(value))
    assert (found.stop, found.success) == ("task_error", False)
    assert found.detail.startswith("the reward function raised ")
    assert told in found.detail
    assert rewards(found) == [1.0, 2.0, 3.0]  # what the world gave: nothing of it is learnt from


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("no turns"), KeyError("score"), RecursionError(), StopIteration(), Unspeakable()]
)
def test_a_function_that_raises_costs_its_episode(error: Exception) -> None:
    found = rewarded(three(), raising(error))
    assert (found.stop, found.success) == ("task_error", False)
    assert type(error).__name__ in found.detail


def test_what_it_says_is_cut_and_can_be_stored() -> None:
    found = rewarded(three(), raising(ValueError("boom \ud800 " * 10_000)))
    assert len(found.detail) < 1000
    found.detail.encode()


def test_an_interrupt_ends_the_run() -> None:
    with pytest.raises(KeyboardInterrupt):
        rewarded(three(), raising(KeyboardInterrupt()))


# -- by name


def test_a_function_by_its_name() -> None:
    assert load_reward(f"{HERE}:by_length") is by_length


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (f"{HERE}:NOT_A_FUNCTION", "is 3, expected a function of an episode"),
        (f"{HERE}:missing", "could not load the reward function"),
        ("no_such_module_xyz:f", "could not load the reward function 'no_such_module_xyz:f'"),
        ("by_length", "no reward function named 'by_length'"),
    ],
)
def test_what_is_no_function_is_refused(name: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        load_reward(name)


# -- in a run


def by_length(episode: Episode) -> float:
    return -float(len(episode.turns))


def for_each_turn(episode: Episode) -> list[float]:
    return [0.25] * len(episode.turns)


def broken_for_odd_games(episode: Episode) -> float:
    if episode.index % 2:
        raise LookupError("no score for odd games")
    return 1.0 + episode.member


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("reward") / "model")


def trained(model: Path, out: Path, reward: str) -> tuple[list[Episode], dict[str, Any]]:
    """The episodes of its first step, and what was recorded of them."""
    train(toy_config(model, *SHORT, f"task.reward={reward}"), out, quiet=True)
    records = [record for record in read_records(out / "metrics.jsonl") if record["kind"] == "train"]
    return read_episodes(train_path(out, 1)), records[0]


def test_a_run_learns_from_the_functions_rewards(model: Path, tmp_path: Path) -> None:
    episodes, step = trained(model, tmp_path / "a", f"{HERE}:by_length")
    assert [one.ret for one in episodes] == [-float(len(one.turns)) for one in episodes]
    assert step["return/mean"] == pytest.approx(np.mean([one.ret for one in episodes]))
    games = read_episodes(eval_path(tmp_path / "a", 2, "seen"))
    assert {one.ret for one in games} == {-float(len(one.turns)) for one in games}
    episodes, _ = trained(model, tmp_path / "b", f"{HERE}:for_each_turn")
    assert {reward for one in episodes for reward in rewards(one)} == {0.25}


def test_episodes_that_it_breaks_on_are_counted_and_not_learnt_from(model: Path, tmp_path: Path) -> None:
    episodes, step = trained(model, tmp_path / "a", f"{HERE}:broken_for_odd_games")
    odd = [one for one in episodes if one.index % 2]
    assert len(odd) == 3  # of two games with three episodes each
    assert {(one.stop, one.success) for one in odd} == {("task_error", False)}
    assert {one.detail for one in odd} == {"the reward function raised LookupError: no score for odd games"}
    assert (step["failures"], step["failures/task_error"]) == (3, 3)
    even = [one for one in episodes if one not in odd]
    assert sorted(one.ret for one in even) == [1.0, 2.0, 3.0]
    assert step["update/count"] > 0
