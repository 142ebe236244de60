"""Effects and their errors against naive references, scipy's tests, simulations and cases worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, special, stats

from isentrope.claims.inference import (
    GAIN,
    Estimate,
    Prior,
    Sample,
    between_starts,
    by_unit,
    differences,
    fit_prior,
    one_arm,
    over_games,
    pairing_gain,
    shared,
    two_arms,
)
from isentrope.claims.record import Interval

NUMBERS = st.lists(st.floats(-1, 1).map(lambda value: round(value, 3)), min_size=3, max_size=8, unique=True)


def runs_of(values: Sequence[float], first: int = 0, algorithm: str = "grpo", start: str = "") -> list[Sample]:
    """Runs with seeds from `first` on."""
    return [Sample(float(value), (algorithm, first + n), start) for n, value in enumerate(values)]


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


@given(st.lists(st.tuples(st.floats(0.01, 100), st.integers(1, 30)), min_size=3, max_size=20))
def test_the_prior_is_that_of_a_root_finder(cells: list[tuple[float, int]]) -> None:
    middle = float(np.median([own for own, _ in cells]))
    variances = [max(own, 1e-5 * middle) for own, _ in cells]
    level, freedom = naive_prior(variances, [freedom for _, freedom in cells])
    found = fit_prior(cells)
    if math.isinf(freedom) or freedom > 1e5:  # where hardly anything is beyond chance
        assert found.freedom > 1e4
        return
    assert found.freedom == pytest.approx(freedom, rel=1e-6)
    assert found.variance == pytest.approx(level, rel=1e-6)
    assert found.most == sum(freedom for _, freedom in cells)


@pytest.mark.parametrize(("freedom", "level"), [(4.0, 1.0), (8.0, 2.5), (20.0, 0.01)])
def test_the_prior_that_variances_were_drawn_from_is_found_again(freedom: float, level: float) -> None:
    chance = np.random.default_rng(3)
    true = freedom * level / chance.chisquare(freedom, 60_000)
    own = true * chance.chisquare(4, 60_000) / 4
    found = fit_prior([(float(one), 4) for one in own])
    assert found.freedom == pytest.approx(freedom, rel=0.12)
    assert found.variance == pytest.approx(level, rel=0.05)


def test_cells_that_are_no_less_alike_than_chance_share_one_variance() -> None:
    found = fit_prior([(2.0, 4), (2.1, 4), (1.9, 4)])
    assert math.isinf(found.freedom)
    logs = [math.log(own) for own in (2.0, 2.1, 1.9)]
    assert found.variance == pytest.approx(math.exp(sum(logs) / 3 - special.psi(2) + math.log(2)))
    assert found.moderated(77.0, 4) == (found.variance, 12.0)  # degrees of freedom that all of them have together
    assert found.moderated(77.0, 40)[1] == 40


@pytest.mark.parametrize(
    "cells", [[], [(1.0, 4)], [(1.0, 4), (2.0, 4)], [(1.0, 4), (2.0, 4), (3.0, 0)], [(0.0, 4)] * 5]
)
def test_fewer_than_three_cells_tell_no_common_spread(cells: list[tuple[float, int]]) -> None:
    assert fit_prior(cells) == Prior()
    assert fit_prior(cells).moderated(5.0, 3) == (5.0, 3)


def test_moderated_by_hand() -> None:
    assert Prior(2.0, 4.0, 100.0).moderated(5.0, 2) == (3.0, 6.0)  # (4 · 2 + 2 · 5) / 6
    assert Prior(2.0, 40.0, 10.0).moderated(5.0, 10) == (pytest.approx(130 / 50), 10.0)  # no more than all cells have


@given(st.floats(0.01, 10), st.floats(0.1, 50), st.floats(0, 10), st.integers(1, 20))
def test_a_moderated_variance_lies_between_both(common: float, worth: float, own: float, freedom: int) -> None:
    drawn, total = Prior(common, worth).moderated(own, freedom)
    assert min(common, own) - 1e-12 <= drawn <= max(common, own) + 1e-12
    assert total == pytest.approx(worth + freedom)


def test_a_cell_whose_runs_agree_by_chance_is_not_believed() -> None:
    """The other cells of the setting tell that they would not agree again."""
    lucky = runs_of([0.49, 0.5, 0.51])
    others = [runs_of([0.5 - a, 0.5, 0.5 + a]) for a in (0.08, 0.1, 0.12, 0.09, 0.11)]
    alone, among = one_arm(lucky, [lucky]), one_arm(lucky, [lucky, *others])
    assert among.error > 3 * alone.error == pytest.approx(0.03 / math.sqrt(3))
    assert among.freedom > alone.freedom


# -- two samples


@given(NUMBERS, NUMBERS, st.sampled_from([0.9, 0.95, 0.995]))
def test_two_samples_without_a_prior_are_welchs(ours: list[float], theirs: list[float], level: float) -> None:
    treated, control = runs_of(ours), runs_of(theirs, first=100)
    found = two_arms(treated, control, [treated])
    known = stats.ttest_ind(ours, theirs, equal_var=False)
    around, wanted = found.interval(level), known.confidence_interval(level)
    assert found.how == "two samples of runs"
    assert found.value == pytest.approx(np.mean(ours) - np.mean(theirs), abs=1e-12)
    assert found.freedom == pytest.approx(known.df)
    assert (around.low, around.high) == pytest.approx((wanted.low, wanted.high), abs=1e-9)


@given(NUMBERS, NUMBERS, NUMBERS, NUMBERS)
def test_two_samples_with_a_prior_as_a_plain_loop_has_it(
    a: list[float], b: list[float], c: list[float], d: list[float]
) -> None:
    cells = [a, b, c, d]
    found = two_arms(runs_of(a), runs_of(b, 100), [runs_of(a), runs_of(c, 200), runs_of(d, 300)])
    middle = float(np.median([np.var(one, ddof=1) for one in cells]))
    variances = [max(float(np.var(one, ddof=1)), 1e-5 * middle) for one in cells]
    common, worth = naive_prior(variances, [len(one) - 1 for one in cells])
    pooled = sum(len(one) - 1 for one in cells)
    parts, spent = [], 0.0
    for values in (a, b):
        own, freedom = float(np.var(values, ddof=1)), len(values) - 1
        if math.isinf(worth) or worth > 1e8:
            drawn, total = common, float(pooled)
        else:
            drawn, total = (worth * common + freedom * own) / (worth + freedom), min(worth + freedom, pooled)
        parts.append(drawn / len(values))
        spent += (drawn / len(values)) ** 2 / total
    assert found.error == pytest.approx(math.sqrt(sum(parts)), rel=1e-5)
    assert found.freedom == pytest.approx(sum(parts) ** 2 / spent, rel=1e-4)


def test_runs_without_any_spread_have_an_interval_of_no_width() -> None:
    found = two_arms(runs_of([1.0] * 3), runs_of([0.5] * 3, 100), [runs_of([1.0] * 3)])
    assert found.interval(0.95) == found.interval(0.999) == Interval(0.5, 0.5)


# -- pairs


def test_pairs_without_a_prior_are_students() -> None:
    theirs = [0.1, 0.5, 0.9, 0.3]
    ours = [0.21, 0.59, 1.02, 0.43]
    treated, control = runs_of(ours), runs_of(theirs)
    found = two_arms(treated, control, [treated])
    known = stats.ttest_rel(ours, theirs)
    wanted = known.confidence_interval(0.95)
    assert found.how == "paired by seed"
    assert found.freedom == 3
    assert (found.interval(0.95).low, found.interval(0.95).high) == pytest.approx((wanted.low, wanted.high))


def test_pairs_are_of_one_algorithm_and_seed_and_the_others_are_left_out() -> None:
    control = [*runs_of([0.1, 0.5, 0.9]), Sample(7.0, ("gigpo", 0))]
    treated = [*runs_of([0.2, 0.61, 1.0]), Sample(9.0, ("grpo", 77))]
    assert shared(treated, control) == [("grpo", 0), ("grpo", 1), ("grpo", 2)]
    assert differences(treated, control) == pytest.approx({("grpo", 0): 0.1, ("grpo", 1): 0.11, ("grpo", 2): 0.1})
    assert two_arms(treated, control, [treated]).value == pytest.approx(0.31 / 3)


def test_runs_that_are_the_same_by_definition_are_averaged_before_they_are_paired() -> None:
    control = [*runs_of([0.1, 0.5]), *runs_of([0.3, 0.5])]
    assert by_unit(control) == pytest.approx({("grpo", 0): 0.2, ("grpo", 1): 0.5})
    assert differences(runs_of([1.0, 1.0]), control) == pytest.approx({("grpo", 0): 0.8, ("grpo", 1): 0.5})


def test_the_gain_of_pairing_by_hand() -> None:
    control, cell = runs_of([0.0, 1.0, 2.0]), runs_of([1.0, 2.0, 3.5])
    # differences 1, 1, 1.5: variance 1/12; apart: variances 1 and 19/12
    assert pairing_gain(control, [cell]) == pytest.approx((1 / 12) / (1 + 19 / 12))
    other = runs_of([2.0, 1.0, 0.0])  # differences 2, 0, -2: variance 4, apart 1 + 1
    both = (2 * (1 / 12) + 2 * 4) / (2 * (1 + 19 / 12) + 2 * 2)
    assert pairing_gain(control, [cell, other]) == pytest.approx(both)
    assert pairing_gain(control, [runs_of([1.0, 2.0], first=50)]) == 1.0  # no seed in common
    assert pairing_gain(runs_of([1.0, 1.0]), [runs_of([2.0, 2.0])]) == 1.0  # nothing differs


def test_all_cells_choose_whether_to_pair_and_not_the_effect_alone() -> None:
    control = runs_of([0.0, 1.0, 2.0, 3.0])
    alike, turned = runs_of([0.1, 1.0, 2.1, 3.0]), [runs_of([3.0, 2.0, 1.0, 0.0]) for _ in range(3)]
    assert two_arms(alike, control, [alike]).how == "paired by seed"
    assert two_arms(alike, control, [alike, *turned]).how == "two samples of runs"
    assert two_arms(turned[0], control, [turned[0], *[alike] * 5]).how == "paired by seed"


def test_pairing_must_gain_a_fifth() -> None:
    """Differences have 2 (1 - r) of the variance of one arm: a gain of GAIN is a correlation of 0.2."""
    assert GAIN == 0.8
    base = np.asarray([1.0, -1.0, 1.0, -1.0])
    rest = np.asarray([1.0, 1.0, -1.0, -1.0])  # uncorrelated with it, of the same size
    for correlation, how in ((0.21, "paired by seed"), (0.19, "two samples of runs")):
        ours = correlation * base + math.sqrt(1 - correlation**2) * rest
        treated, control = runs_of(ours.tolist()), runs_of(base.tolist())
        assert pairing_gain(control, [treated]) == pytest.approx(1 - correlation)
        assert two_arms(treated, control, [treated]).how == how


def test_the_spread_of_pairs_is_drawn_towards_that_of_all_pairs() -> None:
    control = runs_of([0.0, 10.0, 20.0, 30.0])
    cells = [runs_of([0.0 + a, 10.0 - a, 20.0 + a, 30.0 - a]) for a in (0.1, 0.2, 0.4)]
    found = two_arms(cells[0], control, cells)
    squares = [4 * a * a / 3 for a in (0.1, 0.2, 0.4)]
    common, worth = naive_prior(squares, [3, 3, 3])
    drawn = common if math.isinf(worth) else (worth * common + 3 * squares[0]) / (worth + 3)
    assert found.how == "paired by seed"
    assert found.error == pytest.approx(math.sqrt(drawn / 4))
    assert found.freedom == pytest.approx(min(worth + 3, 9))


# -- games


def on_kinds(values: Sequence[Sequence[float]], games: Sequence[float], first: int = 0) -> list[Sample]:
    """Runs with a success on each kind."""
    runs: list[Sample] = []
    for n, one in enumerate(values):
        whole = float(np.average(one, weights=games))
        kinds = {f"k{k}": (float(v), float(g)) for k, (v, g) in enumerate(zip(one, games, strict=True))}
        runs.append(Sample(whole, ("grpo", first + n), "", kinds))
    return runs


def test_games_by_hand() -> None:
    """Two kinds, the same number of games of each, no chance: effects of 0.3 and 0.1 lie 0.1 from their mean."""
    treated = on_kinds([[0.8, 0.5]] * 3, [10, 10])
    control = on_kinds([[0.5, 0.4]] * 3, [10, 10], 100)
    # variance of two effects over 2: ((0.1² + 0.1²) / 1) / 2
    assert over_games(treated, control) == pytest.approx(0.01)
    found = two_arms(treated, control, [treated])
    assert found.value == pytest.approx(0.2)
    assert found.fixed == pytest.approx(0.01)
    assert found.error == pytest.approx(0.1)


def test_games_are_weighed_by_how_many_there_are() -> None:
    treated, control = on_kinds([[0.8, 0.5]] * 3, [30, 10]), on_kinds([[0.5, 0.4]] * 3, [30, 10], 100)
    # mean effect 0.25: kinds lie 0.05 and -0.15 from it
    assert over_games(treated, control) == pytest.approx(2 * (0.75**2 * 0.05**2 + 0.25**2 * 0.15**2))


def test_chance_between_runs_is_taken_off() -> None:
    treated = on_kinds([[0.9, 0.5], [0.7, 0.5]], [10, 10])
    control = on_kinds([[0.5, 0.4]] * 2, [10, 10], 100)
    # effects 0.3 and 0.1, squares 2 · 0.1²; a run's kinds lie ±0.2 and ±0.1 from its mean: variance 0.005, over 2 runs
    assert over_games(treated, control) == pytest.approx(2 * 0.25 * (0.02 - 0.0025))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ([[0.8, 0.5], [0.7, 0.4]], [[0.5, 0.2], [0.4, 0.1]]),  # the same effect on each kind
        ([[0.9, 0.3], [0.5, 0.7]], [[0.5, 0.5], [0.5, 0.5]]),  # kinds differ less than runs do
    ],
)
def test_games_add_nothing_where_kinds_do_not_differ_beyond_chance(
    ours: list[list[float]], theirs: list[list[float]]
) -> None:
    assert over_games(on_kinds(ours, [1, 1]), on_kinds(theirs, [1, 1], 100)) == pytest.approx(0, abs=1e-15)


def test_games_need_two_kinds_that_all_were_played_on_and_two_runs() -> None:
    treated, control = on_kinds([[0.8, 0.5]] * 3, [1, 1]), on_kinds([[0.5, 0.4]] * 3, [1, 1], 100)
    bare = [Sample(run.value, run.unit) for run in control]
    assert over_games(treated, bare) == 0.0
    assert over_games(treated[:1], control) == 0.0
    assert over_games(on_kinds([[0.8]] * 3, [1]), on_kinds([[0.1]] * 3, [1], 100)) == 0.0
    third = [*control[:2], Sample(0.4, ("grpo", 9), "", {"k0": (0.4, 1.0), "other": (0.9, 5.0)})]
    assert over_games(treated, third) == 0.0  # one kind in common


def test_effects_that_depend_on_kinds_are_found_in_simulation() -> None:
    """Effects of kinds drawn with variance 0.04; over 6 kinds of equal size their mean has 0.04 / 6."""
    chance, found = np.random.default_rng(5), []
    for _ in range(300):
        kinds = chance.normal(0.1, 0.2, 6)
        runs = [chance.normal(0.4, 0.02, (5, 6)) + extra for extra in (kinds, 0.0)]
        found.append(over_games(*(on_kinds(one.tolist(), [1] * 6, 100 * n) for n, one in enumerate(runs))))
    assert np.mean(found) == pytest.approx(0.04 / 6, rel=0.1)


# -- starts


def test_starts_by_hand() -> None:
    """One-way analysis of variance with random effects: two starts of two runs each."""
    runs = [(1.0, "a"), (3.0, "a"), (6.0, "b"), (8.0, "b")]
    # means 2 and 7, within 2; between 2 · (2.5² + 2.5²) / 1 = 25; (25 - 2) / 2 of variance, over 2 starts
    assert between_starts(runs) == pytest.approx(23 / 2 / 2)


def test_starts_of_different_size_by_hand() -> None:
    runs = [(0.0, "a"), (2.0, "a"), (4.0, "a"), (8.0, "b"), (10.0, "b")]
    grand = 24 / 5
    within = (8 + 2) / 3  # sums of squares 8 and 2, three degrees of freedom
    between = 3 * (2 - grand) ** 2 + 2 * (9 - grand) ** 2
    assert between_starts(runs) == pytest.approx((between - within) / (5 - 13 / 5) / 2)


@pytest.mark.parametrize(
    "runs",
    [
        [(1.0, "a"), (2.0, "a"), (9.0, "a")],  # one start
        [(1.0, "a"), (2.0, "b"), (9.0, "c")],  # a run of each: what comes from starts cannot be told
        [(1.0, "a"), (9.0, "a"), (1.0, "b"), (9.0, "b")],  # no difference between them
        [],
    ],
)
def test_starts_that_add_nothing(runs: list[tuple[float, str]]) -> None:
    assert between_starts(runs) == 0.0


def test_the_variance_of_starts_is_found_in_simulation() -> None:
    chance = np.random.default_rng(6)
    found = []
    for _ in range(2000):
        levels = chance.normal(0, 2.0, 4)
        runs = [(float(chance.normal(level, 0.5)), str(n)) for n, level in enumerate(levels) for _ in range(3)]
        found.append(between_starts(runs))
    assert np.mean(found) == pytest.approx(2.0**2 / 4, rel=0.06)


def test_starts_widen_the_interval_and_make_pairs() -> None:
    control = [*runs_of([0.1, 0.5], start="a"), *runs_of([0.5, 0.2], 2, start="b")]
    treated = [*runs_of([0.3, 0.3], start="a"), *runs_of([0.9, 0.9], 2, start="b")]
    found = two_arms(treated, control, [treated])
    assert found.how == "paired by seed"  # a pair begins from one start
    pairs = [(0.2, "a"), (-0.2, "a"), (0.4, "b"), (0.7, "b")]
    assert found.fixed == pytest.approx(between_starts(pairs))
    own = float(np.var([value for value, _ in pairs], ddof=1))
    assert found.error == pytest.approx(math.sqrt(own / 4 + found.fixed))
    alone = one_arm(treated, [treated])
    assert alone.fixed == pytest.approx(between_starts([(run.value, run.start) for run in treated]))
    assert alone.fixed > 0


# -- all together


def test_one_arm_is_students() -> None:
    values = [0.1, 0.4, 0.2, 0.5]
    found, known = one_arm(runs_of(values), [runs_of(values)]), stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (found.interval(0.95).low, found.interval(0.95).high) == pytest.approx((known.low, known.high))
    assert (found.freedom, found.how) == (3, "")


def test_the_reach_is_half_of_the_interval() -> None:
    found = Estimate(1.0, 0.5, 4, "")
    assert found.reach(0.95) == pytest.approx(found.interval(0.95).high - 1.0) == pytest.approx(1.388223)


STUDIES, SEEDS, CELLS = 400, 5, 12


@pytest.mark.parametrize("one_spread", [True, False], ids=["cells alike", "cells that differ in spread"])
@pytest.mark.parametrize("correlation", [0.0, 0.7])
def test_without_an_effect_the_interval_leaves_it_out_in_5_percent(correlation: float, one_spread: bool) -> None:
    """400 studies of 12 cells of five seeds. What seeds share makes up `correlation` of the variance of a run."""
    chance, outside = np.random.default_rng(11), 0
    for _ in range(STUDIES):
        spread = np.ones(CELLS) if one_spread else np.sqrt(8 / chance.chisquare(8, CELLS))
        seeds, own = chance.normal(size=SEEDS), chance.normal(size=(CELLS, SEEDS))
        values = spread[:, None] * (math.sqrt(correlation) * seeds + math.sqrt(1 - correlation) * own)
        control, *cells = [runs_of(one) for one in values.tolist()]
        around = two_arms(cells[0], control, cells).interval(0.95)
        outside += not around.low <= 0 <= around.high
    assert abs(outside - 0.05 * STUDIES) < 3.3 * math.sqrt(STUDIES * 0.05 * 0.95)


def test_what_cells_share_narrows_the_interval() -> None:
    """The point of it: with five seeds the moderated interval is on average narrower than Student's alone."""
    chance, ours, alone = np.random.default_rng(12), 0.0, 0.0
    for _ in range(100):
        control, *cells = [runs_of(one) for one in chance.normal(size=(CELLS, SEEDS)).tolist()]
        ours += two_arms(cells[0], control, cells).reach(0.95)
        alone += two_arms(cells[0], control, cells[:1]).reach(0.95)
    assert ours < 0.95 * alone
