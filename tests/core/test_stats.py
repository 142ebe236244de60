from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isentrope.core.stats import (
    Interval,
    Share,
    correlation_of,
    difference_of,
    effective_of_steps,
    least_difference,
    mean_and_std,
    share_from,
    share_of,
    student_quantile,
    welch,
    wilson,
)


def near(*values: float) -> object:
    return pytest.approx(values, abs=6e-5)


def ends(around: Interval) -> tuple[float, float]:
    return around.low, around.high


def width(around: Interval) -> float:
    return around.high - around.low


@pytest.mark.parametrize(("successes", "count", "low", "high"), [
    (81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718),
])  # fmt: skip
def test_wilson_against_published_values(successes: int, count: int, low: float, high: float) -> None:
    """Newcombe 1998, table I, method 3 (score without continuity correction)."""
    assert ends(wilson(successes, count)) == pytest.approx((low, high), abs=5e-5)


def test_wilson_holds_the_share_and_is_symmetric() -> None:
    assert wilson(0, 0) == Interval(0.0, 1.0)
    for n in range(1, 60):
        for successes in range(n + 1):
            around, mirrored = wilson(successes, n), wilson(n - successes, n)
            assert 0 <= around.low <= successes / n <= around.high <= 1
            assert (1 - mirrored.high, 1 - mirrored.low) == pytest.approx(ends(around))


def test_ends_that_a_value_cannot_have() -> None:
    assert Interval(-0.2, 0.4).within(0.0, 1.0) == Interval(0.0, 0.4)
    assert [Interval(*ends).sign for ends in ((0.1, 0.2), (-0.2, -0.1), (-0.1, 0.1), (0.0, 0.1))] == [1, -1, 0, 0]


def test_wilson_by_hand() -> None:
    share = share_of([1] * 8 + [0] * 2, [1] * 10)
    assert (share.low, share.high) == near(0.4902, 0.9433)
    assert (share.value, share.games, share.episodes, share.effective) == (0.8, 10, 10, 10.0)
    none = share_of([0] * 10, [1] * 10)
    assert (none.low, none.high) == near(0.0, 0.2775)


@pytest.mark.parametrize(("wins", "effective"), [
    ([2, 1, 1, 0], 6.0),  # residuals 1, 0, 0, 1: variance 2·4/3/64, so 0.25/0.041667
    ([2, 2, 0, 0], 4.0),  # all of a game alike: 0.25/0.08333 = 3, but four games are four
    ([1, 1, 1, 1], 8.0),  # games do not differ at all: all episodes count
    ([2, 2, 2, 2], 4.0),  # nothing varies: the careful number
])  # fmt: skip
def test_clustered_by_hand(wins: list[int], effective: float) -> None:
    share = share_of(wins, [2] * 4)
    assert share.effective == pytest.approx(effective)
    assert (share.low, share.high) == pytest.approx(ends(wilson(share.value * effective, effective)))


def test_clustered_with_unequal_numbers_of_episodes() -> None:
    share = share_of([3, 0, 1], [3, 2, 1])  # value 4/6; residuals (3 - 2)², (0 - 4/3)², (1 - 2/3)²
    variance = (1 + 16 / 9 + 1 / 9) * 3 / 2 / 36
    assert share.effective == pytest.approx(max(3.0, (4 / 6) * (2 / 6) / variance))


@given(st.lists(st.integers(0, 1), min_size=1, max_size=60), st.integers(2, 6))
def test_copies_of_an_episode_teach_nothing(wins: list[int], copies: int) -> None:
    once, often = share_of(wins, [1] * len(wins)), share_of([copies * won for won in wins], [copies] * len(wins))
    assert (once.low, once.high) == pytest.approx((often.low, often.high))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5)), min_size=1, max_size=30))
def test_the_share_lies_in_its_interval(games: list[tuple[int, int]]) -> None:
    wins, played = [min(won, count) for won, count in games], [count for _, count in games]
    share = share_of(wins, played)
    assert 0 <= share.low <= share.value <= share.high <= 1
    assert len(games) <= share.effective <= sum(played) or share.effective == len(games)


