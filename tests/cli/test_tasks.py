from __future__ import annotations

import importlib.util
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from isentrope.cli.main import app
from isentrope.worlds.registry import WORLDS

TOY = "tests.toys:ToyWorld"


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200", "NO_COLOR": "1"})


def test_all_worlds_are_listed_with_their_pages() -> None:
    told = invoke("tasks")
    assert told.exit_code == 0
    for name, known in WORLDS.items():
        assert name in told.stdout
        assert known.page(name) in told.stdout


def test_a_missing_package_does_not_break_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec

    def nothing_but_ours(name: str, *more: Any) -> Any:
        return find(name, *more) if name.startswith("isentrope") else None

    monkeypatch.setattr(importlib.util, "find_spec", nothing_but_ours)
    told = invoke("tasks")
    assert told.exit_code == 0
    assert "needs textarena: " in told.stdout
    assert "[textarena]'" in "".join(told.stdout.split())


def test_one_world() -> None:
    told = invoke("tasks", "household")
    assert told.exit_code == 0
    for words in (
        "rooms",
        "train (as many as asked for)",
        "pick, look, clean",
        "You look after a house",
        "go to",
        "sft",
    ):
        assert words in told.stdout
    told = invoke("tasks", TOY, "--set", "task.options.goal=7")
    assert "Goal: reach 7" in told.stdout
    assert "seen (10)" in told.stdout


def test_a_world_that_cannot_be_opened_still_shows_its_options() -> None:
    told = invoke("tasks", "verifiers")
    assert told.exit_code == 0
    assert "full_score" in told.stdout
    assert "It cannot be opened as it stands" in told.stdout


def test_an_unknown_world() -> None:
    told = invoke("tasks", "houshold")
    assert told.exit_code == 2


def test_checking_a_world() -> None:
    told = invoke("check-task", TOY, "--games", "1", "--max-turns", "5")
    assert told.exit_code == 0
    assert "in another process" in told.stdout
    told = invoke("check-task", "tests.worlds.test_conformance:Unhashable", "--games", "1")
    assert told.exit_code == 1
    assert "BROKEN" in told.stdout
