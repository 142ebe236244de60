"""A part of the attack on run folders (`make attack` has all of it): every family once, commands in turn."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.attack.folders import HEAVY, LIGHT, problems_of
from tests.builders import hostile_logs
from tests.builders.hostile import FAMILIES, SECRET
from tests.builders.hostile_logs import LOGS
from tests.builders.sizes import EXPLORE

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("attack") / "base"
    subprocess.run([sys.executable, "-m", "tests.attack.base", str(folder)], cwd=ROOT, check=True, capture_output=True)
    return folder


def attacked(base: Path, *words: str) -> str:
    """What the attack said; it fails if any command did."""
    command = [sys.executable, "-m", "tests.attack.folders", "--base", str(base), "--verbose", "--wall", "120", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow(14)
def test_no_folder_breaks_a_command_that_looks_at_it(base: Path) -> None:
    every = ("--seeds", "7") if EXPLORE else ("--seeds", "1", "--rotate", "1")
    said = attacked(base, "--kind", "light", *every)
    assert f"{len(FAMILIES) * (7 if EXPLORE else 1)} folders" in said


@pytest.mark.slow(5)
def test_no_log_of_another_program_breaks_its_import(base: Path) -> None:
    logs = ",".join(f"import-{log}" for log in LOGS)
    every = ("--seeds", "7") if EXPLORE else ("--seeds", "1", "--rotate", "3")
    attacked(base, "--kind", "light", *every, "--only", ",".join(hostile_logs.FAMILIES), "--commands", logs)


@pytest.mark.slow(11)
def test_no_folder_breaks_a_command_that_goes_on_from_it(base: Path) -> None:
    some = () if EXPLORE else ("--only", "link_in_the_way,sparse,deep,hostile_model,checkpoint_state,bomb,foreign_code")
    every = ("--seeds", "7") if EXPLORE else ("--seeds", "1", "--rotate", "1")
    attacked(base, "--kind", "heavy", *every, *some)


def test_what_the_attack_calls_a_problem(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "precious").write_text("changed")
    (tmp_path / "outside" / "imported").write_text("")
    (tmp_path / "page.html").write_text(SECRET)
    said = "Traceback (most recent call last):\n...\nKeyError: 'x'\nIMPORTED torch\nUsage: isentrope"
    assert list(problems_of(0, 11.0, 1200.0, said, tmp_path, "foreign_code", trusted=False)) == [
        "hangs", "1200 MB", "traceback: Usage: isentrope", "imports torch", "wrong usage", "overwrote a file outside",
        "ran code of the folder", "shows a file outside",
    ]  # fmt: skip
    assert list(problems_of(-11, 1.0, 100.0, "", tmp_path / "none", "whole", trusted=False)) == ["killed by SIGSEGV"]
    assert list(problems_of(None, 1.0, 100.0, "", tmp_path / "none", "whole", trusted=False)) == ["hangs"]
    assert list(problems_of(2, 1.0, 100.0, "Run folder: no", tmp_path / "none", "whole", trusted=False)) == []
    assert not set(LIGHT) & set(HEAVY)