def test_coverage_of_the_clustered_interval() -> None:
    """Games of very different difficulty, eight episodes each: Wilson on the episodes would be far too sure."""
    rng = np.random.default_rng(0)
    covered, naive = 0, 0
    for _ in range(400):
        wins = rng.binomial(8, rng.beta(0.5, 0.5, 40))
        share = share_of([int(won) for won in wins], [8] * 40)
        covered += share.low <= 0.5 <= share.high
        around = wilson(int(wins.sum()), 320)
        naive += around.low <= 0.5 <= around.high
    assert 0.92 <= covered / 400 <= 0.98
    assert naive / 400 < 0.75


def test_difference_of_independent_shares() -> None:
    """Newcombe's own example: 56 of 70 against 48 of 80."""
    found = difference_of(share_of([1] * 56 + [0] * 14, [1] * 70), share_of([1] * 48 + [0] * 32, [1] * 80))
    assert (found.value, *ends(found.interval)) == near(0.2, 0.0524, 0.3339)


def test_difference_of_paired_shares_by_hand() -> None:
    """20 games solved by both, 12 by the first alone, 2 by the second alone, 16 by neither."""
    first = [1] * 20 + [1] * 12 + [0] * 2 + [0] * 16
    second = [1] * 20 + [0] * 12 + [1] * 2 + [0] * 16
    rates = [dict(enumerate(map(float, wins))) for wins in (first, second)]
    related = correlation_of(rates[0], rates[1], 50)
    assert related == pytest.approx((20 * 16 - 12 * 2 - 50 / 2) / math.sqrt(32 * 18 * 22 * 28))
    found = difference_of(share_of(first, [1] * 50), share_of(second, [1] * 50), related)
    assert (found.value, *ends(found.interval)) == near(0.2, 0.0562, 0.3292)
    apart = difference_of(share_of(first, [1] * 50), share_of(second, [1] * 50))
    assert width(apart.interval) > width(found.interval)


def test_the_correlation_is_corrected_downwards_alone() -> None:
    rising, falling = dict(enumerate([0.0, 0.0, 1.0, 1.0])), dict(enumerate([1.0, 1.0, 0.0, 0.0]))
    assert correlation_of(rising, rising, 4) == pytest.approx((4 - 2) / 4)  # 2·2 less half of 4 games, over √(2·2·2·2)
    assert correlation_of(rising, rising, 1) == 0.0
    assert correlation_of(rising, falling, 4) == pytest.approx(-1.0)
    assert correlation_of(rising, dict.fromkeys(rising, 1.0), 4) == 0.0


@given(st.integers(1, 30), st.integers(1, 30))
def test_the_same_games_solved_is_no_certainty(won: int, lost: int) -> None:
    wins, games = [1] * won + [0] * lost, won + lost
    rates, share = dict(enumerate(map(float, wins))), share_of(wins, [1] * games)
    same = difference_of(share, share, correlation_of(rates, rates, games))
    assert same.interval.low < 0.0 < same.interval.high


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=2, max_size=40))
def test_turning_the_difference_round(pairs: list[tuple[int, int]]) -> None:
    first, second = (share_of([pair[i] for pair in pairs], [1] * len(pairs)) for i in (0, 1))
    rates = [{game: float(pair[i]) for game, pair in enumerate(pairs)} for i in (0, 1)]
    related = correlation_of(rates[0], rates[1], len(pairs))
    one, other = difference_of(first, second, related), difference_of(second, first, related)
    assert (one.value, *ends(one.interval)) == pytest.approx((-other.value, -other.interval.high, -other.interval.low))
    same = difference_of(first, first, 1.0)
    assert same.value == 0.0
    assert same.interval.low <= 0.0 <= same.interval.high


