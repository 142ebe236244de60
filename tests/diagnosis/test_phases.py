"""Phases on curves with known answers, on noise, and on recorded runs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isentrope.diagnosis import phases as limits
from isentrope.diagnosis.phases import (
    DESCENT,
    ERUPTION,
    SUBSIDENCE,
    PhaseDetector,
    Rise,
    RiseDetector,
    find_phases,
    find_rises,
)
from tests.diagnosis.naive_rises import naive_rises

RECORDED = Path(__file__).parent / "recorded"
ALFWORLD = Path(__file__).parents[2] / "docs" / "runs" / "alfworld-smollm2"


def noisy(curve: Any, noise: float, seed: int) -> list[float]:
    return list(np.asarray(curve) * np.exp(noise * np.random.default_rng(seed).standard_normal(len(curve))))


def found(values: Any) -> list[Rise]:
    return find_rises(range(1, len(values) + 1), list(values))


def bump(steps: int, onset: int, top: int, end: int, low: float = 0.3, high: float = 0.9) -> np.ndarray:
    """`low` up to the onset, straight up to `high` at `top`, straight down to `low` at `end`. Steps count from 1."""
    return np.interp(np.arange(1, steps + 1), [onset, top, end], [low, high, low])


def test_an_eruption_without_noise_is_found_to_the_step() -> None:
    (rise,) = found(bump(100, onset=40, top=52, end=70))
    # 0.05 a step: step 41 is at 0.35, within the 10 % that count as still; 42 is not
    assert 41 <= rise.onset <= 43
    assert rise.before == pytest.approx(0.3, abs=0.02)
    assert rise.peak in (51, 52, 53)
    assert rise.top == pytest.approx(0.9, abs=0.06)
    assert rise.amplitude == pytest.approx(0.6, abs=0.07)
    assert rise.amplitude / rise.before == pytest.approx(2.0, abs=0.3)
    assert rise.noticed - 40 <= 8
    assert rise.over is not None
    assert 54 <= rise.over <= 64
    assert rise.back is not None
    assert 64 <= rise.back <= 70
    assert not rise.settled


@pytest.mark.parametrize("noise", [0.05, 0.1])
@pytest.mark.parametrize("seed", range(10))
def test_noise_moves_an_eruption_by_a_few_steps_only(noise: float, seed: int) -> None:
    (rise,) = found(noisy(bump(120, onset=50, top=62, end=80), noise, seed))
    assert abs(rise.onset - 51) <= 4
    assert abs(rise.peak - 62) <= 4
    assert rise.before == pytest.approx(0.3, rel=0.2)
    assert rise.top == pytest.approx(0.9, rel=0.2)
    assert rise.back is not None


def test_a_descent_may_go_before_and_drift_may_follow() -> None:
    steps = np.arange(200)
    curve = 0.25 + 0.5 * np.exp(-steps / 30) + bump(200, 90, 100, 120, 0.0, 0.5) + 0.0005 * steps
    (rise,) = found(noisy(curve, 0.05, 3))
    assert abs(rise.onset - 91) <= 4
    assert abs(rise.peak - 101) <= 4


@pytest.mark.parametrize(
    "curve",
    [
        np.full(100, 0.4),
        np.zeros(100),
        np.linspace(0.8, 0.1, 100),
        0.05 + 0.7 * np.exp(-np.arange(200) / 20),
        np.linspace(0.2, 0.4, 200),  # twice as much, but over 200 steps: drift
        np.where(np.arange(100) == 50, 4.0, 0.4),  # one stray number
        np.where(np.isin(np.arange(100), (50, 51)), 4.0, 0.4),  # two
        np.concatenate([np.full(50, 0.8), np.full(50, 0.3)]),  # a fall, as when ActRe's second stage begins
        np.where(np.arange(100) < 50, 1e-5, 5e-5),  # five times nothing
        np.where(np.arange(100) < 50, 0.4, 0.5),  # clear, but small
    ],
    ids=["constant", "zero", "line", "exponential", "drift", "spike", "two", "fall", "tiny", "small"],
)
def test_what_is_no_eruption(curve: np.ndarray) -> None:
    assert found(curve) == []
    detector = find_phases(range(len(curve)), list(curve))
    assert (detector.phase, detector.forecast()) == (DESCENT, None)
    assert [(span.phase, span.first, span.last) for span in detector.spans()] == [(DESCENT, 0, len(curve) - 1)]


def test_a_stray_number_among_zeros() -> None:
    assert found([0.0, 0.0, 0.1, 0.0] + [0.0] * 10) == []


def test_out_of_zero() -> None:
    (rise,) = found([0.0] * 20 + [0.2] * 20)
    assert (rise.onset, rise.before, rise.top) == (21, 0.0, 0.2)


@pytest.mark.parametrize("length", range(6))
def test_a_short_curve_says_nothing(length: int) -> None:
    assert found([0.1, 0.2, 0.4, 0.8, 1.6, 3.2][:length]) == []


def test_missing_numbers_are_passed_over() -> None:
    curve = list(bump(100, 40, 52, 70))
    holes = [None if i % 7 == 3 else math.nan if i % 7 == 5 else v for i, v in enumerate(curve)]
    holes[20:30] = [None] * 10
    (rise,) = found(holes)
    assert abs(rise.onset - 41) <= 3
    assert abs(rise.peak - 52) <= 3


def test_what_stays_up_is_over_when_it_rises_no_further() -> None:
    curve = [0.2] * 40 + [0.6] * 60
    (rise,) = found(curve)
    assert (rise.onset, rise.settled, rise.back) == (41, True, None)
    assert rise.over is not None
    assert rise.over <= 41 + limits.REACH + limits.SMOOTH
    assert find_phases(range(100), curve).phase == SUBSIDENCE


def test_a_second_eruption_from_the_higher_level_is_one_of_its_own() -> None:
    first, second = found([0.2] * 40 + [0.6] * 60 + [1.8] * 20)
    assert (first.onset, second.onset) == (41, 101)
    assert second.before == pytest.approx(0.6)


@pytest.mark.parametrize("seed", range(5))
def test_cycles_and_the_next_of_them(seed: int) -> None:
    one = bump(50, 20, 28, 40)
    detector = find_phases(range(1, 201), noisy(np.tile(one, 4), 0.05, seed))
    onsets = [rise.onset for rise in detector.eruptions]
    assert onsets == pytest.approx([21, 71, 121, 171], abs=4)
    forecast = detector.forecast()
    assert forecast is not None
    assert forecast.period == pytest.approx(50, abs=4)
    assert forecast.step == pytest.approx(221, abs=6)
    assert forecast.periods == 3
    names = [span.name for span in detector.spans()]
    assert names == ["descent", *["eruption", "subsidence"] * 4]


def test_the_forecast_needs_two() -> None:
    assert find_phases(range(100), list(bump(100, 40, 52, 70))).forecast() is None


def test_phases_as_they_are_told() -> None:
    curve = [0.2] * 20 + [0.8] * 10 + [0.2] * 20
    detector = PhaseDetector()
    changes = [change for step, value in enumerate(curve, 1) if (change := detector.look(step, value))]
    assert [(change.phase, change.name) for change in changes] == [(ERUPTION, "eruption"), (SUBSIDENCE, "subsidence")]
    assert changes[0].step == 23  # the third of the last five that is high
    assert changes[1].step == 33
    assert "left its level of 0.2 nats a token at step 21" in changes[0].text
    assert [(s.name, s.first, s.last) for s in detector.spans()] == [
        ("descent", 1, 20),
        ("eruption", 21, detector.eruptions[0].peak),
        ("subsidence", detector.eruptions[0].peak + 1, 50),
    ]


curves = st.lists(st.sampled_from([0.0, 0.1, 0.11, 0.12, 0.13, 0.3, 0.32, 0.8, 0.9]), min_size=0, max_size=70)


@settings(max_examples=150, deadline=None)
@given(curves)
def test_the_detector_is_what_the_naive_one_says(values: list[float]) -> None:
    rises = find_rises(range(len(values)), values)
    assert [(rise.onset, rise.noticed, rise.over) for rise in rises] == naive_rises(values)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.one_of(st.none(), st.floats(0, 3), st.just(math.nan)), max_size=60), st.integers(0, 60))
def test_a_resumed_detector_goes_on_the_same(values: list[float | None], cut: int) -> None:
    whole, first = PhaseDetector(), PhaseDetector()
    for step, value in enumerate(values):
        whole.look(step, value)
    for step, value in enumerate(values[:cut]):
        first.look(step, value)
    second = PhaseDetector()
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    for step, value in enumerate(values[cut:], cut):
        second.look(step, value)
    assert second.state_dict() == whole.state_dict()
    assert second.spans() == whole.spans()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 3), max_size=80))
def test_each_prefix_says_what_was_said_then(values: list[float]) -> None:
    detector = PhaseDetector()
    for step, value in enumerate(values):
        detector.look(step, value)
        if step % 9 == 0:
            again = find_phases(range(step + 1), values[: step + 1])
            assert (again.phase, again.eruptions) == (detector.phase, detector.eruptions)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0.25, 0.5, 2, 8, 64]))
def test_the_unit_does_not_matter(seed: int, unit: float) -> None:
    curve = noisy(bump(80, 30, 40, 60), 0.1, seed)
    one, other = found(curve), found([unit * value for value in curve])
    assert [rise.onset for rise in one] == [rise.onset for rise in other]
    assert [rise.over for rise in one] == [rise.over for rise in other]
    assert [unit * rise.top for rise in one] == [rise.top for rise in other]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 3), max_size=120))
def test_spans_cover_the_run_without_a_gap(values: list[float]) -> None:
    spans = find_phases(range(len(values)), values).spans()
    assert [step for span in spans for step in range(span.first, span.last + 1)] == list(range(len(values)))


# Measured with 1,000 runs of 200 steps each: 0, 0, 0.7, 1.4 and 3.7 % (docs/doctor.md).
@pytest.mark.parametrize(("noise", "most"), [(0.05, 0.0), (0.1, 0.01), (0.15, 0.03), (0.2, 0.04), (0.3, 0.08)])
def test_noise_alone_is_seldom_taken_for_an_eruption(noise: float, most: float) -> None:
    runs = 100
    draws = np.random.default_rng(0).standard_normal((runs, 200))
    alarms = sum(bool(found(np.maximum(0, 0.4 * (1 + noise * draw)))) for draw in draws)
    assert alarms <= most * runs


@pytest.mark.parametrize("path", sorted(RECORDED.glob("healthy-*.json")), ids=lambda path: path.stem)
def test_healthy_runs_have_no_eruption(path: Path) -> None:
    run = json.loads(path.read_text())
    assert find_rises(run["steps"], run["entropy/token"]) == []


@pytest.mark.parametrize(
    ("name", "onset", "before", "top", "back"),
    [("too-fast", 3, 0.053, 0.169, False), ("fast", 3, 0.053, 0.108, False), ("erupts", 4, 0.274, 0.471, True)],
)
def test_recorded_eruptions(name: str, onset: int, before: float, top: float, back: bool) -> None:
    run = json.loads((RECORDED / f"{name}.json").read_text())
    (rise,) = find_rises(run["steps"], run["entropy/token"])
    assert abs(rise.onset - onset) <= 1
    assert rise.before == pytest.approx(before, abs=0.005)
    assert rise.top == pytest.approx(top, abs=0.005)
    assert (rise.back is not None) is back


@pytest.mark.parametrize(
    ("run", "onsets"), [("grpo", []), ("grpo-lr1e-5", []), ("qwen/grpo", []), ("qwen/grpo-lr1e-5", [2])]
)
def test_the_alfworld_runs(run: str, onsets: list[int]) -> None:
    lines = [json.loads(line) for line in (ALFWORLD / run / "metrics.jsonl").read_text().splitlines()]
    train = [line for line in lines if line["kind"] == "train"]
    rises = find_rises([line["step"] for line in train], [line["entropy/token"] for line in train])
    assert [rise.onset for rise in rises] == onsets


def test_a_resumed_detector_knows_how_high_the_curve_once_was() -> None:
    first, second = RiseDetector(), RiseDetector()
    for step, value in enumerate([3.0] * 10 + [0.02, 0.03] * 30):
        first.look(step, value)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second.noise == first.noise


def test_a_state_is_small() -> None:
    detector = RiseDetector()
    for step in range(5000):
        detector.look(step, 0.4)
    assert len(json.dumps(detector.state_dict())) < 5000


def test_a_state_is_small_after_hundreds_of_eruptions() -> None:
    """A resumed detector needs the last rise alone; it goes on the same."""
    whole, half = PhaseDetector(), PhaseDetector()
    values = [0.4 + 2.0 * (step % 60 > 45) for step in range(12_000)]
    for step, value in enumerate(values[:9000]):
        whole.look(step, value)
    assert len(whole.eruptions) > 100
    state = json.dumps(whole.state_dict())
    assert len(state) < 6000
    half.load_state_dict(json.loads(state))
    changes = [(whole.look(step, value), half.look(step, value)) for step, value in enumerate(values[9000:], 9000)]
    assert sum(ours is not None for ours, _ in changes) > 50
    assert all(ours == theirs for ours, theirs in changes)
    assert half.state_dict() == whole.state_dict()
