"""Rises that bring noise of their own: single numbers go up and down by a factor of ten while the level is up."""

from __future__ import annotations

import json
import lzma
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isentrope.diagnosis.phases import ERUPTION, SLOW, PhaseDetector, Rise, RiseDetector, find_rises
from tests.diagnosis.naive_rises import naive_rises

STUDY = Path(__file__).parents[2] / "docs" / "runs" / "household" / "runs.jsonl.xz"


def wild(seed: int, times: float = 4.0, noise: float = 0.8, before: float = 0.15, steps: int = 200) -> list[float]:
    """0.1 with a noise that grows from `before` in steps 50 to 100; up within ten steps, high to 130, down by 150."""
    at = np.arange(1, steps + 1)
    level = np.log(times) * np.interp(at, [100, 110, 130, 150], [0, 1, 1, 0])
    deviation = np.interp(at, [50, 100, 110, 130, 150], [before, 0.4, noise, noise, 0.15])
    return list(0.1 * np.exp(level + deviation * np.random.default_rng(seed).standard_normal(steps)))


def found(values: Any) -> list[Rise]:
    return find_rises(range(1, len(values) + 1), list(values))


def test_noisy_eruptions_are_found_where_they_are() -> None:
    runs = 60
    near = [[rise for rise in found(wild(seed)) if 90 <= rise.onset <= 125] for seed in range(runs)]
    firsts = [rises[0] for rises in near if rises]
    assert len(firsts) >= runs - 3
    assert sum(len(rises) > 1 for rises in near) <= 6
    assert 98 <= np.median([rise.onset for rise in firsts]) <= 108
    assert 110 <= np.median([rise.peak for rise in firsts]) <= 132
    assert np.median([rise.noticed - 100 for rise in firsts]) <= 15
    assert np.median([rise.before for rise in firsts]) == pytest.approx(0.1, rel=0.2)


def test_a_noisy_eruption_is_not_over_at_its_first_dip() -> None:
    overs = [found(wild(seed, before=0.1))[0].over or 200 for seed in range(60)]
    assert np.median(overs) >= 135
    assert np.mean([over < 125 for over in overs]) <= 0.2


@pytest.mark.parametrize("kind", ["spikes", "wide", "growing", "descent"])
def test_noise_without_a_rise_stays_quiet(kind: str) -> None:
    def curve(seed: int) -> np.ndarray:
        draw, at = np.random.default_rng(seed), np.arange(300)
        noise = draw.standard_normal(300)
        if kind == "spikes":
            return np.exp(0.1 * noise) * np.where(draw.random(300) < 0.03, draw.uniform(3, 10, 300), 1.0)
        if kind == "wide":
            return np.exp(0.3 * noise)
        if kind == "growing":
            return np.exp((0.1 + 0.2 * at / 300) * noise)
        return (0.2 + np.exp(-at / 60)) * np.exp(0.2 * noise)

    assert sum(bool(found(0.1 * curve(seed))) for seed in range(50)) <= 4


def test_a_steady_drift_is_no_rise_for_the_slow_test() -> None:
    """What drifts wanders among the numbers before just as much: only a bend shows."""
    for rate in (0.002, 0.005, 0.008):
        assert found(0.1 * np.exp(rate * np.arange(300))) == []


@pytest.mark.parametrize("value", [0.0, 1e-5, 0.3, 1e4])
def test_a_constant_curve_has_none(value: float) -> None:
    assert found([value] * 300) == []


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([2.0, 4.0, 8.0]), st.sampled_from([0.3, 0.8, 1.2]))
def test_the_detector_is_what_the_naive_one_says(seed: int, times: float, noise: float) -> None:
    values = wild(seed, times, noise, steps=170)
    rises = find_rises(range(len(values)), values)
    assert [(rise.onset, rise.noticed, rise.over) for rise in rises] == naive_rises(values)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.25, 0.5, 2, 8, 64]))
def test_the_unit_does_not_matter(seed: int, unit: float) -> None:
    curve = wild(seed)
    one, other = found(curve), found([unit * value for value in curve])
    dates = [[(rise.onset, rise.noticed, rise.peak, rise.over, rise.back) for rise in each] for each in (one, other)]
    assert dates[0] == dates[1]
    assert [unit * rise.top for rise in one] == [rise.top for rise in other]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 200))