def test_coverage_of_the_paired_interval() -> None:
    rng = np.random.default_rng(1)
    covered, widths = 0, [0.0, 0.0]
    for _ in range(400):
        ease = rng.random(80)
        first, second = (rng.random(80) < np.sqrt(ease)), (rng.random(80) < ease)
        shares = [share_of([int(won) for won in wins], [1] * 80) for wins in (first, second)]
        rates = [{game: float(won) for game, won in enumerate(wins)} for wins in (first, second)]
        found, apart = difference_of(*shares, correlation_of(*rates, 80)), difference_of(*shares)
        covered += found.interval.low <= 1 / 6 <= found.interval.high  # 2/3 - 1/2
        widths = [widths[0] + width(found.interval), widths[1] + width(apart.interval)]
    assert 0.91 <= covered / 400 <= 0.98  # 94.8 % over 6000 repetitions
    assert widths[0] < 0.95 * widths[1]


@pytest.mark.parametrize(("freedom", "quantile"), [
    (1, 12.7062), (1.5, 6.0167), (2, 4.3027), (4, 2.7764), (10, 2.2281), (30, 2.0423), (1000, 1.9623),
])  # fmt: skip
def test_students_quantile(freedom: float, quantile: float) -> None:
    assert student_quantile(0.95, freedom) == pytest.approx(quantile, rel=1e-4)


def test_welch_by_hand() -> None:
    found = welch([1.0, 2.0, 3.0], [4.0, 5.0, 6.0])  # four degrees of freedom, standard error √(2/3)
    half = 2.7764 * math.sqrt(2 / 3)
    assert found is not None
    assert (found.value, *ends(found.interval)) == pytest.approx((-3.0, -3.0 - half, -3.0 + half), abs=1e-3)
    assert welch([1.0, 1.0], [0.5, 0.5]) is None  # nothing is known of how seeds differ
    assert welch([1.0, 1.0], [0.5, 0.6]) is not None


def test_mean_and_std() -> None:
    assert mean_and_std([3.0]) == (3.0, None)
    assert mean_and_std([1.0, 2.0, 3.0]) == (2.0, 1.0)


def test_the_level_of_an_interval() -> None:
    """Newcombe's values are those of 95 %; another level is Wilson's formula with another quantile."""
    assert ends(share_from(81 / 263, 263, 263, 263.0, 0.95).interval) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    z, p, n = 2.5758293, 0.25, 40.0
    centre, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = ((centre + sign * half) / (1 + z * z / n) for sign in (-1, 1))
    assert ends(share_from(p, 40, 40, n, 0.99).interval) == pytest.approx((low, high), abs=1e-6)


@pytest.mark.parametrize(("size", "alike", "low", "high"), [(8, False, 0.6, 1.0), (8, True, 0.125, 0.16)])
def test_what_a_step_is_worth(size: int, alike: bool, low: float, high: float) -> None:
    """Independent episodes count nearly in full, and those of a group that all do the same as one; never for more."""
    rng = np.random.default_rng(3)
    worth: list[float] = []
    for _ in range(100):
        count = 12 if alike else 12 * size
        shares = [float(wins) / count for wins in rng.binomial(count, 0.4, 60)]
        worth.append(effective_of_steps(shares, 12, size) / (12 * size))
    assert low <= float(np.mean(worth)) <= high
    assert 1 / size <= min(worth)
    assert max(worth) <= 1
    assert effective_of_steps([0.2, 0.5], 12, size) == 12  # too few steps to tell: the groups
    assert effective_of_steps([0.0] * 40, 12, size) == 12  # nothing varies


def test_the_least_difference_is_the_first_that_shows() -> None:
    for share, count in ((0.0, 16.0), (0.5, 16.0), (0.9, 200.0)):
        least = least_difference(share, count, count, 0.95)
        before = share_from(share, 0, 0, count, 0.95)

        def shows(distance: float, share: float = share, count: float = count, before: Share = before) -> bool:
            afters = [value for value in (share + distance, share - distance) if 0 <= value <= 1]
            return any(difference_of(share_from(at, 0, 0, count, 0.95), before).interval.sign for at in afters)

        assert shows(least)
        assert not shows(least - 0.01)
    assert least_difference(0.5, 16, 16, 0.99) > least_difference(0.5, 16, 16, 0.95)
