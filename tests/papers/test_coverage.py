"""How often intervals leave out what is true, in simulation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from isentrope.papers.inference import Sample, two_arms
from tests.papers.test_inference import runs_of

STUDIES, SEEDS, CELLS = 400, 5, 12
FEWEST, MOST = 0.005 * STUDIES, 0.05 * STUDIES + 3.3 * math.sqrt(STUDIES * 0.05 * 0.95)


def missed(values: Sequence[Sequence[float]]) -> bool:
    """Whether the interval of the second row against the first leaves out 0."""
    control, treated, *cells = [runs_of(one) for one in values]
    around = two_arms(treated, control, cells).interval(0.95)
    return not around.low <= 0 <= around.high


@pytest.mark.parametrize("one_spread", [True, False], ids=["cells alike", "cells that differ in spread"])
@pytest.mark.parametrize("correlation", [0.0, 0.7])
def test_without_an_effect_the_interval_leaves_it_out_in_5_percent(correlation: float, one_spread: bool) -> None:
    """400 studies of 12 cells of five seeds. What seeds share makes up `correlation` of the variance of a run. Spreads
    are only ever raised, so it may be less often."""
    chance, outside = np.random.default_rng(11), 0
    for _ in range(STUDIES):
        spreads = np.ones(CELLS) if one_spread else np.sqrt(8 / chance.chisquare(8, CELLS))
        seeds, own = chance.normal(size=SEEDS), chance.normal(size=(CELLS, SEEDS))
        values = spreads[:, None] * (math.sqrt(correlation) * seeds + math.sqrt(1 - correlation) * own)
        outside += missed(values.tolist())
    assert FEWEST < outside < MOST


@pytest.mark.parametrize("correlation", [0.0, 0.7])
def test_one_cell_that_varies_twice_as_much_as_the_others_is_not_taken_for_one_of_them(correlation: float) -> None:
    """A method that makes runs less alike: what the calm cells lend must not make its interval too narrow."""
    chance, outside = np.random.default_rng(13), 0
    for _ in range(STUDIES):
        seeds, own = chance.normal(size=SEEDS), chance.normal(size=(CELLS, SEEDS))
        values = math.sqrt(correlation) * seeds + math.sqrt(1 - correlation) * own
        values[1] *= 2
        outside += missed(values.tolist())
    assert outside <= 0.09 * STUDIES


def from_starts(chance: np.random.Generator, starts: int, between: float) -> tuple[list[Sample], list[Sample]]:
    """Arms without an effect over all starts, of six seeds from each. Levels differ from start to start, and so does
    the effect: by `between` of what its differences vary by from seed to seed."""
    treated, control = list[Sample](), list[Sample]()
    for start in range(starts):
        base, effect = chance.normal(0, 1), chance.normal(0, between * 0.7 * math.sqrt(2))
        for seed in range(6):
            unit = ("grpo", seed, str(start))
            treated.append(Sample(float(chance.normal(base + effect, 0.7)), unit))
            control.append(Sample(float(chance.normal(base, 0.7)), unit))
    return treated, control


@pytest.mark.parametrize(
    ("starts", "between", "most"),
    [(2, 0.0, 0.09), (2, 0.5, 0.09), (4, 1.0, 0.09), (2, 1.0, 0.13)],
    ids=["two, no effect on effects", "two, half of a seed's", "four, as much as a seed's", "two, as much as a seed's"],
)
def test_starts_are_in_the_interval(starts: int, between: float, most: float) -> None:
    """Two starts that matter as much as seeds are few: one case in three shows no difference between them, and the
    interval misses twice as often as it says."""
    chance, outside, ignored = np.random.default_rng(14), 0, 0
    for _ in range(STUDIES):
        found = two_arms(*from_starts(chance, starts, between), [])
        assert found.how == "paired by seed"
        blind = replace(found, error=math.sqrt(max(0.0, found.error**2 - found.fixed)), freedom=6.0 * starts - 1)
        outside, ignored = (
            count + (abs(one.value) > one.reach(0.95)) for count, one in ((outside, found), (ignored, blind))
        )
    assert outside <= most * STUDIES
    if between >= 1:  # without them every third study would find an effect
        assert ignored > 0.25 * STUDIES


def test_what_cells_share_narrows_the_interval() -> None:
    """The point of it: with five seeds the moderated interval is on average narrower than Student's alone."""
    chance, ours, alone = np.random.default_rng(12), 0.0, 0.0
    for _ in range(100):
        control, treated, *cells = [runs_of(one) for one in chance.normal(size=(CELLS, SEEDS)).tolist()]
        ours += two_arms(treated, control, cells).reach(0.95)
        alone += two_arms(treated, control, []).reach(0.95)
    assert ours < 0.98 * alone
