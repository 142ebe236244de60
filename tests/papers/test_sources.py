"""What games and starts add to an error: by hand and in simulation."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from isentrope.papers.inference import TWO_SAMPLES, Part, Sample, between_starts, one_arm, over_games, two_arms
from tests.papers.test_inference import runs_of

# -- games


def on_kinds(values: Sequence[Sequence[float]], games: Sequence[float], first: int = 0) -> list[Sample]:
    """Runs with a success on each kind."""
    runs: list[Sample] = []
    for n, one in enumerate(values):
        whole = float(np.average(one, weights=games))
        kinds = {f"k{k}": (float(v), float(g)) for k, (v, g) in enumerate(zip(one, games, strict=True))}
        runs.append(Sample(whole, ("grpo", first + n, ""), kinds))
    return runs


def test_games_by_hand() -> None:
    """Two kinds, the same number of games of each, no chance: effects of 0.3 and 0.1 lie 0.1 from their mean."""
    treated = on_kinds([[0.8, 0.5]] * 3, [10, 10])
    control = on_kinds([[0.5, 0.4]] * 3, [10, 10], 100)
    # variance of two effects over 2: ((0.1² + 0.1²) / 1) / 2
    assert over_games(treated, control) == Part(pytest.approx(0.01), 1)
    found = two_arms(treated, control, [])
    assert found.value == pytest.approx(0.2)
    assert found.fixed == pytest.approx(0.01)
    assert found.error == pytest.approx(0.1)
    assert found.freedom == pytest.approx(1)  # seeds add nothing here, so two kinds are all that is known


def test_three_kinds_have_two_degrees_of_freedom() -> None:
    treated, control = on_kinds([[0.8, 0.5, 0.2]] * 3, [1] * 3), on_kinds([[0.5, 0.4, 0.3]] * 3, [1] * 3, 100)
    # effects 0.3, 0.1, -0.1: variance 0.04, over 3 kinds
    assert over_games(treated, control) == Part(pytest.approx(0.04 / 3), 2)


def test_games_are_weighed_by_how_many_there_are() -> None:
    treated, control = on_kinds([[0.8, 0.5]] * 3, [30, 10]), on_kinds([[0.5, 0.4]] * 3, [30, 10], 100)
    # mean effect 0.25: kinds lie 0.05 and -0.15 from it
    assert over_games(treated, control).variance == pytest.approx(2 * (0.75**2 * 0.05**2 + 0.25**2 * 0.15**2))


def test_chance_between_runs_is_taken_off() -> None:
    treated = on_kinds([[0.9, 0.5], [0.7, 0.5]], [10, 10])
    control = on_kinds([[0.5, 0.4]] * 2, [10, 10], 100)
    # effects 0.3 and 0.1, squares 2 · 0.1²; a run's kinds lie ±0.2 and ±0.1 from its mean: variance 0.005, over 2 runs
    # K / (K - 1) = 2 multiplies what is left; 0.005 / 2 each of two kinds, of weight 1/4 each
    assert over_games(treated, control).variance == pytest.approx(2 * 0.25 * (0.02 - 0.005))


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
    found = over_games(on_kinds(ours, [1, 1]), on_kinds(theirs, [1, 1], 100))
    assert found.variance == pytest.approx(0, abs=1e-15)


def test_games_need_two_kinds_that_all_were_played_on_and_two_runs() -> None:
    treated, control = on_kinds([[0.8, 0.5]] * 3, [1, 1]), on_kinds([[0.5, 0.4]] * 3, [1, 1], 100)
    bare = [Sample(run.value, run.unit) for run in control]
    assert over_games(treated, bare) == Part()
    assert over_games(treated[:1], control) == Part()
    assert over_games(on_kinds([[0.8]] * 3, [1]), on_kinds([[0.1]] * 3, [1], 100)) == Part()
    third = [*control[:2], Sample(0.4, ("grpo", 9, ""), {"k0": (0.4, 1.0), "other": (0.9, 5.0)})]
    assert over_games(treated, third) == Part()  # one kind in common


def test_effects_that_depend_on_kinds_are_found_in_simulation() -> None:
    """Effects of kinds drawn with variance 0.04; over 6 kinds of equal size their mean has 0.04 / 6."""
    chance, found = np.random.default_rng(5), []
    for _ in range(300):
        kinds = chance.normal(0.1, 0.2, 6)
        runs = [chance.normal(0.4, 0.02, (5, 6)) + extra for extra in (kinds, 0.0)]
        found.append(over_games(*(on_kinds(one.tolist(), [1] * 6, 100 * n) for n, one in enumerate(runs))).variance)
    assert np.mean(found) == pytest.approx(0.04 / 6, rel=0.1)


# -- starts


def test_starts_by_hand() -> None:
    """One-way analysis of variance with random effects: two starts of two runs each."""
    runs = [(1.0, "a"), (3.0, "a"), (6.0, "b"), (8.0, "b")]
    # means 2 and 7, within 2; between 2 · (2.5² + 2.5²) / 1 = 25; (25 - 2) / 2 of variance, over 2 starts
    assert between_starts(runs) == Part(pytest.approx(23 / 2 / 2), 1, caps=True)


def test_starts_of_different_size_by_hand() -> None:
    runs = [(0.0, "a"), (2.0, "a"), (4.0, "a"), (8.0, "b"), (10.0, "b")]
    grand = 24 / 5
    within = (8 + 2) / 3  # sums of squares 8 and 2, three degrees of freedom
    between = 3 * (2 - grand) ** 2 + 2 * (9 - grand) ** 2
    assert between_starts(runs) == Part(pytest.approx((between - within) / (5 - 13 / 5) / 2), 1, caps=True)


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
    assert between_starts(runs).variance == 0.0


def test_the_variance_of_starts_is_found_in_simulation() -> None:
    chance = np.random.default_rng(6)
    found = []
    for _ in range(2000):
        levels = chance.normal(0, 2.0, 4)
        runs = [(float(chance.normal(level, 0.5)), str(n)) for n, level in enumerate(levels) for _ in range(3)]
        part = between_starts(runs)
        assert part.freedom == 3
        found.append(part.variance)
    assert np.mean(found) == pytest.approx(2.0**2 / 4, rel=0.06)


def test_starts_widen_the_interval_and_make_pairs() -> None:
    control = [*runs_of([0.1, 0.5], start="a"), *runs_of([0.5, 0.2], 2, start="b")]
    treated = [*runs_of([0.3, 0.3], start="a"), *runs_of([0.9, 0.9], 2, start="b")]
    found = two_arms(treated, control, [])
    assert found.how == "paired by seed"  # a pair begins from one start
    pairs = [(0.2, "a"), (-0.2, "a"), (0.4, "b"), (0.7, "b")]
    starts = between_starts(pairs)
    assert found.fixed == pytest.approx(starts.variance)
    own = float(np.var([value for value, _ in pairs], ddof=1)) / 4
    assert found.error == pytest.approx(math.sqrt(own + starts.variance))
    assert found.freedom == 1  # two starts: Satterthwaite's 2.3 is more than they tell
    alone = one_arm(treated, [treated])
    assert alone.fixed == pytest.approx(between_starts([(run.value, run.unit[2]) for run in treated]).variance)
    assert alone.fixed > 0


def test_starts_that_arms_do_not_share_widen_both_of_two_samples() -> None:
    values = {"a": [0.1, 0.5], "b": [0.8, 0.9], "c": [0.5, 0.2], "d": [2.0, 2.3]}
    arms = [[Sample(v, ("grpo", n, one)) for one in names for n, v in enumerate(values[one])] for names in ("ab", "cd")]
    found = two_arms(*arms, [])
    parts = [between_starts([(run.value, run.unit[2]) for run in arm]).variance for arm in arms]
    assert found.how == TWO_SAMPLES
    assert found.fixed == pytest.approx(sum(parts))
    assert min(parts) > 0
