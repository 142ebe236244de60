"""Success and training time of a run, on curves made by hand."""

from __future__ import annotations

import pytest

from isentrope.analysis.success import (
    NOT_TRAINING,
    NOT_TRAINING_BY_CLAIMS,
    Window,
    best,
    converged,
    converged_over_splits,
    converged_values,
    seconds_of,
    steps_to,
    tokens_by,
)


def test_success_of_a_run() -> None:
    steps, values = (0, 40, 80, 90, 100), (0.9, 0.2, 0.6, 0.4, 0.5)
    assert best(steps, values) == 0.6  # step 0 does not count
    assert converged(steps, values, 100, Window(0.2)) == pytest.approx(0.5)  # steps 80, 90, 100
    assert converged(steps, values, 100, Window(0.1)) == pytest.approx(0.45)
    assert converged(steps[:2], values[:2], 100, Window(0.2)) is None
    assert best((0,), (0.9,)) is None


def test_steps_and_tokens_to_a_threshold() -> None:
    steps, values = (0, 10, 20, 30), (0.1, 0.5, 0.4, 0.9)
    assert steps_to(steps, values, 0.5) == 10
    assert steps_to(steps, values, 0.6) == 30
    assert steps_to(steps, values, 0.95) is None
    assert tokens_by((1, 2, 3, 4), (5.0, 6.0, 7.0, 8.0), 3) == 18.0


def test_the_part_may_begin_at_a_step() -> None:
    steps, values = (0, 40, 80, 90, 100), (0.9, 0.2, 0.6, 0.4, 0.5)
    assert converged_values(steps, values, 100, Window(from_step=90)) == [0.4, 0.5]
    assert converged_values(steps, values, 100, Window(1.0)) == [0.2, 0.6, 0.4, 0.5]  # step 0 does not count
    assert Window(from_step=90).words() == "from step 90 on"
    assert Window(0.25).words() == "in the last 25 % of the steps"


def test_the_window_of_epos_paper() -> None:
    """Step 125 of 150 on, that step included, is a sixth of the steps."""
    assert Window(1 / 6).start(150) <= 125 < 126
    assert Window(1 / 6).start(150) > 124
    assert Window(from_step=125).start(150) == 125


def test_over_splits_all_of_them_must_have_come_so_far() -> None:
    seen, unseen = ((80, 100), (0.5, 0.7)), ((80, 100), (0.3, 0.1))
    assert converged_over_splits([seen, unseen], 100, Window()) == pytest.approx(0.4)
    assert converged_over_splits([seen, ((40,), (0.5,))], 100, Window()) is None
    assert converged_over_splits([], 100, Window()) is None


def test_training_time_leaves_stages_out() -> None:
    row = {"step": 3, "seconds/rollout": 4.0, "seconds/update": 2, "seconds/evaluate": 8.0, "seconds/probe": 1.0}
    assert seconds_of(row) == 15.0
    assert seconds_of(row, NOT_TRAINING) == 7.0
    assert seconds_of(row, NOT_TRAINING_BY_CLAIMS) == 6.0
    assert seconds_of({"seconds/rollout": None}) == 0.0
