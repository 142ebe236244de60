"""Quantiles and special functions against printed tables and scipy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from isentrope.core.stats import (
    chi_square_quantiles,
    digamma,
    inverse_trigamma,
    normal_below,
    student_quantile,
    trigamma,
)


@pytest.mark.parametrize(
    ("freedom", "level", "printed"),
    [
        (1, 0.95, 12.706), (2, 0.95, 4.303), (4, 0.95, 2.776), (4, 0.99, 4.604), (9, 0.98, 2.821), (29, 0.95, 2.045),
        (10, 0.9, 1.812), (60, 0.95, 2.000), (120, 0.99, 2.617),
    ],
)  # fmt: skip
def test_student_as_in_printed_tables(freedom: int, level: float, printed: float) -> None:
    assert student_quantile(level, freedom) == pytest.approx(printed, abs=6e-4)


@pytest.mark.parametrize(("level", "printed"), [(0.9, 1.645), (0.95, 1.960), (0.99, 2.576), (0.999, 3.291)])
def test_normal_as_in_printed_tables(level: float, printed: float) -> None:
    assert student_quantile(level, 1e9) == pytest.approx(printed, abs=6e-4)
    below = normal_below(np.asarray([-printed, 0.0, printed]))
    assert below == pytest.approx([(1 - level) / 2, 0.5, (1 + level) / 2], abs=1e-4)


@pytest.mark.parametrize(
    ("share", "freedom", "printed"), [(0.95, 1, 3.841), (0.95, 10, 18.307), (0.05, 10, 3.940), (0.5, 4, 3.357)]
)
def test_chi_square_as_in_printed_tables(share: float, freedom: int, printed: float) -> None:
    assert chi_square_quantiles(np.asarray([share]), freedom) == pytest.approx([printed], abs=6e-4)


def test_digamma_and_trigamma_at_known_points() -> None:
    assert digamma(np.asarray([1.0, 0.5])) == pytest.approx([-np.euler_gamma, -np.euler_gamma - 2 * np.log(2)])
    assert trigamma(np.asarray([1.0, 0.5])) == pytest.approx([np.pi**2 / 6, np.pi**2 / 2])


@given(st.floats(-6.5, 8).map(lambda power: 10.0**power))
def test_inverse_trigamma_undoes_trigamma(value: float) -> None:
    assert float(special.polygamma(1, inverse_trigamma(value))) == pytest.approx(value, rel=2e-4)


@given(st.floats(-2.5, 4).map(lambda power: 10.0**power))
def test_and_exactly_where_it_is_used(x: float) -> None:
    assert inverse_trigamma(float(special.polygamma(1, x))) == pytest.approx(x, rel=1e-7)
