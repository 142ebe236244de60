"""From intervals to verdicts and words, and how many seeds would decide."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from isentrope.core.stats import Interval, clopper_pearson
from isentrope.papers.decide import SEEDS_TOLD, decide, factor, number, percent, said, seeds_needed
from isentrope.papers.inference import TWO_SAMPLES, Estimate
from isentrope.papers.measures import mean
from isentrope.papers.record import Measure, Part, Select, Verdict

ANY = Measure(mean, "", ())
UP = Part("", Select(), ANY, border=0.0, least=0.02)
DOWN = Part("", Select(), ANY, border=0.0, least=-0.02, upwards=False)
NO_WORSE = Part("", Select(), ANY, border=-0.03, least=-0.03)
SHARE = Part("", Select(), ANY, 0.5, 0.5, shares=True)


@pytest.mark.parametrize(
    ("part", "value", "low", "high", "verdict"),
    [
        (UP, 0.05, 0.01, 0.09, Verdict.holds),
        (UP, 0.02, 0.01, 0.03, Verdict.holds),  # just the least that counts
        (UP, 0.05, -0.01, 0.11, Verdict.open),  # the border is inside
        (UP, 0.05, 0.0, 0.1, Verdict.open),  # and here on the end
        (UP, 0.015, 0.005, 0.025, Verdict.open),  # surely above 0, perhaps too little to count
        (UP, 0.01, 0.0, 0.02, Verdict.open),  # reaches the least that counts
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


@given(st.floats(-0.2, 0.2), st.floats(0, 0.2), st.floats(0, 0.2))
def test_what_faces_down_is_the_mirror_of_what_faces_up(value: float, half: float, more: float) -> None:
    held, strict = (Interval(value - one, value + one) for one in (half, half + more))
    turned = [Interval(-one.high, -one.low) for one in (held, strict)]
    assert decide(UP, value, held, strict) == decide(DOWN, -value, *turned)


def test_to_hold_and_to_be_refuted_look_at_different_intervals() -> None:
    narrow, wide = Interval(-0.05, 0.015), Interval(-0.06, 0.025)
    assert decide(UP, -0.02, narrow, wide) == Verdict.open
    assert decide(UP, -0.02, wide, narrow) == Verdict.fails
    assert decide(UP, 0.05, Interval(0.01, 0.09), Interval(-0.9, 0.9)) == Verdict.holds
    assert decide(UP, 0.05, Interval(-0.01, 0.11), Interval(0.04, 0.06)) == Verdict.open


@given(st.integers(1, 50), st.integers(0, 50), st.sampled_from([0.95, 0.99]))
def test_share_is_clopper_and_pearsons(count: int, solved: int, level: float) -> None:
    solved = min(solved, count)
    found = clopper_pearson(solved / count, count, level)
    known = stats.binomtest(solved, count).proportion_ci(level, method="exact")
    assert (found.low, found.high) == pytest.approx((known.low, known.high), abs=1e-7)


@pytest.mark.parametrize("count", [3, 6, 11])
@pytest.mark.parametrize("truth", [0.05, 0.3, 0.5, 0.8])
def test_the_interval_of_a_share_never_misses_more_often_than_it_says(count: int, truth: float) -> None:
    """Over all outcomes, each with its own probability."""
    missed = [
        float(stats.binom.pmf(hits, count, truth))
        for hits in range(count + 1)
        if not clopper_pearson(hits / count, count, 0.95).low
        <= truth
        <= clopper_pearson(hits / count, count, 0.95).high
    ]
    assert sum(missed) <= 0.05


def test_six_seeds_must_agree_to_decide_a_share() -> None:
    for count, decided in ((5, False), (6, True)):
        for successes in range(count + 1):
            around = clopper_pearson(successes / count, count, 0.95)
            known = {count: Verdict.holds, 0: Verdict.fails} if decided else {}
            assert decide(SHARE, successes / count, around, around) == known.get(successes, Verdict.open)
    assert 0.025 ** (1 / 5) < 0.5 < 0.025 ** (1 / 6)  # what all of n alike reach down to
    assert seeds_needed(SHARE, Estimate(1.0, 0.0, 5, ""), 5, 0.95, 0.95) == 6
    lows = {n: stats.beta.ppf(0.025, 0.8 * n, 0.2 * n + 1) for n in range(6, 50)}  # four fifths of more and more
    first = next(n for n, low in lows.items() if low > 0.5)
    assert seeds_needed(SHARE, Estimate(0.8, 0.0, 5, ""), 5, 0.95, 0.95) == first


@pytest.mark.parametrize("seeds", [3, 5, 8])
@pytest.mark.parametrize(("value", "deviation"), [(0.04, 0.08), (0.03, 0.1), (-0.01, 0.05), (0.1, 0.25)])
def test_so_many_seeds_would_just_decide(value: float, deviation: float, seeds: int) -> None:
    """Two samples of equal spread, of Student's distribution with 2 (n - 1) degrees of freedom."""

    def estimate(count: int) -> Estimate:
        return Estimate(value, deviation * math.sqrt(2 / count), 2 * (count - 1), TWO_SAMPLES)

    def verdict(count: int) -> Verdict:
        around = estimate(count).interval(0.95)
        return decide(UP, value, around, around)

    first = next(count for count in range(2, SEEDS_TOLD) if verdict(count) != Verdict.open)
    if first > seeds:
        assert seeds_needed(UP, estimate(seeds), seeds, 0.95, 0.95) == first


