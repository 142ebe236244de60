"""Building tasks for real: which bugs are kept, and why not the others."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from isentrope.cli.main import app
from isentrope.core.errors import TaskError
from isentrope.sandbox.base import Limits, make_sandbox
from isentrope.worlds.code_repair.build import Builder, package_name
from isentrope.worlds.code_repair.grade import grade
from isentrope.worlds.code_repair.mutate import Mutant
from isentrope.worlds.code_repair.problem import read_rows, repair_of
from isentrope.worlds.code_repair.running import run_tests
from isentrope.worlds.code_repair.world import SHIPPED, CodeRepairOptions, CodeRepairWorld
from tests.sandbox.boxes import needs_bwrap

pytestmark = needs_bwrap

SOURCE = """import random


def double(x):
    return x + x


def unused(x):
    return x + 1


def ends():
    while True:
        break
    return 1


def dice():
    return random.random() < 0.5


VALUE = 3
"""
TESTS = """from pkg.core import *


def test_double(): assert double(3) == 6
def test_ends(): assert ends() == 1
def test_value(): assert VALUE == 3
def test_always(): pass
def test_broken_before(): assert False
"""


@pytest.fixture(name="package")
def package_folder(tmp_path: Path) -> Path:
    for path, text in {"pkg/__init__.py": "", "pkg/core.py": SOURCE, "tests/test_core.py": TESTS}.items():
        (tmp_path / "pkg-1.0" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "pkg-1.0" / path).write_text(text)
    return tmp_path / "pkg-1.0"


def mutant(old: str, new: str, kind: str = "arithmetic") -> Mutant:
    return Mutant("pkg/core.py", SOURCE.index(old), old, new, kind, "")


def test_which_bugs_count(package: Path) -> None:
    builder = Builder(str(package), 0, Limits(seconds=2.0))
    stable = builder.stable_tests()
    assert stable == {f"tests/test_core.py::test_{name}" for name in ("double", "ends", "value", "always")}
    kept = builder.tried(mutant("x + x", "x - x"), stable)
    assert kept is not None
    assert kept.fail_to_pass == ("tests/test_core.py::test_double",)
    assert kept.pass_to_pass == tuple(f"tests/test_core.py::test_{name}" for name in ("always", "ends", "value"))
    whys = {
        builder.tried(mutant(old, new), stable)
        for old, new in (
            ("x + 1", "x - 1"),
            ("break", "pass"),
            ("import random", "import nothing"),
            ("VALUE = 3", "VALUE = random.random()\nopen('x', 'w')\ndouble = (lambda x: 6) if VALUE < 0.5 else None"),
        )
    }
    assert whys >= {"no test notices", "the tests do not come to an end", "the tests cannot be loaded"}


def test_flaky_bugs_are_dropped(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = Builder(str(package), 0, Limits(seconds=5.0))
    whys: list[str] = []
    flaky = mutant("x + x", "x + (x if dice() else 0)")
    stable = {"tests/test_core.py::test_double", "tests/test_core.py::test_always"}
    while "the tests go differently each time" not in whys and len(whys) < 40:
        whys.append(builder.tried(flaky, stable))
    assert whys[-1] == "the tests go differently each time"


def test_the_command(package: Path, tmp_path: Path) -> None:
    out = tmp_path / "tasks.jsonl"
    done = CliRunner().invoke(app, ["build-repairs", str(package), "--out", str(out), "--count", "2", "--seconds", "2"])
    assert done.exit_code == 0, done.output
    assert "2 tasks in" in done.output
    rows = read_rows(out)
    assert {row["archive"] for row in rows} == {"pkg-1.0"}  # beside the file, so both can be moved
    assert set(rows[0]) == {"package", "archive", "sha256", "kind", "file", "offset", "old", "new", "function",
                            "fail_to_pass", "pass_to_pass", "seed", "grading", "whole"}  # fmt: skip
    assert all(row["grading"] in ("both", "tests") for row in rows)
    assert all(row["whole"] == ["tests/test_core.py::test_always"] for row in rows)
    assert "run whole: tests/test_core.py::test_always (it shows nothing that can be" in " ".join(done.output.split())
    bare = [{name: value for name, value in row.items() if name not in ("grading", "whole")} for row in rows]
    assert [replace(repair_of(row, tmp_path, 1), grading="", whole=()) for row in rows] == [
        repair_of(row, tmp_path, 1) for row in bare
    ]
    world = CodeRepairWorld(CodeRepairOptions(tasks=str(out)))
    assert world.splits() == ("train",)  # one package: nothing is left for a test split
    task, instance = world.open(), world.instance("train", 1)
    expert = world.expert(0)
    assert expert is not None
    view = task.start(instance)
    expert.start(view, instance)
    steps = [task.step(expert.act(view).action) for _ in range(5)]
    assert steps[-1].success


def test_what_cannot_be_built(tmp_path: Path, package: Path) -> None:
    (package / "tests" / "test_core.py").unlink()
    for argument, said in ((str(package), "ships no tests"), (str(tmp_path / "no.tar.gz"), "pip download --no-deps")):
        done = CliRunner().invoke(app, ["build-repairs", argument, "--out", str(tmp_path / "x.jsonl")])
        assert done.exit_code != 0
        assert said in " ".join(done.output.replace("│", " ").split())
    (package / "tests" / "test_core.py").write_text("def test_never(): assert False\n")
    with pytest.raises(TaskError, match=r"no test of .* passes"):
        Builder(str(package), 0, Limits()).stable_tests()


@pytest.mark.parametrize(
    ("archive", "name"),
    [
        ("toolz-1.2.0.tar.gz", "toolz"),
        ("/x/my-pkg-0.1.zip", "my-pkg"),
        ("small:ledger", "ledger"),
        ("/x/folder/", "folder"),
    ],
)
def test_package_names(archive: str, name: str) -> None:
    assert package_name(archive) == name


def test_shipped_tasks_are_what_they_say() -> None:
    """A few of them, run again: the failing tests fail, the passing ones pass, and taking the bug back repairs it."""
    rows = read_rows(SHIPPED)
    for row in random.Random(7).sample(rows, 4):
        repair = repair_of(row, SHIPPED.parent, 1)
        sandbox = make_sandbox("bubblewrap", Limits())
        files = repair.files()
        sandbox.start(files)
        run = run_tests(
            sandbox, sorted({test.partition("::")[0] for test in repair.fail_to_pass + repair.pass_to_pass})
        )
        assert run.passed() == set(repair.pass_to_pass), json.dumps(row)
        assert set(run.failures) == set(repair.fail_to_pass)
        fixed = {repair.mutant.file: repair.mutant.undo(files[repair.mutant.file].data)}
        fresh = make_sandbox("bubblewrap", Limits())
        assert grade(fresh, files, fixed, repair.fail_to_pass, repair.pass_to_pass).resolved
