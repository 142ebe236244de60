"""Seeds that are compared with each other: when, and with which error."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from isentrope.papers import judge
from isentrope.papers.inference import (
    GAIN,
    TELLING,
    TWO_SAMPLES,
    Estimate,
    Sample,
    differences,
    pairing_gain,
    shared,
    two_arms,
)
from tests.papers.made import made_study, solving
from tests.papers.scenarios import HOLDS, SCENARIOS
from tests.papers.test_claims import only
from tests.papers.test_inference import naive_prior, runs_of


def alike(control: Sequence[float], count: int, shift: float = 0.01) -> list[list[Sample]]:
    """Cells whose runs go with those of the control, up to a little."""
    chance = np.random.default_rng(1)
    return [runs_of((np.asarray(control) + shift * chance.normal(size=len(control))).tolist()) for _ in range(count)]


def test_pairs_without_a_prior_are_students() -> None:
    """Two cells of seven seeds tell that pairing gains, twelve degrees of freedom, but no common spread."""
    theirs = [0.1, 0.5, 0.9, 0.3, 0.7, 0.2, 0.6]
    ours = [0.21, 0.59, 1.02, 0.43, 0.8, 0.3, 0.75]
    found = two_arms(runs_of(ours), runs_of(theirs), alike(theirs, 2))
    known = stats.ttest_rel(ours, theirs)
    wanted = known.confidence_interval(0.95)
    assert found.how == "paired by seed"
    assert found.freedom == 6
    assert (found.interval(0.95).low, found.interval(0.95).high) == pytest.approx((wanted.low, wanted.high))


def test_pairs_are_of_one_algorithm_seed_and_start_and_the_others_are_left_out() -> None:
    theirs = [0.1, 0.5, 0.9]
    control = [*runs_of(theirs), Sample(7.0, ("gigpo", 0, "")), Sample(5.0, ("grpo", 5, "a"))]
    treated = [*runs_of([0.2, 0.61, 1.0]), Sample(9.0, ("grpo", 77, "")), Sample(8.0, ("grpo", 5, "b"))]
    units = [("grpo", n, "") for n in range(3)]
    assert shared(treated, control) == units
    assert differences(treated, control) == pytest.approx(dict(zip(units, (0.1, 0.11, 0.1), strict=True)))
    found = two_arms(treated, control, alike(theirs, 6))
    assert (found.how, found.value) == ("paired by seed", pytest.approx(0.31 / 3))


def test_the_gain_of_pairing_by_hand() -> None:
    control, cell = runs_of([0.0, 1.0, 2.0]), runs_of([1.0, 2.0, 3.5])
    # differences 1, 1, 1.5: variance 1/12; apart: variances 1 and 19/12; six cells of two degrees of freedom
    assert pairing_gain(control, [cell] * 6) == pytest.approx((1 / 12) / (1 + 19 / 12))
    assert pairing_gain(control, [cell] * 5) == 1.0  # ten are too few to tell
    other = runs_of([2.0, 1.0, 0.0])  # differences 2, 0, -2: variance 4, apart 1 + 1
    both = (2 * (1 / 12) + 2 * 4) / (2 * (1 + 19 / 12) + 2 * 2)
    assert pairing_gain(control, [cell, other] * 3) == pytest.approx(both)
    assert pairing_gain(control, [runs_of([1.0, 2.0], first=50)] * 20) == 1.0  # no seed in common
    assert pairing_gain(runs_of([1.0, 1.0]), [runs_of([2.0, 2.0])] * 20) == 1.0  # nothing differs
    assert TELLING == 12


def test_the_other_cells_choose_whether_to_pair_and_not_the_one_that_is_judged() -> None:
    levels = [0.0, 1.0, 2.0, 3.0]
    control, same, turned = runs_of(levels), alike(levels, 4), [runs_of(levels[::-1])] * 4
    for judged in (same[0], turned[0]):
        assert two_arms(judged, control, same).how == "paired by seed"
        assert two_arms(judged, control, turned).how == TWO_SAMPLES
        assert two_arms(judged, control, same[:3]).how == TWO_SAMPLES  # nine degrees of freedom tell nothing
        assert two_arms(judged, control, []).how == TWO_SAMPLES


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=5, max_size=5), st.booleans())
def test_the_differences_of_the_judged_cell_do_not_influence_whether_it_is_paired(
    judged: list[float], goes_with: bool
) -> None:
    """However near to the control its runs are, or far from it: a choice that looked would find what it looked for."""
    levels = [0.0, 1.0, 2.0, 3.0, 4.0]
    cells = alike(levels, 3) if goes_with else [runs_of(levels[::-1])] * 3
    wanted = "paired by seed" if goes_with else TWO_SAMPLES
    assert two_arms(runs_of(judged), runs_of(levels), cells).how == wanted
    assert two_arms(runs_of(levels), runs_of(levels), cells).how == wanted


def test_pairing_must_gain_two_fifths() -> None:
    """Differences have 2 (1 - r) of the variance of one arm: a gain of GAIN is a correlation of 0.4."""
    assert GAIN == 0.6
    base = np.asarray([1.0, -1.0, 1.0, -1.0])
    rest = np.asarray([1.0, 1.0, -1.0, -1.0])  # uncorrelated with it, of the same size
    control, judged = runs_of(base.tolist()), runs_of([0.3, 0.1, 0.9, 0.2])
    for correlation, how in ((0.41, "paired by seed"), (0.39, TWO_SAMPLES)):
        cell = runs_of((correlation * base + math.sqrt(1 - correlation**2) * rest).tolist())
        assert pairing_gain(control, [cell] * 4) == pytest.approx(1 - correlation)
        assert two_arms(judged, control, [cell] * 4).how == how


def test_the_spread_of_pairs_is_raised_towards_that_of_the_others_pairs() -> None:
    """What they lend is at most what the pairs have themselves, since all of them share the control."""
    control = runs_of([0.0, 10.0, 20.0, 30.0])
    cells = [runs_of([0.0 + a, 10.0 - a, 20.0 + a, 30.0 - a]) for a in (0.3, 0.4, 0.5, 0.6)]
    treated = runs_of([0.1, 9.9, 20.1, 29.9])
    found = two_arms(treated, control, cells)
    common, worth = naive_prior([4 * a * a / 3 for a in (0.3, 0.4, 0.5, 0.6)], [3] * 4)
    lent = min(worth, 6.0, 3.0)
    drawn = (lent * common + 3 * 0.04 / 3) / (lent + 3)
    assert (found.how, lent) == ("paired by seed", 3.0)
    assert found.error == pytest.approx(math.sqrt(drawn / 4))
    assert found.freedom == pytest.approx(6)
    wild = two_arms(runs_of([5.0, 5.0, 25.0, 25.0]), control, cells)
    assert wild.error == pytest.approx(math.sqrt(100 / 3 / 4))  # differences ±5, and never lowered


def test_pairs_of_seven_seeds_borrow_six_degrees_of_freedom_at_most() -> None:
    levels = list(range(10))
    cells = [runs_of([level + a * (-1) ** level for level in levels]) for a in (0.3, 0.31, 0.29, 0.3)]
    found = two_arms(cells[0], runs_of(levels), cells[1:])
    assert found.freedom == pytest.approx(9 + 6)


def test_the_judged_runs_are_not_among_the_cells_that_decide_on_pairing(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[set[float], set[float]]] = []
    real = judge.two_arms

    def spy(ours: list[Sample], theirs: list[Sample], cells: list[list[Sample]], expected: float) -> Estimate:
        judged = {one.value for one in (*ours, *theirs)}
        seen.append((judged, {one.value for cell in cells for one in cell}))
        return real(ours, theirs, cells, expected)

    monkeypatch.setattr(judge, "two_arms", spy)
    study = SCENARIOS["E6"](HOLDS)
    levels = {name: 0.2 + 0.01 * n for n, name in enumerate(dict.fromkeys(run.cell for run in study.runs))}
    runs = [solving(run, levels[run.cell] + 0.0001 * run.seed) for run in study.runs]
    only("E6", made_study(runs))
    assert len(seen) == 2
    for judged, others in seen:
        assert len(judged) == len(others) == 10
        assert not judged & others
