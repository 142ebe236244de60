"""How likely rules are to decide, against drawing runs and judging them by the rule."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from isentrope.papers.decide import SEEDS, SEEDS_TRIED, WANTED, Power, power, seeds_for
from isentrope.papers.record import Claim, Part
from isentrope.papers.registry import CLAIMS, claim_of
from isentrope.papers.words import power_in_words

DRAWS = 20_000
PARTS = [(claim, part) for claim in CLAIMS for part in claim.parts]


def simulated(part: Part, claim: Claim, runs: int, spread: float, true: float) -> tuple[float, float]:
    """How often the part holds, and how often it is refuted, where the true effect is this one. Facing up."""
    sign = 1 if part.upwards else -1
    chance = np.random.default_rng(7)
    arms = [chance.normal(sign * true, spread, (DRAWS, runs))]
    arms += [chance.normal(0.0, spread, (DRAWS, runs))] if part.against else []
    value = arms[0].mean(1) - (arms[1].mean(1) if part.against else 0.0)
    variance = np.mean([arm.var(1, ddof=1) for arm in arms], axis=0)
    error, freedom = np.sqrt(len(arms) * variance / runs), len(arms) * (runs - 1)
    held = stats.t.ppf((1 + claim.confidence) / 2, freedom) * error
    strict = stats.t.ppf(1 - (1 - claim.confidence) / (2 * claim.voices), freedom) * error
    holds = (value - held > sign * part.border) & (value >= sign * part.least)
    return float(np.mean(holds)), float(np.mean(value + strict < sign * part.least))


@pytest.mark.parametrize(
    ("name", "part", "runs", "spread"),
    [
        ("E1", 0, 5, 0.031), ("E1", 0, 12, 0.06), ("A1", 0, 3, 0.11), ("A5", 0, 8, 0.031), ("E2", 0, 5, 0.15),
        ("S6", 0, 20, 0.8), ("M4", 0, 3, 0.005), ("E7", 0, 5, 0.07), ("A1", 1, 5, 0.3), ("M1", 1, 5, 0.17),
    ],
)  # fmt: skip
def test_as_drawn(name: str, part: int, runs: int, spread: float) -> None:
    claim = claim_of(name)
    one = claim.parts[part]
    found = power(one, claim, runs, spread)
    assert found is not None
    assert found.found == pytest.approx(simulated(one, claim, runs, spread, one.expect)[0], abs=0.02)
    none = 0.0 if one.border == 0 else 2 * one.border - one.expect  # as far on the other side of the border
    assert found.ruled_out == pytest.approx(simulated(one, claim, runs, spread, none)[1], abs=0.02)


@pytest.mark.parametrize(("claim", "part"), PARTS, ids=[f"{claim.id} {part.name}" for claim, part in PARTS])
def test_more_seeds_find_more(claim: Claim, part: Part) -> None:
    for spread in (part.measure.spread, part.measure.spread_lm):
        found = [power(part, claim, runs, spread) for runs in range(3, 30)]
        if part.shares or spread <= 0:
            assert found == [None] * len(found)
            continue
        known = [one for one in found if one is not None]
        assert len(known) == len(found)
        for name in ("found", "ruled_out"):
            values = [getattr(one, name) for one in known]
            assert all(b >= a - 1e-9 for a, b in pairwise(values)), name
            assert all(0 <= value <= 1 for value in values)


def test_a_rule_expects_something_of_every_part() -> None:
    """The expected effect lies where the part would hold, and the measure says how much runs differ."""
    for claim, part in PARTS:
        sign = 1 if part.upwards else -1
        assert sign * part.expect >= sign * part.least, (claim.id, part.name)
        assert part.shares or part.measure.spread > 0, (claim.id, part.name)


def test_no_power_where_it_cannot_be_told() -> None:
    shares = claim_of("S2")
    assert power(shares.parts[0], shares, 5, 0.1) is None
    assert seeds_for(shares.parts[0], shares, 0.1) is None
    assert power_in_words(shares.parts[0], shares) == []
    claim = claim_of("E1")
    assert power(claim.parts[0], claim, 5, 0.0) is None


def test_seeds_for_is_the_first_number_that_is_enough() -> None:
    claim = claim_of("E1")
    part = claim.parts[0]
    needed = seeds_for(part, claim, 0.031)
    assert needed is not None

    def found(runs: int) -> float:
        told = power(part, claim, runs, 0.031)
        assert isinstance(told, Power)
        return told.found

    assert found(needed) >= WANTED > found(needed - 1)
    assert seeds_for(part, claim, 1.0) is None  # more than MOST
    assert found(SEEDS_TRIED) > 0.99


def test_a_larger_effect_is_found_more_often_and_a_larger_spread_less() -> None:
    claim = claim_of("E1")
    part = claim.parts[0]
    tall, wide = replace(part, expect=0.1), power(part, claim, 5, 0.06)
    usual, more = power(part, claim, 5, 0.031), power(tall, claim, 5, 0.031)
    assert usual is not None and more is not None and wide is not None  # noqa: PT018
    assert wide.found < usual.found < more.found
    assert more.ruled_out == usual.ruled_out  # where there is none, what is expected does not matter


def test_the_mean_must_be_large_enough_too() -> None:
    """With many seeds the interval is clear of 0 at once; that the mean is at least the least that counts is not."""
    claim = claim_of("E1")
    part = replace(claim.parts[0], expect=0.02)
    found = power(part, claim, 50, 0.03)
    assert found is not None
    assert found.found == pytest.approx(0.5, abs=0.01)
    assert found.found == pytest.approx(simulated(part, claim, 50, 0.03, 0.02)[0], abs=0.02)


def test_a_stricter_level_for_more_voices_refutes_less() -> None:
    claim = claim_of("E1")
    alone = replace(claim, parts=claim.parts[:1])
    part = claim.parts[0]
    one, two = power(part, alone, 5, 0.031), power(part, claim, 5, 0.031)
    assert one is not None and two is not None  # noqa: PT018
    assert two.ruled_out < one.ruled_out
    assert two.found == one.found


def test_power_in_words() -> None:
    claim = claim_of("E1")
    pocket, large = power_in_words(claim.parts[0], claim)
    assert pocket.startswith("a true +0.05 (pocket model, spread 0.031) is found in ")
    assert large.startswith("a true +0.05 (language model, spread 0.06) is found in ")
    for runs in SEEDS:
        told = power(claim.parts[0], claim, runs, 0.031)
        assert told is not None
        assert f"{told.found:.0%} with {runs}" in pocket
    assert f"80% with {seeds_for(claim.parts[0], claim, 0.031)}" in pocket
    factor = claim_of("A2")
    assert power_in_words(factor.parts[0], factor)[0].startswith("a true × 1.2 (")
    assert math.isclose(factor.parts[0].expect, math.log(1.2))
