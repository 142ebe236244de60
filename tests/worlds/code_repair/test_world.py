"""Playing repairs: what the actions do and say, who wins, and the contract."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from isentrope.core.errors import TaskError
from isentrope.worlds.code_repair.problem import Repair, read_rows, repair_of, write_repairs
from isentrope.worlds.code_repair.workbench import RULES, VERBS, Misunderstood, clipped, parse_action
from isentrope.worlds.code_repair.world import SHIPPED, CodeRepairOptions, CodeRepairWorld, RepairTask
from isentrope.worlds.conformance.suite import assert_conforms
from isentrope.worlds.contract import Instance, Step, View
from tests.sandbox.boxes import needs_bwrap

pytestmark = needs_bwrap

WORLD = CodeRepairWorld()


def find(package: str, **wanted: str) -> Instance:
    """The first shipped bug of a package with these properties."""
    for split in WORLD.splits():
        for index in range(WORLD.size(split)):
            problem = WORLD.problem(instance := WORLD.instance(split, index))
            assert isinstance(problem, Repair)
            mutant = problem.mutant
            if problem.package == package and all(getattr(mutant, name) == value for name, value in wanted.items()):
                return instance
    raise AssertionError(f"no such bug: {package} {wanted}")


def started(instance: Instance) -> tuple[RepairTask, View]:
    task = WORLD.open()
    return task, task.start(instance)


@pytest.fixture(name="ledger")
def ledger_task() -> RepairTask:
    return started(find("ledger", kind="compare"))[0]


def test_the_world_conforms() -> None:
    assert_conforms(WORLD, games=1, max_turns=5)


def test_splits_share_no_package() -> None:
    packages = {split: {one.package for one in problems} for split, problems in WORLD.problems.items()}
    assert packages["test"] == {"calculator", "stores"}
    assert not packages["train"] & packages["test"]
    assert {split: WORLD.size(split) for split in WORLD.splits()} == {"train": 180, "test": 60}
    kinds = {WORLD.instance("train", index).kind for index in range(WORLD.size("train"))}
    assert len(kinds) >= 8
    with pytest.raises(TaskError, match="numbered from 0"):
        WORLD.instance("train", 180)
    with pytest.raises(TaskError, match="no split 'dev'"):
        WORLD.instance("dev", 0)


def test_an_episode() -> None:
    instance = find("ledger", file="ledger/accounts.py")
    task, view = started(instance)
    assert view.goal.startswith("The package ledger has a bug: ")
    assert "ledger/accounts.py\n" in view.text
    assert view.rules == RULES
    expert = WORLD.expert(0)
    assert expert is not None
    expert.start(view, instance)
    steps: list[Step] = []
    while not steps or not steps[-1].terminated:
        move = expert.act(view)
        steps.append(task.step(move.action))
        view = steps[-1].view
    assert [step.reward for step in steps] == [0, 0, 0, 0, 1]
    assert all(step.valid for step in steps)
    assert steps[0].view.text.startswith("Tests: ")
    assert "FAILED tests/test_accounts.py::" in steps[0].view.text
    assert "21 passed." in steps[3].view.text
    assert steps[-1].success
    assert steps[-1].info == {"fixed": 1.0, "kept": 1.0, "hidden": 1.0, "honest": True, "grading": "calls"}
    with pytest.raises(TaskError, match="before start"):
        task.step("ls")


def test_submitting_what_is_not_repaired(ledger: RepairTask) -> None:
    step = ledger.step("submit")
    assert (step.terminated, step.success, step.reward) == (True, False, 0.0)
    assert step.info["fixed"] == 0.0
    assert step.info["kept"] == 1.0


def test_looking(ledger: RepairTask) -> None:
    def told(action: str) -> str:
        return ledger.step(action).view.text

    assert told("ls") == "ledger/\ntests/\nREADME.md"
    assert told("ls ledger") == told("ls ./ledger/") == "__init__.py\naccounts.py\ninterest.py\nstatement.py"
    assert told("view ledger/accounts.py 4-5") == (
        "ledger/accounts.py, lines 4-5 of 39:\n4  class Refused(Exception):\n"
        '5      """The account does not allow it."""'
    )
    assert told("view ledger/__init__.py").startswith("ledger/__init__.py, lines 1-1:\n")
    assert told("search def withdraw") == "ledger/accounts.py:21: def withdraw(self, amount):"
    assert told("search def test_transfer in tests").count("\n") == 1
    assert (
        told("search 'def compound' in ledger/interest.py")
        == "ledger/interest.py:18: def compound(balance, percent, years):"
    )
    assert told("search no such thing").startswith("No line holds no such thing.")


@pytest.mark.parametrize(
    ("action", "teaches"),
    [
        ("veiw ledger/accounts.py", "Did you mean view"),
        ("view accounts.py", "Did you mean ledger/accounts.py?"),
        ("view ledger/accounts.py ten", "Line numbers look like 12 or 10-20"),
        ("view ledger/accounts.py 900-910", "has 39 lines"),
        ("view ../../etc/passwd", "is not in the package"),
        ("view /etc/passwd", "is not in the package"),
        ("edit ledger/accounts.py\nx", "Which lines?"),
        ("edit ledger/accounts.py 40-99\nx", "has lines 1-39"),
        ("edit tests/test_accounts.py 1-1\nx", "is a test: it stays as it is"),
        ("insert conftest.py 0\nx", "is a test: it stays as it is"),
        ("insert pytest.ini 0\nx", "steers how tests are run"),
        ("insert new.py 0\nx", "does not exist"),
        ("replace ledger/accounts.py\nnot there\n====\nx", "does not hold those old lines"),
        ("replace ledger/accounts.py\namount\n====\nx", "times. Add a line"),
        ("replace ledger/accounts.py\nx", "one line ===="),
        ("undo ledger/accounts.py", "You have not changed"),
        ("run rm -rf /", "Only tests can be run"),
        ("run tests nothing.py", "There is no test file nothing.py"),
        ("run tests ; reboot", "There is no test file"),
        ("", "There is no such action"),
    ],
)
def test_errors_that_teach(ledger: RepairTask, action: str, teaches: str) -> None:
    step = ledger.step(action)
    assert not step.valid
    assert teaches in step.view.text


def test_changing_and_taking_back(ledger: RepairTask) -> None:
    before = ledger.step("view ledger/statement.py").view.text
    step = ledger.step("edit ledger/statement.py 1-1\n# one\n\n    # three")
    assert step.view.text == (
        "ledger/statement.py is changed. Lines 1-6 now:\n1  # one\n2  \n3      # three\n4  \n5  \n"
        "6  def running_balances(start, history):"
    )  # fmt: skip
    ledger.step("edit ledger/statement.py 2-3")
    assert " 1  # one\n 2  \n 3  \n" in ledger.step("view ledger/statement.py").view.text
    ledger.step("insert ledger/statement.py 0\nimport os")
    ledger.step("replace ledger/statement.py\nimport os\n# one\n====\nimport re")
    assert ledger.step("search import re").view.text == "ledger/statement.py:1: import re"
    assert ledger.step("undo ledger/statement.py").valid
    assert ledger.step("view ledger/statement.py").view.text == before


def test_edits_reach_the_tests_and_nothing_else(ledger: RepairTask) -> None:
    broken = "edit ledger/interest.py 1-1\nraise ValueError('broken here')"
    ledger.step(broken)
    answer = ledger.step("run tests tests/test_interest.py").view.text
    assert answer.startswith("Tests: 0 passed, 1 files could not be loaded.")
    assert "ValueError: broken here" in answer
    assert ledger.step("run tests tests/test_statement.py::test_totals").view.text == "Tests: 1 passed."
    ledger.step("edit ledger/interest.py 1-1\nimport time; print('seen'); time.sleep(0); x = object()\nassert not x, x")
    first, again = (ledger.step("run tests tests/test_interest.py").view.text for _ in range(2))
    assert first == again
    assert "<object object at 0x...>" in first
    ledger.step("edit ledger/interest.py 1-1\nimport json, pytest; raise OSError(json.__file__, pytest.__file__)")
    answer = ledger.step("run tests tests/test_interest.py").view.text
    assert "[Errno python/json/__init__.py] site-packages/pytest/__init__.py" in answer


def test_an_endless_loop_is_stopped() -> None:
    world = CodeRepairWorld(CodeRepairOptions(seconds=1.0))
    task = world.open()
    task.start(find("ledger", kind="compare"))
    task.step("edit ledger/interest.py 1-1\nwhile True: pass")
    answer = task.step("run tests tests/test_interest.py")
    assert answer.valid
    assert "The run was stopped: it took too long." in answer.view.text
    assert not task.step("submit").success


def test_actions_are_never_a_shell() -> None:
    assert {parse_action(verb).verb for verb in VERBS} == set(VERBS)
    assert parse_action("  RUN TESTS a::b  ").words == "a::b"
    assert parse_action("pytest tests").verb == "run tests"
    assert parse_action("edit a.py 1-2\n    x\n").body == "    x"
    one_line = parse_action(r"edit a.py 1-2\n    x\n    y")
    assert (one_line.words, one_line.body) == ("a.py 1-2", "    x\n    y")
    assert parse_action("edit a.py 1-1\nprint('a\\nb')").body == r"print('a\nb')"
    assert parse_action(r"search \n").words == r"\n"
    with pytest.raises(Misunderstood):
        parse_action("bash -c ls")


def test_long_answers_are_cut_in_the_middle() -> None:
    text = "a" * 3000 + "b" * 3000
    short = clipped(text, 1000)
    assert len(short) == 1000
    assert short.startswith("aaa")
    assert short.endswith("bbb")
    assert "... 5000 characters left out ..." in short
    assert clipped(text, 6000) == text


def test_task_files(tmp_path: Path) -> None:
    repairs = [repair_of(row, SHIPPED.parent, 1) for row in read_rows(SHIPPED)[:40:10]]
    write_repairs(repairs, tmp_path / "some.jsonl")
    again = [repair_of(row, tmp_path, 1) for row in read_rows(tmp_path / "some.jsonl")]
    assert again == repairs
    world = CodeRepairWorld(CodeRepairOptions(tasks=str(tmp_path / "some.jsonl")))
    assert sum(world.size(split) for split in world.splits()) == 4
    with pytest.raises(TaskError, match="test_packages names nothing"):
        CodeRepairWorld(CodeRepairOptions(test_packages=("nothing",))).splits()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"offset": "x"}, "task 1 is not one"),
        ({"kind": "magic"}, "task 1 is not one"),
        ({"fail_to_pass": "test"}, "task 1 is not one"),
        ({"file": None}, "task 1 is not one"),
    ],
)
def test_broken_task_files(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    row = read_rows(SHIPPED)[0] | change
    (tmp_path / "tasks.jsonl").write_text(json.dumps(row))
    with pytest.raises(TaskError, match=said):
        CodeRepairWorld(CodeRepairOptions(tasks=str(tmp_path / "tasks.jsonl"))).splits()


def test_the_archive_must_be_the_one_of_the_task(tmp_path: Path) -> None:
    for change, said in (({"sha256": "0" * 64}, "is not the archive of the tasks"), ({"offset": 1}, "does not have")):
        (tmp_path / "tasks.jsonl").write_text(json.dumps(read_rows(SHIPPED)[0] | change))
        world = CodeRepairWorld(CodeRepairOptions(tasks=str(tmp_path / "tasks.jsonl")))
        with pytest.raises(TaskError, match=said):
            world.open().start(world.instance("train", 0))
    for text in ("", "[]", "{", '"x"'):
        (tmp_path / "odd.jsonl").write_text(text)
        with pytest.raises(TaskError):
            CodeRepairWorld(CodeRepairOptions(tasks=str(tmp_path / "odd.jsonl"))).splits()
