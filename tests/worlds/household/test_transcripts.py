"""Replaying recordings."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isentrope.core.errors import TaskError
from isentrope.worlds.household.engine import Engine
from isentrope.worlds.household.transcripts import check_transcripts
from tests.worlds.household.house import house, problem

RECORDING = Path(__file__).parents[4] / "shared" / "data" / "alfworld" / "transcripts.jsonl"
COMMANDS = ("go to fridge 1", "open fridge 1", "dance", "take spoon 1 from drawer 1")


def record() -> dict[str, Any]:
    """A recording made by the engine itself, to be spoilt."""
    engine = Engine(house())
    row: dict[str, Any] = {"game": "house", "pddl_problem": problem(), "intro": engine.introduction()}
    row |= {"admissible": list(engine.admissible()), "steps": []}
    for command in COMMANDS:
        answer = engine.step(command)
        row["steps"].append(
            {"command": command, "feedback": answer, "admissible": list(engine.admissible()), "won": engine.won}
        )
    return row


def check(tmp_path: Path, row: dict[str, Any]) -> str:
    file = tmp_path / "recording.jsonl"
    file.write_text(json.dumps(row))
    [result] = check_transcripts(file)
    assert result.passed == (result.difference is None)
    return str(result.difference)


def test_a_faithful_recording_passes(tmp_path: Path) -> None:
    assert check(tmp_path, record()) == "None"


def _intro(row: dict[str, Any]) -> None:
    row["intro"] = row["intro"].replace("middle", "centre")


def _feedback(row: dict[str, Any]) -> None:
    row["steps"][1]["feedback"] += "!"


def _admissible(row: dict[str, Any]) -> None:
    row["steps"][2]["admissible"].remove("look")


def _order(row: dict[str, Any]) -> None:
    row["admissible"].reverse()


def _won(row: dict[str, Any]) -> None:
    row["steps"][3]["won"] = True


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (_intro, "at the start: intro should be '-= Welcome"),
        (_feedback, "at step 2, 'open fridge 1': feedback should be 'You open the fridge 1."),
        (_admissible, "at step 3, 'dance': admissible should be 'with []', is \"with ['look']\""),
        (_order, "at the start: admissible should be 'look | inventory"),
        (_won, "at step 4, 'take spoon 1 from drawer 1': won should be 'True', is 'False'"),
    ],
)
def test_the_first_difference_is_reported(
    tmp_path: Path, spoil: Callable[[dict[str, Any]], None], expected: str
) -> None:
    row = record()
    spoil(row)
    assert check(tmp_path, row).startswith(expected)


@pytest.mark.parametrize("line", ["{", "[]", "3", "{}", '{"steps": 3, "intro": "", "pddl_problem": ""}'])
def test_malformed_lines_are_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "recording.jsonl"
    file.write_text(json.dumps(record()) + "\n" + line)
    checks = check_transcripts(file)
    assert next(checks).passed
    with pytest.raises(TaskError, match="line 2"):
        next(checks)


def test_a_missing_recording_is_named(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"no recording .*nowhere\.jsonl"):
        list(check_transcripts(tmp_path / "nowhere.jsonl"))


@pytest.mark.skipif(
    not RECORDING.exists(),
    reason=f"needs a recording of the official engine, {RECORDING}: docs/tasks/household.md says which form",
)
def test_the_official_engine_says_the_same() -> None:
    results = list(check_transcripts(RECORDING))
    assert len(results) == 12
    assert [str(result.difference) for result in results if not result.passed] == []
