"""Runs that were broken on purpose: the cause that is named first is the one that was written down beforehand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from isentrope.diagnosis.doctor import Diagnosis, diagnose
from isentrope.diagnosis.remedies import direction
from isentrope.runs.folder import Run
from tests.diagnosis.broken.recorded import restore
from tests.diagnosis.broken.runs import BROKEN, HEALTHY

RECORDED = Path(__file__).parent / "broken" / "recorded"

OTHER = Path(__file__).parent / "broken" / "other"  # made by another hand: docs/doctor.md tells what came of them
TRUTH: dict[str, tuple[str, str]] = json.loads((OTHER / "truth.json").read_text())
UNSEEN = "run-17"  # a warm-up that was overfitted: the run itself does not show it


def told(name: str, folder: Path) -> tuple[Run, Diagnosis]:
    run = restore(RECORDED / f"{name}.json", folder / name)
    return run, diagnose(run)


def first(diagnosis: Diagnosis) -> str:
    """The cause named first, or that nothing is left to learn."""
    solved = [finding.name for finding in diagnosis.findings if finding.name == "success/solved"]
    return next((finding.name for finding in diagnosis.causes), solved[0] if solved else "")


def test_all_are_recorded() -> None:
    assert {path.stem for path in RECORDED.glob("*.json")} == {*BROKEN, *HEALTHY}
    assert len(BROKEN) >= 20


@pytest.mark.parametrize("name", BROKEN)
def test_the_cause_is_named_first(name: str, tmp_path: Path) -> None:
    assert first(told(name, tmp_path)[1]) == BROKEN[name].cause


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_runs_have_no_cause(name: str, tmp_path: Path) -> None:
    assert told(name, tmp_path)[1].causes == []


@pytest.mark.parametrize("name", [*BROKEN, *HEALTHY])
def test_advice_agrees_with_itself_and_with_the_settings(name: str, tmp_path: Path) -> None:
    run, diagnosis = told(name, tmp_path)
    ways: dict[str, int] = {}
    for remedy in diagnosis.remedies:
        if (way := direction(run, remedy)) is not None:
            assert way[1] != 0, f"{remedy}: the setting has that already"
            assert ways.setdefault(*way) == way[1], remedy


@pytest.mark.parametrize("name", ["rate-low", "frozen"])
def test_what_does_not_move_is_not_slowed_down(name: str, tmp_path: Path) -> None:
    words = told(name, tmp_path)[1].words()
    assert "smaller learning rate" not in words
    assert "smaller learn.lr" not in words
    assert "smaller learn.grad_clip" not in words


@pytest.mark.parametrize("name", TRUTH)
def test_runs_by_another_hand(name: str, tmp_path: Path) -> None:
    cause, _ = TRUTH[name]
    found = diagnose(restore(OTHER / f"{name}.json", tmp_path / name))
    assert [one.name for one in found.causes][:1] == ([f"cause/{cause}"] if cause and name != UNSEEN else [])
