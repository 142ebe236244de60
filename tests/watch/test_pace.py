"""Tokens, episodes, seconds and pace of a run that is watched."""

from __future__ import annotations

import math
from typing import Any

import pytest

from isentrope.watch.pace import STEPS_PER_HOUR, Pace

CONFIG = {"rollout.groups": 4, "rollout.group_size": 8}


def test_tokens_and_episodes_add_up_and_dropped_groups_count() -> None:
    pace = Pace()
    first = pace.measured({"step": 1, "kind": "train", "episode/tokens": 10.0}, CONFIG)
    assert (first["axis/episodes"], first["axis/tokens"]) == (32, 320)
    second = pace.measured({"step": 2, "kind": "train", "episode/tokens": 5.0, "resample/dropped": 2.0}, CONFIG)
    assert (second["axis/episodes"], second["axis/tokens"]) == (32 + 48, 320 + 240)
    evaluation = {"step": 2, "kind": "eval", "episode/tokens": 1e9}
    assert pace.measured(evaluation, CONFIG) == evaluation
    assert "axis/episodes" not in pace.measured({"step": 3, "kind": "train"}, {})


def test_steps_that_are_not_read_of_a_large_log_count() -> None:
    pace = Pace()
    steps = [
        pace.measured({"step": step, "kind": "train", "episode/tokens": 10.0}, CONFIG, thin=True) for step in (1, 7, 13)
    ]
    assert [record["axis/episodes"] for record in steps] == [32, 32 * 7, 32 * 13]


def test_seconds_and_steps_an_hour() -> None:
    pace = Pace()
    pace.timed({"step": 0, "kind": "eval", "seconds/evaluate": 30.0})  # before the first step: no pace yet
    assert pace.per_hour is None
    found = pace.timed({"step": 1, "kind": "train", "seconds/rollout": 6.0, "seconds/update": 4.0, "cores/waited": 9.0})
    assert (found["axis/seconds"], found[STEPS_PER_HOUR]) == (40, 360)
    for step in range(2, 12):
        pace.timed({"step": step, "kind": "train", "seconds/rollout": 20.0})
    assert pace.per_hour == 180  # the last ten
    pace.forget_clock()
    assert (pace.seconds, pace.per_hour) == (0, None)


@pytest.mark.parametrize("value", [math.nan, math.inf, -5.0, "x", None, True])
def test_numbers_that_are_none_do_no_harm(value: Any) -> None:
    pace = Pace()
    record = {"step": 1, "kind": "train", "episode/tokens": value, "resample/dropped": value, "seconds/rollout": value}
    assert pace.measured(record, CONFIG)["axis/episodes"] in (32, 40)
    assert pace.timed(record)["axis/seconds"] in (0, 1)
