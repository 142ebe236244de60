"""A rise or a fall of success needs a reason that its episodes bear."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from isentrope.diagnosis.doctor import diagnose
from isentrope.diagnosis.evidence import Outcome, outcome_of
from isentrope.diagnosis.words import explained
from isentrope.runs.folder import Run


def run(success: list[float], groups: int = 4, size: int = 4) -> Run:
    config = {"run": {"steps": len(success)}, "rollout": {"groups": groups, "group_size": size}}
    records = [{"step": i + 1, "kind": "train", "success/all": value} for i, value in enumerate(success)]
    return Run(Path("run"), config=config, records=records)


def outcome(success: list[float], groups: int = 4, size: int = 4) -> Outcome:
    course = run(success, groups, size)
    found = outcome_of(course, course.curve("success/all"))
    assert found is not None
    return found


def test_one_of_16_and_then_none_is_nothing() -> None:
    assert outcome([1 / 16, 0, 0, 0]).kind == "unsure"
    told = diagnose(run([1 / 16, 0, 0, 0]))
    (claim,) = [finding.claim for finding in told.findings if finding.name == "success/unsure"]
    assert claim == (
        "There are too few episodes to tell whether success on training games changes: 6 % of 16 episodes at the "
        "start, 0 % of 16 at the end; a difference under 86 points would not show: episodes of one game are alike, so "
        "16 tell as much as 4 of different games."
    )
    assert told.causes == []


def test_a_smooth_curve_alone_is_no_reason() -> None:
    """0 to 12 %, without any noise: of four groups a step that is a win or two."""
    assert outcome(list(np.linspace(0.0, 0.125, 8))).kind == "unsure"
    assert outcome(list(np.linspace(0.0, 0.125, 60)), groups=40, size=8).kind == "rose"


@pytest.mark.parametrize(
    ("first", "last", "kind"), [(0.3, 0.8, "rose"), (0.8, 0.3, "fell"), (0.5, 0.5, "flat"), (0.97, 0.98, "solved")]
)
def test_what_enough_episodes_show(first: float, last: float, kind: str) -> None:
    assert outcome(list(np.linspace(first, last, 40)), groups=16, size=8).kind == kind


def test_a_rise_that_was_lost_again() -> None:
    found = outcome(list(np.interp(range(60), [0, 30, 60], [0.2, 0.9, 0.2])), groups=16)
    assert (found.kind, found.best_step) == ("lost", 31)


def test_steps_that_jump_count_for_fewer_episodes() -> None:
    """Groups whose episodes all do the same: 16 × 8 episodes are worth 16."""
    draws = np.random.default_rng(0)
    together = outcome([float(draws.binomial(16, 0.5)) / 16 for _ in range(60)], groups=16, size=8)
    apart = outcome([float(draws.binomial(128, 0.5)) / 128 for _ in range(60)], groups=16, size=8)
    assert together.start.effective < 0.25 * together.start.episodes
    assert apart.start.effective > 0.6 * apart.start.episodes
    assert together.least > 1.5 * apart.least


@pytest.mark.parametrize("worth", ["episodes", "groups"])
def test_noise_is_seldom_called_a_change(worth: str) -> None:
    """400 runs in which nothing changes; at a level of 99 % and several looks, a few in a hundred."""
    draws, told = np.random.default_rng(1), 0
    for _ in range(400):
        count = 48 if worth == "episodes" else 8
        success = draws.binomial(count, 0.4, 24) / count
        told += outcome([float(value) for value in success], groups=8, size=6).kind in ("rose", "fell", "lost")
    assert told <= 16


def test_words_are_explained_where_they_are_first_used() -> None:
    text = "Entropy (x) rose. The entropy fell to 2 nats a token, then 3 nats; entropy_bonus, the gradient's norm, KL."
    assert explained(text) == (
        "Entropy (x) rose. The entropy (how open the choice of the next token is) fell to 2 nats (the unit of entropy: "
        "a fair coin has 0.69) a token (a piece of a word), then 3 nats; entropy_bonus, the gradient's norm, KL (a "
        "distance between the choices of two policies)."
    )
