"""Effects and their errors against naive references, scipy's tests, simulations and cases worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, special, stats

from isentrope.core.stats import Interval
from isentrope.papers.inference import (
    BORROWED,
    EXPECTED,
    FEWEST_CELLS,
    TWO_SAMPLES,
    Estimate,
    Part,
    Prior,
    Sample,
    by_seed,
    by_unit,
    combined,
    differences,
    fit_prior,
    one_arm,
    spread,
    two_arms,
)

NUMBERS = st.lists(st.floats(-1, 1).map(lambda value: round(value, 3)), min_size=3, max_size=8, unique=True)


def runs_of(values: Sequence[float], first: int = 0, algorithm: str = "grpo", start: str = "") -> list[Sample]:
    """Runs with seeds from `first` on."""
    return [Sample(float(value), (algorithm, first + n, start)) for n, value in enumerate(values)]


def naive_prior(variances: Sequence[float], freedoms: Sequence[int]) -> tuple[float, float]:
    """Smyth's moments with a root finder instead of Newton's steps: variance and degrees of freedom."""
    logs = [
        math.log(own) - float(special.psi(freedom / 2)) + math.log(freedom / 2)
        for own, freedom in zip(variances, freedoms, strict=True)
    ]
    mean = sum(logs) / len(logs)
    beyond = sum((one - mean) ** 2 for one in logs) / (len(logs) - 1)
    beyond -= sum(float(special.polygamma(1, freedom / 2)) for freedom in freedoms) / len(freedoms)
    if beyond <= 0:
        return math.exp(mean), math.inf
    half = optimize.brentq(lambda x: math.log(float(special.polygamma(1, x)) / beyond), 1e-4, 1e8, xtol=1e-12)
    return math.exp(mean + float(special.psi(half)) - math.log(half)), 2 * half


# -- the spread that cells have in common


CELL = st.tuples(st.floats(0.01, 100), st.integers(1, 30))


@settings(max_examples=60, deadline=None)
@given(st.lists(CELL, min_size=3, max_size=20), st.sampled_from([2.0, BORROWED, 40.0]))
def test_the_prior_is_that_of_a_root_finder(cells: list[tuple[float, int]], most: float) -> None:
    middle = float(np.median([own for own, _ in cells]))
    variances = [max(own, 1e-5 * middle) for own, _ in cells]
    level, freedom = naive_prior(variances, [freedom for _, freedom in cells])
    found = fit_prior(cells, most=most)
    assert found.freedom == pytest.approx(min(freedom, most), rel=1e-6)
    if math.isinf(freedom) or freedom < 1e5:  # else hardly anything is beyond chance, and rounding tells how much
        assert found.variance == pytest.approx(level, rel=1e-6)
    assert fit_prior(cells).variance == found.variance


@pytest.mark.parametrize(("freedom", "level"), [(4.0, 1.0), (8.0, 2.5), (20.0, 0.01)])
def test_the_prior_that_variances_were_drawn_from_is_found_again(freedom: float, level: float) -> None:
    chance = np.random.default_rng(3)
    true = freedom * level / chance.chisquare(freedom, 60_000)
    own = true * chance.chisquare(4, 60_000) / 4
    cells = [(float(one), 4) for one in own]
    found = fit_prior(cells, most=math.inf)
    assert found.freedom == pytest.approx(freedom, rel=0.12)
    assert found.variance == pytest.approx(level, rel=0.05)
    assert fit_prior(cells) == Prior(found.variance, min(found.freedom, 6.0))


def test_cells_that_are_no_less_alike_than_chance_share_one_variance_and_lend_six_degrees_of_freedom() -> None:
    found = fit_prior([(2.0, 4), (2.1, 4), (1.9, 4)])
    logs = [math.log(own) for own in (2.0, 2.1, 1.9)]
    assert found == Prior(pytest.approx(math.exp(sum(logs) / 3 - special.psi(2) + math.log(2))), 6.0)
    assert BORROWED == 6.0


@pytest.mark.parametrize(
    "cells", [[], [(1.0, 4)], [(1.0, 4), (2.0, 4)], [(1.0, 4), (2.0, 4), (3.0, 0)], [(0.0, 4)] * 5]
)
def test_where_cells_tell_no_common_spread_that_which_is_expected_stands_in(cells: list[tuple[float, int]]) -> None:
    """Fewer than three cells with a spread, or cells that do not vary."""
    assert FEWEST_CELLS == 3
    assert fit_prior(cells) == Prior()
    assert fit_prior(cells).moderated(5.0, 3) == (5.0, 3)
    assert fit_prior(cells, expected=0.3) == Prior(pytest.approx(0.09), EXPECTED) == Prior(pytest.approx(0.09), 2.0)
    assert fit_prior(cells, 0.3, most=1.0) == Prior(pytest.approx(0.09), 1.0)


def test_cells_that_tell_are_believed_and_not_what_was_expected() -> None:
    cells = [(2.0, 4), (2.1, 4), (1.9, 4)]
    assert fit_prior(cells, expected=77.0) == fit_prior(cells)


def test_moderated_by_hand() -> None:
    assert Prior(5.0, 4.0).moderated(2.0, 2) == (4.0, 6.0)  # (4 · 5 + 2 · 2) / 6
    assert Prior(2.0, 4.0).moderated(5.0, 2) == (5.0, 6.0)  # (4 · 2 + 2 · 5) / 6 would lower it
    assert Prior().moderated(5.0, 0) == (5.0, 1.0)


@given(st.floats(0.01, 10), st.floats(0.1, 50), st.floats(0, 10), st.integers(1, 20))
def test_a_variance_is_raised_towards_the_common_one_and_never_lowered(
    common: float, worth: float, own: float, freedom: int
) -> None:
    drawn, total = Prior(common, worth).moderated(own, freedom)
    assert own <= drawn <= max(common, own) + 1e-12
    assert drawn > own or own >= common or common - own < 1e-9
    assert total == pytest.approx(worth + freedom)


def test_a_cell_whose_runs_agree_by_chance_is_not_believed() -> None:
    """The other cells of the setting tell that they would not agree again."""
    lucky = runs_of([0.49, 0.5, 0.51])
    others = [runs_of([0.5 - a, 0.5, 0.5 + a]) for a in (0.08, 0.1, 0.12, 0.09, 0.11)]
    alone, among = one_arm(lucky, [lucky]), one_arm(lucky, [lucky, *others])
    assert among.error > 3 * alone.error == pytest.approx(0.03 / math.sqrt(3))
    assert among.freedom > alone.freedom
    loud = runs_of([0.0, 0.5, 1.0])
    assert one_arm(loud, [loud, *others]).error == pytest.approx(0.5 / math.sqrt(3))  # and its own is never lowered


# -- seeds are what counts


def test_runs_of_one_seed_are_averaged() -> None:
    control = [*runs_of([0.1, 0.5]), *runs_of([0.3, 0.5])]
    assert by_unit(control) == pytest.approx({("grpo", 0, ""): 0.2, ("grpo", 1, ""): 0.5})
    ours = differences(runs_of([1.0, 1.0]), control)
    assert ours == pytest.approx({("grpo", 0, ""): 0.8, ("grpo", 1, ""): 0.5})
    assert spread(control) == (pytest.approx(0.045), 1)  # of 0.2 and 0.5, and not of four runs
    assert spread(control[:1]) == (0.0, 0)
    assert spread([]) == (0.0, -1)


def test_a_seed_is_averaged_over_its_algorithms_and_those_over_their_runs() -> None:
    """Two runs of GRPO do not outweigh one of GiGPO; another start is another sample."""
    runs = [*runs_of([0.1, 0.5]), *runs_of([0.3]), *runs_of([0.6, 0.7], algorithm="gigpo"), *runs_of([9.0], start="b")]
    assert by_seed(runs) == {
        (0, ""): (pytest.approx(0.4), ""), (1, ""): (pytest.approx(0.6), ""), (0, "b"): (9.0, "b")
    }  # fmt: skip


def test_one_arm_of_two_algorithms_has_the_seeds_of_one() -> None:
    ours, theirs = [0.1, 0.4, 0.3, 0.8], [0.2, 0.5, 0.5, 0.4]
    both = [*runs_of(ours), *runs_of(theirs, algorithm="gigpo")]
    found, known = one_arm(both, [both]), stats.ttest_1samp(np.mean([ours, theirs], 0), 0).confidence_interval(0.95)
    assert (found.interval(0.95).low, found.interval(0.95).high) == pytest.approx((known.low, known.high))
    assert found.freedom == 3


@settings(max_examples=40, deadline=None)
@given(NUMBERS, NUMBERS, st.integers(1, 3))
def test_runs_made_again_with_the_same_seeds_add_nothing(ours: list[float], theirs: list[float], again: int) -> None:
    """Equal by definition: an arm of copies is no larger sample, and no cell of copies lends more."""
    cells = [runs_of(one, 200) for one in (ours, theirs)]
    once = two_arms(runs_of(ours), runs_of(theirs, 100), cells)
    more = two_arms(runs_of(ours), runs_of(theirs, 100) * (again + 1), [one * (again + 1) for one in cells])
    assert (more.value, more.error, more.freedom) == pytest.approx((once.value, once.error, once.freedom), abs=1e-12)


# -- two samples


@settings(deadline=None)
@given(NUMBERS, NUMBERS, st.sampled_from([0.9, 0.95, 0.995]))
def test_two_samples_without_a_prior_are_welchs(ours: list[float], theirs: list[float], level: float) -> None:
    found = two_arms(runs_of(ours), runs_of(theirs, first=100), [])
    known = stats.ttest_ind(ours, theirs, equal_var=False)
    around, wanted = found.interval(level), known.confidence_interval(level)
    assert found.how == TWO_SAMPLES == "two samples of seeds"
    assert found.value == pytest.approx(np.mean(ours) - np.mean(theirs), abs=1e-12)
    assert found.freedom == pytest.approx(known.df)
    assert (around.low, around.high) == pytest.approx((wanted.low, wanted.high), abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(NUMBERS, NUMBERS, NUMBERS, NUMBERS)
def test_two_samples_with_a_prior_as_a_plain_loop_has_it(
    a: list[float], b: list[float], c: list[float], d: list[float]
) -> None:
    cells = [a, b, c, d]
    found = two_arms(runs_of(a), runs_of(b, 100), [runs_of(c, 200), runs_of(d, 300)])
    middle = float(np.median([np.var(one, ddof=1) for one in cells]))
    variances = [max(float(np.var(one, ddof=1)), 1e-5 * middle) for one in cells]
    common, worth = naive_prior(variances, [len(one) - 1 for one in cells])
    lent = min(worth, 6.0)
    parts, spent = [], 0.0
    for values in (a, b):
        own, freedom = float(np.var(values, ddof=1)), len(values) - 1
        drawn, total = max(own, (lent * common + freedom * own) / (lent + freedom)), lent + freedom
        parts.append(drawn / len(values))
        spent += (drawn / len(values)) ** 2 / total
    assert found.error == pytest.approx(math.sqrt(sum(parts)), rel=1e-5)
    most = lent + len(a) - 1 + len(b) - 1  # what is lent is lent once
    assert found.freedom == pytest.approx(min(sum(parts) ** 2 / spent, most), rel=1e-4)


def test_what_both_arms_borrow_counts_once() -> None:
    """Equal spreads: Satterthwaite's sum would be 2 (6 + 2) = 16, of which 6 are the same."""
    arms = [runs_of([0.0, 1.0, 2.0], 100 * n) for n in range(5)]
    assert two_arms(arms[0], arms[1], arms[2:]).freedom == pytest.approx(6 + 2 + 2)