@pytest.mark.parametrize("how", ["paired by seed", ""], ids=["pairs", "one arm"])
@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize(("value", "deviation"), [(0.05, 0.06), (0.03, 0.1), (0.1, 0.12)])
def test_so_many_pairs_would_just_decide(value: float, deviation: float, seeds: int, how: str) -> None:
    """A pair more, or a seed more of a single arm, adds one degree of freedom, not two."""

    def estimate(count: int) -> Estimate:
        return Estimate(value, deviation / math.sqrt(count), count - 1, how)

    first = next(count for count in range(2, SEEDS_TOLD) if estimate(count).interval(0.95).low > 0)
    told = seeds_needed(UP, estimate(seeds), seeds, 0.95, 0.95)
    assert first > seeds
    assert told == first


def test_the_level_that_matters_is_that_of_the_side_the_effect_is_on() -> None:
    above, below = Estimate(0.05, 0.04, 8, ""), Estimate(0.0, 0.02, 8, "")
    assert seeds_needed(UP, above, 5, 0.95, 0.999) == seeds_needed(UP, above, 5, 0.95, 0.95)
    assert seeds_needed(UP, below, 5, 0.999, 0.95) == seeds_needed(UP, below, 5, 0.95, 0.95)
    assert (seeds_needed(UP, above, 5, 0.999, 0.95) or 0) > (seeds_needed(UP, above, 5, 0.95, 0.95) or 0)
    assert (seeds_needed(UP, below, 5, 0.95, 0.999) or 0) > (seeds_needed(UP, below, 5, 0.95, 0.95) or 0)


def test_seeds_do_not_help_against_what_games_and_starts_add() -> None:
    """An error of 0.03 from games alone reaches ±0.06: an effect of 0.05 never gets clear of 0."""
    assert seeds_needed(UP, Estimate(0.05, 0.04, 8, "", fixed=0.03**2), 5, 0.95, 0.95) is None
    partly = Estimate(0.05, 0.04, 8, TWO_SAMPLES, fixed=0.02**2)
    # what seeds add is 0.04² - 0.02² with five of them, and shrinks; 0.02² stays
    errors = {count: math.sqrt(0.0012 * 5 / count + 0.0004) for count in range(6, 500)}
    first = next(n for n, error in errors.items() if stats.t.ppf(0.975, 2 * (n - 1)) * error < 0.05)
    assert seeds_needed(UP, partly, 5, 0.95, 0.95) == first


def test_no_number_of_seeds_decides_what_lies_on_the_border() -> None:
    assert seeds_needed(UP, Estimate(0.02 - 1e-6, 0.1, 8, ""), 5, 0.95, 0.95) is None


@pytest.mark.parametrize(
    ("level", "text"), [(0.95, "95 %"), (0.975, "97.5 %"), (0.9875, "98.8 %"), (0.995, "99.50 %"), (0.99722, "99.72 %")]
)
def test_levels_in_words(level: float, text: str) -> None:
    assert percent(level) == text


def test_verdicts_in_words() -> None:
    around = Interval(0.01, 0.09)
    assert said(UP, Verdict.holds, around, 0.975, 0.99) == "the 97.5 % interval lies above 0, the mean is at least 0.02"
    assert said(UP, Verdict.fails, around, 0.95, 0.975) == "the 97.5 % interval lies below 0.02"
    assert said(UP, Verdict.open, Interval(-0.1, 0.1), 0.95, 0.95) == "the 95 % interval includes 0"
    assert said(UP, Verdict.open, around, 0.95, 0.975) == "it may be on either side of 0.02 (97.5 % interval)"
    assert said(DOWN, Verdict.holds, around, 0.95, 0.95) == "the 95 % interval lies below 0, the mean is at most -0.02"
    assert said(NO_WORSE, Verdict.holds, around, 0.95, 0.95) == "the 95 % interval lies above -0.03"
    times = Part("", Select(), ANY, 0.0, math.log(1.05), unit="times the control")
    assert said(times, Verdict.fails, around, 0.95, 0.95) == "the 95 % interval lies below × 1.05"


def test_logarithms_are_told_as_factors() -> None:
    assert factor(math.log(1.13)) == "× 1.13"
    assert factor(-math.log(2)) == "× 0.5"
    assert factor(700.0) == "× e^700"  # and no overflow beyond
    assert factor(-5000.0) == "× e^-5000"
    assert number(math.log(1.05), "times its start") == "× 1.05"
    assert number(0.02, "success") == "0.02"
