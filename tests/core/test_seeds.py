"""Means over seeds with their intervals, against naive references and numbers computed by hand."""

from __future__ import annotations

import math
import random
from itertools import product
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isentrope.core.stats import band, bootstrap, median_of, paired

numbers = st.floats(-100, 100).map(lambda value: round(value, 6))
seeds = st.lists(numbers, min_size=2, max_size=9)


def test_three_seeds_have_students_interval() -> None:
    """1, 2, 3: mean 2, deviation 1, t(2) = 4.303, so 2 ± 4.303/√3."""
    found = bootstrap([1.0, 2.0, 3.0])
    assert found.value == 2.0
    assert found.low == pytest.approx(2 - 4.3027 / math.sqrt(3), abs=1e-3)
    assert found.high == pytest.approx(2 + 4.3027 / math.sqrt(3), abs=1e-3)
    assert found.count == 3


def test_one_seed_has_no_interval() -> None:
    found = bootstrap([4.0])
    assert (found.value, found.low, found.high, found.count, found.sign) == (4.0, None, None, 1, 0)


def test_skewed_seeds_have_a_skewed_interval() -> None:
    """With an outlier among many seeds the bootstrap reaches further on its side than Student's interval does."""
    values = [0.0] * 11 + [12.0]
    found = bootstrap(values)
    half = 2.201 * stdev(values) / math.sqrt(12)  # t(11) = 2.201
    assert found.high is not None
    assert found.high > 1.0 + half + 0.2
    assert found.low == pytest.approx(1.0 - half, abs=0.01)


def test_the_expanded_percentiles_are_hesterbergs() -> None:
    """n = 4, t(3) = 3.182: the tail is Φ(-√(4/3)·3.182) = 0.000119; of 256 resamples nearly the extremes."""
    values = [0.0, 0.0, 0.0, 4.0]
    means = sorted(fmean(chosen) for chosen in product(values, repeat=4))
    found = bootstrap(values)
    half = 3.1824 * stdev(values) / 2
    assert found.high == pytest.approx(max(1 + half, means[-1] - 0.03 * (means[-1] - means[-2])), abs=0.02)


@given(seeds)
def test_an_interval_holds_its_mean_and_is_no_narrower_than_students(values: list[float]) -> None:
    found = bootstrap(values)
    assert found.low is not None and found.high is not None  # noqa: PT018
    assert found.low <= found.value + 1e-9 and found.value <= found.high + 1e-9  # noqa: PT018
    assert found.high - found.low >= 2 * 1.95 * stdev(values) / math.sqrt(len(values)) - 1e-6


@given(seeds, numbers, st.floats(0.1, 10))
def test_an_interval_moves_and_grows_with_the_values(values: list[float], by: float, times: float) -> None:
    before, after = bootstrap(values), bootstrap([by + times * value for value in values])
    assert before.low is not None and after.low is not None  # noqa: PT018
    assert after.low == pytest.approx(by + times * before.low, abs=1e-4)


def test_an_interval_covers() -> None:
    """Of 400 experiments with five seeds about 95 % have the truth in their interval; 90 % at the very least."""
    numbers = random.Random(5)
    held = 0
    for _ in range(400):
        found = bootstrap([numbers.gauss(1.0, 2.0) for _ in range(5)])
        held += found.low is not None and found.high is not None and found.low <= 1.0 <= found.high
    assert 0.92 <= held / 400 <= 0.99


def test_pairs_are_of_one_seed() -> None:
    """Seed 2 has no partner. The differences are 0.1 and 0.3, whatever else the seeds do."""
    found = paired({0: 0.5, 1: 0.9, 2: 0.1}, {1: 0.6, 0: 0.4, 3: 7.0})
    assert found is not None
    assert found.value == pytest.approx(0.2)
    assert found.count == 2
    assert paired({0: 1.0}, {1: 1.0}) is None


def test_the_sign_is_that_of_an_interval_clear_of_zero() -> None:
    assert bootstrap([1.0, 1.1, 0.9, 1.05]).sign == 1
    assert bootstrap([-1.0, -1.1, -0.9, -1.05]).sign == -1
    assert bootstrap([-1.0, 1.0, 0.5]).sign == 0


@pytest.mark.parametrize(
    ("values", "median"),
    [([3.0, 1.0, 2.0], 2.0), ([1.0, None, 3.0], 3.0), ([1.0, None, None], None), ([1.0, 3.0], 2.0), ([1.0, None], None),
     ([], None)],
)  # fmt: skip
def test_a_seed_that_never_gets_there_is_later_than_all(values: list[float | None], median: float | None) -> None:
    assert median_of(values) == median


def test_a_band_has_the_steps_that_all_seeds_have() -> None:
    found = band([((0, 10, 20), (0.1, 0.2, 0.3)), ((0, 20), (0.3, 0.5))])
    assert found.steps == (0, 20)
    assert [point.value for point in found.points] == pytest.approx([0.2, 0.4])
    assert band([]).steps == ()