def test_an_expected_spread_widens_two_arms_that_agree_by_chance() -> None:
    ours, theirs = runs_of([0.5] * 3), runs_of([0.4] * 3, 100)
    found = two_arms(ours, theirs, [], expected=0.1)
    drawn = (2 * 0.1**2 + 2 * 0.0) / 4  # two degrees of freedom each
    assert found.error == pytest.approx(math.sqrt(2 * drawn / 3))
    assert found.freedom == pytest.approx(2 + 2 + 2)
    alone = one_arm(ours, [ours], expected=0.1)
    assert (alone.error, alone.freedom) == (pytest.approx(math.sqrt(drawn / 3)), pytest.approx(4))


def test_runs_without_any_spread_have_an_interval_of_no_width() -> None:
    found = two_arms(runs_of([1.0] * 3), runs_of([0.5] * 3, 100), [])
    assert found.interval(0.95) == found.interval(0.999) == Interval(0.5, 0.5)


def test_a_single_run_is_judged_by_what_the_others_tell() -> None:
    single, other = runs_of([1.0]), runs_of([0.0, 1.0, 2.0], 100)
    found = two_arms(single, other, [runs_of([0.0, 1.0, 2.0], 200), runs_of([0.0, 1.0, 2.0], 300)])
    common = math.exp(-float(special.psi(1)))  # three equal variances of 1 with two degrees of freedom each
    assert found.error == pytest.approx(math.sqrt(common + (6 * common + 2) / 8 / 3))


