"""The example of docs/tasks/your-own.md: read off the page, checked, played, imitated and trained on."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "tasks" / "your-own.md"
WORLD = "guess:GuessWorld"
SMALL = [
    "task.max_turns=8", "agent.max_response=16", "eval.splits=test", "eval.games=2", "eval.quick_games=2",
    "policy.layers=1", "policy.width=32", "policy.heads=2", "run.device=cpu", "run.threads=1",
]  # fmt: skip


def example() -> str:
    found = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert len(found) == 1
    return found[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("own")
    (path / "guess.py").write_text(example(), encoding="utf-8")
    return path


def isentrope(folder: Path, *arguments: str, typed: str = "", sets: list[str] | None = None) -> str:
    command = [sys.executable, "-m", "isentrope", *arguments]
    command += [word for one in sets or [] for word in ("--set", one)]
    done = subprocess.run(command, cwd=folder, input=typed, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_is_as_short_as_promised() -> None:
    assert len(example().splitlines()) <= 40


def test_it_keeps_the_contract(folder: Path) -> None:
    told = isentrope(folder, "check-task", WORLD)
    assert "BROKEN" not in told
    assert "solved 10 of 10" in told
    assert "in another process" in told


def test_it_can_be_looked_at_and_played(folder: Path) -> None:
    told = isentrope(folder, "tasks", WORLD)
    assert "train (75), test (25)" in told
    played = isentrope(folder, "play", WORLD, "--index", "2", typed="guess 50\nhint\nguess 3\n")
    assert "An action is: guess N." in played
    assert "50 is too high." in played
    assert "-> guess 25" in played
    assert "reward 1" in played
    assert "Solved in 2 turns." in played


def test_it_can_be_imitated_and_trained_on(folder: Path) -> None:
    world = [f"task.world={WORLD}", *SMALL]
    warm = ["policy.model=new", "sft.games=4", "sft.batch_games=2", "sft.epochs=1"]  # two steps
    isentrope(folder, "sft", "--out", "warm", sets=[*world, *warm])
    one = ["policy.model=warm", "run.steps=1", "rollout.groups=1", "rollout.group_size=2"]
    told = isentrope(folder, "train", "--out", "rl", sets=[*world, *one])
    assert "step 1" in told
    assert (folder / "rl" / "metrics.jsonl").read_text(encoding="utf-8").count("\n") >= 1
