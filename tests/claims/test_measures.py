"""Numbers of one run, worked out by hand or by plain loops."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isentrope.claims.eruptions import (
    eruptions,
    erupts_repeatedly,
    gap_before,
    gap_change,
    into_the_peak,
    largest_amplitude,
    what_stays,
)
from isentrope.claims.measures import (
    after_start,
    change,
    converged_success,
    early_change,
    log_deviation,
    over,
    positive_share,
    seconds_per_token,
    share_of_time,
)
from isentrope.study.read import StudyRun
from tests.claims.made import hills, made_run

COUNT = [float(step) for step in range(1, 11)]  # 1, 2, ..., 10 at steps 1 to 10


def counted(**more: list[float | None]) -> StudyRun:
    return made_run(0, steps=10, train={"x": COUNT, **more})


def test_windows_have_both_their_ends() -> None:
    assert over(counted(), "x") == 5.5
    assert over(counted(), "x", 0.0, 0.2) == 1.5
    assert over(counted(), "x", 0.8, 1.0) == 9.0  # steps 8, 9 and 10
    assert over(counted(), "y") is None


@given(st.integers(1, 60), st.floats(0, 1), st.floats(0, 1))
def test_windows_as_a_loop_finds_them(steps: int, a: float, b: float) -> None:
    begin, end = min(a, b), max(a, b)
    run = made_run(0, steps=steps, train={"x": [float(step) for step in range(1, steps + 1)]})
    inside = [step for step in range(1, steps + 1) if begin * steps - 1e-9 <= step <= end * steps + 1e-9]
    expected = statistics.fmean(inside) if inside else None
    assert over(run, "x", begin, end) == (None if expected is None else pytest.approx(expected))


def test_succ_is_over_the_last_fifth_and_over_splits() -> None:
    rows = [
        {
            "step": step,
            "kind": "eval",
            "eval/seen/success": step / 10,
            "eval/unseen/success": 0.2,
            "eval/seen/success/pick": 9,
        }
        for step in (0, 5, 8, 10)
    ]
    run = StudyRun("c", {}, 0, "done", config={"run.steps": 10}, evals=tuple(rows))
    assert converged_success(run) == pytest.approx((0.9 + 0.2) / 2)
    assert converged_success(counted()) is None
    late = StudyRun("c", {}, 0, "done", config={"run.steps": 10}, evals=tuple(rows[:2]))
    assert converged_success(late) is None  # not evaluated where it counts


def test_probes_after_the_first_step() -> None:
    values = [9.0, None, 0.2, -0.1, None, 0.3, None, None, None, 0.0]
    run = counted(probe=values)
    assert after_start(run, "probe", 4) == pytest.approx(0.1)
    assert positive_share(run, "probe", 4) == 0.5
    assert after_start(run, "probe", 5) is None
    assert positive_share(run, "probe", 5) is None


def test_deviation_without_the_beginning() -> None:
    run = made_run(0, steps=10, train={"x": [100.0] + [1.0, 3.0] * 4 + [2.0]})
    # from step 2 on, which the share 0.15 begins at: 1 3 1 3 1 3 1 3 2, whose variance is 8/9
    assert log_deviation(run, "x", 0.15) == pytest.approx(math.log(8 / 9) / 2)
    assert log_deviation(made_run(0, steps=10, train={"x": 1.0}), "x", 0.1) is None


def test_changes() -> None:
    # steps 1 to 3: mean 2; steps 7 and 8: mean 7.5
    assert change(counted(), "x", 3, 8, 2) == pytest.approx(2.75)
    assert change(counted(), "x", 3, 8, 2, "no") == pytest.approx(5.5)
    assert change(counted(), "y", 3, 8, 2) is None
    # the first fifth of 10 steps is too short: up to step 8, whose last five steps are 4 to 8, mean 6
    assert early_change(counted(), "x", 0.2, "no") == pytest.approx(4.0)


def test_what_the_clock_says() -> None:
    stages = {"seconds/rollout": 6.0, "seconds/update": 3.0, "seconds/shape": 1.0, "seconds/evaluate": 50.0}
    run = made_run(0, steps=4, timings={**stages, "seconds/probe": 5.0, "tokens_per_second/update": 500.0})
    assert share_of_time(run, "seconds/shape") == pytest.approx(0.1)
    assert share_of_time(run, "seconds/other") is None
    assert seconds_per_token(run) == pytest.approx(1 / 500)


ONSETS = (100, 200)


def erupting(height: float = 0.8, **more: list[float | None]) -> StudyRun:
    return made_run(0, steps=300, train={"entropy/token": hills(300, ONSETS, height), **more})


def test_hills_are_found_where_they_are() -> None:
    found = eruptions(erupting())
    assert [rise.onset for rise in found] == [pytest.approx(onset, abs=2) for onset in ONSETS]
    assert [rise.peak for rise in found] == [pytest.approx(onset + 11, abs=2) for onset in ONSETS]
    assert all(rise.back is not None for rise in found)
    assert erupts_repeatedly(erupting()) == 1.0
    assert erupts_repeatedly(made_run(0, steps=300, train={"entropy/token": hills(300, (100,), 0.8)})) == 0.0
    assert erupts_repeatedly(made_run(0)) is None


def test_amplitude_over_the_start() -> None:
    start = statistics.fmean(hills(300, ONSETS, 0.8)[:5])
    assert largest_amplitude(erupting()) == pytest.approx(0.8 / start, rel=0.12)  # of medians of three: a little less
    assert largest_amplitude(erupting(0.0)) == 0.0
    assert largest_amplitude(made_run(0)) is None


def stepwise(before: float, inside: float, after: float) -> list[float | None]:
    """One value up to the first onset, one in eruptions, one after each."""
    told: list[float | None] = []
    for step in range(1, 301):
        erupts = any(onset <= step < onset + 18 for onset in ONSETS)
        told.append(inside if erupts else before if step < ONSETS[0] else after)
    return told


def test_into_the_peak_and_what_stays() -> None:
    run = erupting(m=stepwise(1.0, 5.0, 2.0))
    # from 1 to 5 and from 2 to 5; afterwards 2 instead of 1, then 2 instead of 2
    assert into_the_peak(run, "m") == pytest.approx(3.5)
    assert what_stays(run, "m") == pytest.approx(0.5)
    assert into_the_peak(run, "other") is None
    assert into_the_peak(erupting(0.0, m=stepwise(1.0, 5.0, 2.0)), "m") is None  # nothing erupts


def test_gaps_at_the_nearest_probes() -> None:
    negative: list[float | None] = [None] * 300
    positive: list[float | None] = [None] * 300
    for step, high, low in ((80, 9.0, 1.0), (95, 3.0, 1.0), (130, 1.0, 1.0), (195, 2.0, 2.0), (230, 1.0, 3.0)):
        negative[step - 1], positive[step - 1] = high, low
    run = erupting(n=negative, p=positive)
    # step 80 is too far away; before the eruptions 0.5 and 0, after them 0 and -0.5
    assert gap_before(run, "n", "p") == pytest.approx(0.25)
    assert gap_change(run, "n", "p") == pytest.approx(0.5)
    assert gap_before(run, "n", "other") is None
