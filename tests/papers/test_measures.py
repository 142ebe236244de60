"""Numbers of one run, worked out by hand or by plain loops."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isentrope.papers.measures import (
    after_start,
    change,
    converged_success,
    early_change,
    early_log_change,
    eruptions,
    erupts,
    erupts_repeatedly,
    first_values,
    gap_before,
    gap_change,
    into_the_peak,
    largest_amplitude,
    log_change,
    log_deviation,
    log_height,
    log_mean,
    log_seconds_per_token,
    over,
    positive_share,
    rise,
    rise_while_measured,
    seconds_per_token,
    share_of_time,
    splits_of,
    success_between,
    success_by_kind,
    what_stays,
)
from isentrope.papers.registry import claim_of
from isentrope.study.read import StudyRun
from tests.papers.made import hills, made_run

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


@pytest.mark.parametrize(("steps", "end"), [(10, 8), (100, 20), (150, 30), (400, 30)])
def test_the_opening_is_a_fifth_of_the_steps_and_thirty_at_most(steps: int, end: int) -> None:
    run = made_run(0, steps=steps, train={"x": [float(step) for step in range(1, steps + 1)]})
    # the last five steps up to `end` have mean end - 2, the first three 2
    assert early_change(run, "x", 0.2, "no", 30) == pytest.approx(end - 2 - 2)
    assert early_log_change(run, "x", 0.2, 30) == pytest.approx(math.log((end - 2) / 2))
    assert early_change(run, "x", 0.2, "no") == pytest.approx(max(8, 0.2 * steps) - 4)  # without a bound
    for part in claim_of("S1").parts:
        assert dict(part.measure.options)["most"] == 30
        assert dict(part.measure.options)["share"] == 0.2


def test_what_the_clock_says() -> None:
    stages = {"seconds/rollout": 6.0, "seconds/update": 3.0, "seconds/shape": 1.0, "seconds/evaluate": 50.0}
    run = made_run(0, steps=4, timings={**stages, "seconds/probe": 5.0, "tokens_per_second/update": 500.0})
    assert share_of_time(run, "seconds/shape") == pytest.approx(0.1)
    assert share_of_time(run, "seconds/other") is None
    assert seconds_per_token(run) == pytest.approx(1 / 500)


def test_logarithms_of_means_and_changes() -> None:
    assert log_mean(counted(), "x", 0.8, 1.0) == pytest.approx(math.log(9))  # of the mean, not the mean of logarithms
    assert log_change(counted(), "x", 3, 8, 2) == pytest.approx(math.log(7.5 / 2))
    assert early_log_change(counted(), "x", 0.2, math.inf) == pytest.approx(math.log(6 / 2))
    below = made_run(0, steps=10, train={"x": -1.0, "zero": 0.0})
    for key in ("x", "zero", "y"):
        assert log_mean(below, key, 0.0, 1.0) is None
        assert log_change(below, key, 3, 8, 2) is None
    falls = made_run(0, steps=10, train={"x": [1.0] * 5 + [-1.0] * 5})
    assert log_change(falls, "x", 3, 10, 2) is None  # to below 0: no factor
    run = made_run(0, steps=4, timings={"tokens_per_second/update": 500.0})
    assert log_seconds_per_token(run) == pytest.approx(-math.log(500))
    assert log_seconds_per_token(made_run(0)) is None


@given(st.lists(st.floats(0.1, 10), min_size=20, max_size=20))
def test_a_logarithm_of_a_change_is_that_of_the_ratio(values: list[float]) -> None:
    run = made_run(0, steps=20, train={"x": values})
    ratio = statistics.fmean(values[10:15]) / statistics.fmean(values[:3])
    assert log_change(run, "x", 3, 15, 5) == pytest.approx(math.log(ratio))


def test_first_values() -> None:
    assert first_values(counted(), "x", 3) == 2.0
    assert first_values(counted(), "x", 1) == 1.0
    assert first_values(counted(), "y", 3) is None
    late = made_run(0, steps=10, train={"x": [None, None, None, *COUNT[3:]]})
    assert first_values(late, "x", 3) is None


def test_rise_is_the_last_fifth_less_the_first() -> None:
    # of the whole run: steps 8 to 10 have mean 9, steps 1 and 2 have 1.5
    assert rise(counted(), "x", 0.0, 1.0) == pytest.approx(7.5)
    # of the first half: steps 4 and 5 have mean 4.5, step 1 has 1
    assert rise(counted(), "x", 0.0, 0.5) == pytest.approx(3.5)
    assert rise(made_run(0, steps=10, train={"x": 0.3}), "x", 0.0, 0.5) == pytest.approx(0.0)
    assert rise(counted(), "y", 0.0, 0.5) is None


def test_rise_while_measured_is_the_slope_times_a_fifth() -> None:
    assert rise_while_measured(counted(), "x") == pytest.approx(2.0)  # 1 a step, over 2 of 10 steps
    flat = made_run(0, steps=10, train={"x": [*COUNT[:5], *[5.0] * 5]})
    assert rise_while_measured(flat, "x") == pytest.approx(0.0)  # the last two fifths are steps 6 to 10
    # steps 6, 8 and 10 with 0, 3 and 0: no slope; with 0, 0 and 4: a slope of 1
    for values, wanted in (((0.0, 3.0, 0.0), 0.0), ((0.0, 0.0, 4.0), 2.0)):
        told = [None] * 5 + [values[0], None, values[1], None, values[2]]
        assert rise_while_measured(made_run(0, steps=10, train={"x": told}), "x") == pytest.approx(wanted, abs=1e-12)
    two = made_run(0, steps=10, train={"x": [None] * 8 + [1.0, 2.0]})
    assert rise_while_measured(two, "x") is None  # two numbers are no line
    assert rise_while_measured(counted(), "y") is None


@given(st.lists(st.floats(-1, 1), min_size=30, max_size=30))
def test_the_slope_is_that_of_least_squares(values: list[float]) -> None:
    run = made_run(0, steps=30, train={"x": values})
    steps = range(18, 31)  # both ends of the last two fifths
    slope, _ = statistics.linear_regression(steps, values[17:])
    assert rise_while_measured(run, "x") == pytest.approx(6 * slope, abs=1e-9)


def evaluated(*rows: dict[str, float]) -> StudyRun:
    told = tuple({"kind": "eval", **row} for row in rows)
    return StudyRun("c", {}, 0, "done", config={"run.steps": 10}, evals=told)


def test_success_between_shares_of_the_steps() -> None:
    told = {0: 0.1, 3: 0.2, 5: 0.4, 10: 0.9}
    run = evaluated(
        *({"step": step, "eval/seen/success": one, "eval/unseen/success": one + 0.1} for step, one in told.items())
    )
    assert success_between(run, 0.0, 0.0) == pytest.approx(0.15)  # before the first step
    assert success_between(run, 0.3, 0.5) == pytest.approx(0.35)  # both ends included
    assert success_between(run, 0.6, 0.9) is None
    assert success_between(made_run(0), 0.0, 1.0) is None
    partly = evaluated(
        {"step": 0, "eval/seen/success": 0.4}, {"step": 10, "eval/seen/success": 0.5, "eval/unseen/success": 0.6}
    )
    assert success_between(partly, 0.0, 0.0) is None  # one of the splits was not played there
    assert success_between(partly, 1.0, 1.0) == pytest.approx(0.55)


def test_splits_are_told_apart_from_kinds() -> None:
    keys = ("eval/unseen/success", "eval/seen/success", "eval/seen/success/pick", "eval/seen/games", "success/all")
    assert splits_of(evaluated({"step": 0, **dict.fromkeys(keys, 0.5)})) == ["eval/seen/success", "eval/unseen/success"]


def test_success_by_kind_of_game() -> None:
    def row(step: int, pick: float, heat: float | None = None, games: float = 12) -> dict[str, float]:
        told = {"step": step, "eval/seen/success/pick": pick, "eval/seen/games/pick": games}
        return told | ({} if heat is None else {"eval/seen/success/heat": heat, "eval/seen/games/heat": 6.0})

    run = evaluated(row(0, 0.9, 0.9), row(7, 0.8, 0.9), row(8, 0.1, 0.4, 10), row(10, 0.3, 0.6, 14))
    assert success_by_kind(run) == {
        "eval/seen/success/heat": (pytest.approx(0.5), 6.0),
        "eval/seen/success/pick": (pytest.approx(0.2), 12.0),
    }
    gap = evaluated(row(8, 0.1, 0.4), row(10, 0.3))  # heat was not played at the end
    assert list(success_by_kind(gap)) == ["eval/seen/success/pick"]
    assert success_by_kind(evaluated(row(0, 0.5, 0.5))) == {}  # not evaluated where it counts
    uncounted = evaluated({"step": 10, "eval/seen/success/pick": 0.4})
    assert success_by_kind(uncounted) == {}


@given(st.integers(1, 60))
def test_success_by_kind_looks_where_succ_does(steps: int) -> None:
    rows = [
        {"step": step, "kind": "eval", "eval/s/success": step, "eval/s/success/k": step, "eval/s/games/k": 1.0}
        for step in range(0, steps + 1)
    ]
    run = StudyRun("c", {}, 0, "done", config={"run.steps": steps}, evals=tuple(rows))
    assert success_by_kind(run)["eval/s/success/k"][0] == pytest.approx(converged_success(run))


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


def test_whether_it_erupts_and_how_high() -> None:
    assert erupts(erupting()) == erupts(made_run(0, steps=300, train={"entropy/token": hills(300, (100,), 0.8)})) == 1.0
    assert erupts(erupting(0.0)) == 0.0
    assert erupts(made_run(0)) is None
    found = largest_amplitude(erupting())
    assert found is not None
    assert log_height(erupting()) == pytest.approx(math.log(1 + found))
    assert log_height(erupting(0.0)) == 0.0  # all runs count, those without an eruption too
    assert log_height(made_run(0)) is None
    start = statistics.fmean(hills(300, ONSETS, 0.8)[:5])
    assert log_height(erupting()) == pytest.approx(math.log(1 + 0.8 / start), abs=0.06)


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
