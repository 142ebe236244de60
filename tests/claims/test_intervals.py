"""Intervals and decisions against tables, naive references and cases worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isentrope.claims.intervals import decide, half_width, mean_interval, seeds_needed, share_interval, t_quantile
from isentrope.claims.measures import mean
from isentrope.claims.record import Interval, Measure, Part, Select, Verdict
from isentrope.instruments.metrics import wilson
from isentrope.study.statistics import bootstrap

ANY = Measure(mean, "", ())
UP = Part("", Select(), ANY, border=0.0, least=0.02)
DOWN = Part("", Select(), ANY, border=0.0, least=-0.02, upwards=False)
NO_WORSE = Part("", Select(), ANY, border=-0.03, least=-0.03)


@pytest.mark.parametrize(
    ("freedom", "level", "printed"),
    [(1, 0.95, 12.706), (2, 0.95, 4.303), (4, 0.95, 2.776), (4, 0.99, 4.604), (9, 0.98, 2.821), (29, 0.95, 2.045)],
)
def test_student_as_in_printed_tables(freedom: int, level: float, printed: float) -> None:
    assert t_quantile(freedom, level) == pytest.approx(printed, abs=6e-4)


def test_student_is_continuous_where_the_normal_takes_over() -> None:
    assert t_quantile(199, 0.95) == pytest.approx(t_quantile(200, 0.95), rel=0.01)


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=7))
def test_at_95_it_is_the_studys_interval(values: list[float]) -> None:
    ours, theirs = mean_interval(values, 0.95), bootstrap(values)
    assert theirs.low is not None
    assert theirs.high is not None
    assert ours.low == pytest.approx(theirs.low, abs=1e-6)
    assert ours.high == pytest.approx(theirs.high, abs=1e-6)
    stricter = mean_interval(values, 0.99)
    assert stricter.low <= ours.low + 1e-9
    assert stricter.high >= ours.high - 1e-9


@given(st.integers(1, 50), st.integers(0, 50))
def test_share_is_wilsons(count: int, solved: int) -> None:
    solved = min(solved, count)
    found, known = share_interval(solved / count, count, 0.95), wilson(solved, count)
    assert (found.low, found.high) == pytest.approx(known, abs=1e-9)


@pytest.mark.parametrize(
    ("part", "value", "low", "high", "verdict"),
    [
        (UP, 0.05, 0.01, 0.09, Verdict.holds),
        (UP, 0.05, -0.01, 0.11, Verdict.open),  # the border is inside
        (UP, 0.015, 0.005, 0.025, Verdict.open),  # surely above 0, perhaps too little to count
        (UP, 0.005, 0.001, 0.009, Verdict.fails),  # surely above 0, and surely too little
        (UP, 0.0, -0.01, 0.01, Verdict.fails),
        (UP, -0.05, -0.15, 0.05, Verdict.open),
        (DOWN, -0.05, -0.09, -0.01, Verdict.holds),
        (DOWN, -0.05, -0.11, 0.01, Verdict.open),
        (DOWN, 0.05, 0.01, 0.09, Verdict.fails),
        (NO_WORSE, -0.01, -0.02, 0.0, Verdict.holds),
        (NO_WORSE, 0.0, -0.04, 0.04, Verdict.open),
        (NO_WORSE, -0.06, -0.08, -0.04, Verdict.fails),
    ],
)
def test_decisions(part: Part, value: float, low: float, high: float, verdict: Verdict) -> None:
    assert decide(part, value, Interval(low, high), Interval(low, high)) == verdict


def test_one_of_many_parts_refutes_only_at_the_stricter_level() -> None:
    usual, strict = Interval(-0.05, 0.015), Interval(-0.06, 0.025)
    assert decide(UP, -0.02, usual, strict) == Verdict.open
    assert decide(UP, -0.02, usual, usual) == Verdict.fails


@pytest.mark.parametrize(("value", "deviation"), [(0.04, 0.08), (0.03, 0.02), (-0.01, 0.05), (0.1, 0.1)])
def test_so_many_seeds_would_just_decide(value: float, deviation: float) -> None:
    count = seeds_needed(UP, value, deviation, 0.95, 0.95)
    assert count is not None

    def verdict(seeds: int) -> Verdict:
        half = half_width(deviation, seeds, 0.95)
        around = Interval(value - half, value + half)
        return decide(UP, value, around, around)

    assert verdict(count) != Verdict.open
    assert count == 2 or verdict(count - 1) == Verdict.open


def test_no_number_of_seeds_decides_what_lies_on_the_border() -> None:
    assert seeds_needed(UP, 0.02 - 1e-6, 0.1, 0.95, 0.95) is None


def test_five_runs_must_agree_to_decide_a_share() -> None:
    part = Part("", Select(), ANY, 0.5, 0.5, shares=True)
    for successes, verdict in ((5, Verdict.holds), (4, Verdict.open), (1, Verdict.open), (0, Verdict.fails)):
        around = share_interval(successes / 5, 5, 0.95)
        assert decide(part, successes / 5, around, around) == verdict
    assert seeds_needed(part, 0.8, 0.4, 0.95, 0.95) == 11  # four fifths of 10 still reach down to 0.490


def test_without_an_effect_it_seldom_holds() -> None:
    """Of 300 studies of five seeds without any effect, 2.5 % would be above 0 by chance."""
    draws = np.random.default_rng(1).normal(0.0, 0.05, (300, 5))
    held = 0
    for values in draws:
        around = mean_interval([float(value) for value in values], 0.95)
        held += decide(UP, float(values.mean()), around, around) == Verdict.holds
    assert held / 300 < 0.025 + 3 * math.sqrt(0.025 * 0.975 / 300)
