"""How much an entropy curve moves and how it erupts."""

from __future__ import annotations

import random
from statistics import pvariance

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isentrope.diagnosis.phases import find_phases
from isentrope.study.measures import eruptions, variance


@given(st.lists(st.floats(-100, 100).map(lambda value: round(value, 6)), min_size=2, max_size=30))
def test_variance(values: list[float]) -> None:
    assert variance(values) == pytest.approx(pvariance(values), abs=1e-6)
    assert variance(values[:1]) is None


def test_an_eruption_is_counted_with_its_height() -> None:
    """Level 0.2, then 1.0 for ten steps, then back."""
    numbers = random.Random(1)
    curve = [level + numbers.gauss(0, 0.005) for level in [0.2] * 40 + [1.0] * 10 + [0.2] * 40]
    assert eruptions(tuple(range(1, 91)), tuple(curve)) == (pytest.approx(0.8, abs=0.03),)
    assert len(find_phases(range(1, 91), curve).eruptions) == 1
    assert eruptions(tuple(range(1, 41)), tuple(curve[:40])) == eruptions((), ()) == ()
