"""Runs that were planned and are not finished, or failed: what they do to a verdict."""

from __future__ import annotations

from dataclasses import replace

import pytest

from isentrope.papers.record import Verdict
from isentrope.study.read import FAILED, UNFINISHED, StudyData, StudyRun
from tests.papers.made import SEEDS, made_run, made_study, of_model
from tests.papers.scenarios import FAILS, HOLDS, OPEN, SCENARIOS
from tests.papers.test_claims import only


def with_status(study: StudyData, status: str, method: str, count: int = 1) -> StudyData:
    """The first runs of a method did not come to their end."""
    names = [run.name for run in study.runs if (run.tags["method"], run.tags["algorithm"]) == (method, "grpo")][:count]
    assert names
    return replace(study, runs=tuple(replace(r, status=status) if r.name in names else r for r in study.runs))


@pytest.mark.parametrize("kind", [HOLDS, FAILS, OPEN])
@pytest.mark.parametrize("method", ["epo", "ea"], ids=["treated", "control"])
def test_planned_runs_that_are_not_finished_leave_it_undecided(kind: str, method: str) -> None:
    """Else one could look after each seed, and stop where it looks good."""
    found = only("E6", with_status(SCENARIOS["E6"](kind), UNFINISHED, method, 2))
    part, other = found.parts
    assert (found.verdict, part.verdict) == (Verdict.open, Verdict.open)
    assert part.reason == "2 planned runs are not finished"
    assert part.decides == "the runs that were planned"
    assert "2 not finished" in part.notes
    assert (part.value, part.interval, part.premises) == (None, None, ())
    assert other.value is not None  # PPO has all of its runs


def test_a_run_that_is_not_finished_and_not_of_the_part_is_not_waited_for() -> None:
    study = SCENARIOS["E6"](HOLDS)
    more = replace(made_run(0, "rloo", success=0.4), status=UNFINISHED)
    assert only("E6", replace(study, runs=(*study.runs, more))).verdict == Verdict.holds


@pytest.mark.parametrize("method", ["epo", "ea"], ids=["treated", "control"])
def test_a_run_that_failed_lets_nothing_hold(method: str) -> None:
    """It may have been one of the bad ones. What is refuted without it stays refuted."""
    study = with_status(SCENARIOS["E6"](HOLDS), FAILED, method)
    found = only("E6", study)
    part = found.parts[0]
    assert found.verdict == part.verdict == Verdict.open
    assert part.reason == "runs failed, and those that did not may be the lucky ones"
    assert part.notes[0].startswith(f"1 failed: made/grpo-{method}/seed-0")
    assert part.value is not None
    assert part.interval is not None
    assert part.seeds == ((1, 2, 3, 4) if method == "epo" else SEEDS)
    assert len(part.controls) == (5 if method == "epo" else 4)
    assert only("E6", with_status(SCENARIOS["E6"](FAILS), FAILED, method)).verdict == Verdict.fails


def test_failed_and_unfinished_runs_are_both_told() -> None:
    study = with_status(with_status(SCENARIOS["E6"](HOLDS), FAILED, "epo"), UNFINISHED, "ea")
    (first, *_), _ = (part.notes for part in only("E6", study).parts)
    assert first == "1 failed: made/grpo-epo/seed-0"
    assert only("E6", study).parts[0].reason == "1 planned runs are not finished"


def test_runs_of_which_none_has_begun() -> None:
    waiting = [made_run(s, method=m, steps=0, status=UNFINISHED) for s in SEEDS for m in ("epo", "ea")]
    found = only("E6", made_study(waiting))
    assert (found.verdict, found.reason) == (Verdict.open, "10 planned runs are not finished")


@pytest.mark.parametrize("status", [UNFINISHED, FAILED])
def test_seeds_that_were_planned_and_have_not_begun_are_waited_for(status: str) -> None:
    """As `read_study` tells them: without settings, steps, and model."""
    study = made_study(of_model(SCENARIOS["E6"](HOLDS).runs, "pocket"))
    cell = next(run for run in study.runs if run.tags["method"] == "epo")
    more = StudyRun(cell.cell, cell.tags, 5, status)
    assert only("E6", replace(study, runs=(*study.runs, more))).verdict == Verdict.open