# -- parts of an error


def test_parts_add_up_with_satterthwaites_degrees_of_freedom() -> None:
    found = combined(0.3, [Part(0.04, 4.0), Part(0.02, 2.0), Part(0.03, 1.0), Part(0.0, 1.0)], "paired by seed")
    assert found.value == 0.3
    assert found.error == pytest.approx(0.3)  # √0.09
    assert found.freedom == pytest.approx(0.09**2 / (0.04**2 / 4 + 0.02**2 / 2 + 0.03**2 / 1))
    assert found.fixed == pytest.approx(0.05)  # seeds lower the first part
    both = combined(0.3, [Part(0.04, 4.0), Part(0.02, 2.0), Part(0.03, 1.0)], TWO_SAMPLES)
    assert both.fixed == pytest.approx(0.03)  # of two samples the first two
    assert combined(0.3, [Part(0.0, 4.0), Part(0.0, 2.0)], "").freedom == 4.0


# -- all together


def test_one_arm_is_students() -> None:
    values = [0.1, 0.4, 0.2, 0.5]
    found, known = one_arm(runs_of(values), [runs_of(values)]), stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (found.interval(0.95).low, found.interval(0.95).high) == pytest.approx((known.low, known.high))
    assert (found.freedom, found.how) == (3, "")


def test_the_reach_is_half_of_the_interval() -> None:
    found = Estimate(1.0, 0.5, 4, "")
    assert found.reach(0.95) == pytest.approx(found.interval(0.95).high - 1.0) == pytest.approx(1.388223)