def test_a_resumed_detector_goes_on_the_same(seed: int, cut: int) -> None:
    values = wild(seed)
    whole, first, second = PhaseDetector(), PhaseDetector(), PhaseDetector()
    for step, value in enumerate(values):
        whole.look(step, value)
        if step < cut:
            first.look(step, value)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    for step, value in enumerate(values[cut:], cut):
        second.look(step, value)
    assert second.state_dict() == whole.state_dict()


def test_a_state_of_before_the_slow_test_still_loads() -> None:
    """It has 45 numbers, and nothing of the slow medians."""
    values = wild(3)
    first, second = RiseDetector(), RiseDetector()
    for step, value in enumerate(values[:120]):
        first.look(step, value)
    assert first.rising
    state = first.state_dict()
    for key in ("slow_top", "slow_stale"):
        del state[key]
    for key in ("steps", "values", "smooth"):
        state[key] = state[key][-45:]
    second.load_state_dict(json.loads(json.dumps(state)))
    for step, value in enumerate(values[120:], 120):
        second.look(step, value)
    assert second.rises[0].over is not None
    assert second.rises[0].over >= 120


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.data())
def test_missing_numbers_are_as_if_they_were_never_there(seed: int, data: st.DataObject) -> None:
    values = wild(seed)
    gone = data.draw(st.sets(st.integers(0, 199), max_size=60))
    holes = [math.nan if i in gone and i % 2 else None if i in gone else value for i, value in enumerate(values)]
    kept = [(i, value) for i, value in enumerate(values) if i not in gone]
    assert find_rises(range(200), holes) == find_rises([i for i, _ in kept], [value for _, value in kept])


def test_a_lasting_rise_is_noticed_by_the_slow_test_within_its_window() -> None:
    """Numbers that jump between the old level and ten times as much, two of three up: the median of five follows."""
    curve = [0.1, 0.14, 0.08, 0.3, 0.04] * 12 + [1.0, 0.1, 1.1] * 10
    (rise, *_) = found(curve)
    assert 59 <= rise.onset <= 63
    assert rise.noticed <= 60 + SLOW
    assert rise.before == pytest.approx(0.1, rel=0.3)


QUIET = ("grpo", "grpo-long", "grpo-seal-long", "grpo-epo", "grpo-seal", "gigpo", "dapo")


@cache
def study() -> dict[tuple[str, int], dict[str, Any]]:
    """Of the cells that are looked at: to read them all takes long."""
    wanted = tuple(f'{{"cell":"{cell}",' for cell in ("grpo-turns-long", "grpo-seal-turns-long", *QUIET))
    with lzma.open(STUDY, "rt") as lines:
        runs = [json.loads(line) for line in lines if line.startswith(wanted)]
    return {(run["cell"], run["seed"]): run["train"] for run in runs if "entropy/token" in run["train"]}


@pytest.mark.parametrize(
    ("cell", "seed", "onset", "peak", "before"),
    [
        ("grpo-turns-long", 3, 152, 162, 0.19),
        ("grpo-turns-long", 4, 250, 270, 0.08),
        ("grpo-seal-turns-long", 0, 209, 226, 0.11),
        ("grpo-seal-turns-long", 2, 52, 75, 0.11),
        ("grpo-turns-long", 2, 64, 126, 0.09),  # was taken to be over at step 92, before its peak
    ],
)
def test_eruptions_of_the_study_that_were_missed_once(
    cell: str, seed: int, onset: int, peak: int, before: float
) -> None:
    run = study()[cell, seed]
    (rise,) = find_rises(run["step"], run["entropy/token"])
    assert (rise.onset, rise.peak) == pytest.approx((onset, peak), abs=3)
    assert rise.before == pytest.approx(before, abs=0.01)
    assert rise.over is not None
    assert rise.over > peak + 5


@pytest.mark.parametrize("cell", QUIET)
def test_quiet_runs_of_the_study_stay_quiet(cell: str) -> None:
    runs = [run for (name, _), run in study().items() if name == cell]
    assert runs
    assert [find_rises(run["step"], run["entropy/token"]) for run in runs] == [[]] * len(runs)


def test_an_eruption_is_told_once_while_it_goes_on() -> None:
    run = study()["grpo-turns-long", 3]
    detector = PhaseDetector()
    changes = [detector.look(step, value) for step, value in zip(run["step"], run["entropy/token"], strict=True)]
    assert [change.step for change in changes if change and change.phase == ERUPTION] == [163]
