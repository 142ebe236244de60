"""The sentence that says what the engine waited for."""

from __future__ import annotations

from pathlib import Path

import pytest

from isentrope.metrics.log import record_of
from isentrope.report.figures import REASONS, idle_sentence
from isentrope.runs.log import Record
from tests.report.test_page import write_run

STAGES = {"seconds/rollout": 10.0, "seconds/score": 1.0, "seconds/update": 4.0, "seconds/store": 1.0}
PARTS = {"rollout_seconds/engine": 6.0, "rollout_seconds/tasks": 1.0, "rollout_seconds/host": 3.0,
         "rollout_seconds/tasks_idle": 3.0}  # fmt: skip


def step(**changes: float) -> Record:
    return record_of(1, STAGES | PARTS | {key.replace("__", "/"): value for key, value in changes.items()}, "train")


def test_by_hand() -> None:
    # 16 s in all: 6 sampled (38%), 5 learnt (31%), 3 host, 1 tasks, 1 stored. Half of the sampling without a task.
    told = idle_sentence([step()])
    assert "sampled 38% of the time" in told
    assert f"idle longest (31%) while {REASONS['learning']}" in told
    assert told.endswith("For 50% of the sampling no task was being played: all waited for responses.")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"rollout_seconds__tasks": 9.0, "seconds__rollout": 18.0}, "tasks"),
        ({"rollout_seconds__host": 9.0, "seconds__rollout": 16.0}, "host"),
        ({"seconds__store": 99.0}, "keeping"),
        # Played in advance: 10 s of playing, of which the loop waited for 1; 20 s of learning, 11 of them alone.
        ({"seconds__rollout": 1.0, "seconds__update": 19.0}, "longer"),
        ({"seconds__rollout": 6.0, "seconds__update": 3.0}, "host"),
    ],
)
def test_the_longest_wait_is_named(changes: dict[str, float], reason: str) -> None:
    assert REASONS[reason] in idle_sentence([step(), *[step(**changes)] * 20])


def test_older_runs_say_nothing(tmp_path: Path) -> None:
    assert idle_sentence([record_of(1, STAGES, "train")]) == idle_sentence([]) == ""
    assert idle_sentence([record_of(1, {"rollout_seconds/engine": 0.0}, "train")]) == ""
    page = write_run(tmp_path / "a", "train", [record_of(1, {"lr": 1.0}, "train")], [step()])
    assert "The engine sampled 38% of the time." in page
