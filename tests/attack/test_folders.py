"""A part of the attack on run folders (`make attack` has all of it): every family once, commands in turn."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.attack.children import HEAVY, LIGHT, End, Parent
from tests.attack.folders import Outcome, Place, compared, problems_of
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


@pytest.mark.slow(8)
def test_planted_faults_are_found_in_forked_and_in_started_processes(base: Path) -> None:
    some = "traceback,wait,memory,copied,overwritten,code,torch"
    names = ",".join(f"planted-{name}" for name in some.split(","))
    said = attacked(base, "--planted", "--kind", "light", "--wall", "3", "--commands", names)
    assert said.count(": found ") == 2 * len(some.split(",")), said


@pytest.mark.slow(5)
def test_a_forked_command_ends_as_one_in_a_process_of_its_own(base: Path) -> None:
    families = ",".join(("whole", "cut", "numbers", "link_out") if not EXPLORE else FAMILIES)
    attacked(base, "--real", "--kind", "light", "--seeds", "1", "--only", families, "--rotate", "1")


def test_memory_of_a_forked_command_counts_what_its_parent_has(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    parent = Parent((), tmp_path, tmp_path)
    assert parent.fork("", tmp_path, tmp_path, 60).megabytes >= parent.megabytes > 20


def test_a_folder_is_made_again_when_a_command_has_changed_it(base: Path, tmp_path: Path) -> None:
    place = Place(base, tmp_path)
    place.make("whole", 0)
    number = place.folder.stat().st_ino, (place.folder / "run").stat().st_ctime_ns
    place.make("whole", 0)
    assert (place.folder.stat().st_ino, (place.folder / "run").stat().st_ctime_ns) == number
    (place.folder / "run" / "new").write_text("x")
    config = place.folder / "run" / "config.toml"
    config.write_text(config.read_text().replace("3", "4"))
    assert {path.name for path in place.written()} == {"new", "config.toml"}
    place.make("whole", 0)
    assert not place.written()


def test_what_differs_between_a_forked_and_a_started_command_is_told() -> None:
    one = Outcome("whole", 0, "report", (), End(0, 1.0, 300.0), "12 runs in 3.1 s\n")
    assert compared(one, replace(one, said="12 runs in 3.2 s\n", end=End(0, 4.0, 250.0))).problems == ()
    other = replace(one, problems=("hangs",), end=End(None, 11.0, 400.0), said="13 runs in 3.1 s\n")
    assert len(compared(one, other).problems) == 4


def test_what_the_attack_calls_a_problem(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "precious").write_text("changed")
    (tmp_path / "outside" / "imported").write_text("")
    (tmp_path / "page.html").write_text(SECRET)
    said = "Traceback (most recent call last):\n...\nKeyError: 'x'\nIMPORTED torch\nUsage: isentrope"
    page = [tmp_path / "page.html"]
    assert list(problems_of(End(0, 11.0, 1200.0), said, tmp_path, page, "foreign_code", trusted=False)) == [
        "hangs", "1200 MB", "traceback: Usage: isentrope", "imports torch", "wrong usage", "overwrote a file outside",
        "ran code of the folder", "shows a file outside",
    ]  # fmt: skip
    none = tmp_path / "none"
    for end, problems in (
        (End(-11, 1.0, 100.0), ["killed by SIGSEGV"]),
        (End(None, 1.0, 100.0), ["hangs"]),
        (End(2, 1.0, 100.0), []),
    ):
        assert list(problems_of(end, "Run folder: no", none, [], "whole", trusted=False)) == problems
    assert not set(LIGHT) & set(HEAVY)
