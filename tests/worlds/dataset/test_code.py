"""Answers that are code: graded by tests whose expected values are not where the code runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from isentrope.core.errors import TaskError
from isentrope.worlds.dataset.code import Tests, code_of, printed, read_tests
from isentrope.worlds.registry import make_world
from tests.worlds.dataset.test_dataset import played, write

ADD = ["assert add(1, 2) == 3", "assert add(-1, 1) == 0, 'zero'", "assert [add(1, 1)] == [2]"]
RIGHT = "Here it is:\n```python\ndef add(a, b):\n    return a + b\n```"


def world_of(folder: Path, tests: Any, **options: Any) -> Any:
    rows = [{"question": "Write add.", "tests": tests, "entry_point": "add"}] * 3
    settings = {"file": write(folder / "a.jsonl", rows), "test_share": 0.0, "answer": "", "rewards": ["code"]}
    try:
        return make_world("dataset", {**settings, "code": {"seconds": 5.0, **options}})
    except TaskError as error:
        if "bwrap" in str(error) or "bubblewrap" in str(error):
            pytest.skip(str(error))
        raise


def test_code_in_fences_and_without() -> None:
    assert code_of("a\n```py\nx = 1\n```\n```\ny = 2\n```\n") == "y = 2\n"
    assert code_of("x = 1") == "x = 1"
    assert printed("a \nb\n\n") == ["a", "b"]


def test_forms_of_tests() -> None:
    cases = Tests(cases=(("1\n", "2\n"),))
    assert read_tests([{"input": "1\n", "output": "2\n"}], "") == cases
    assert read_tests({"inputs": ["1\n"], "outputs": ["2\n"]}, "") == cases
    assert read_tests(json.dumps({"inputs": ["1\n"], "outputs": ["2\n"]}), "") == cases
    loop = "for i in range(3):\n        assert candidate(i) == i + 1\n"
    check = f"def check(candidate):\n    assert candidate(1) == 2\n    {loop}"
    tests = read_tests(check + "\ncheck(up)", "up")
    assert [(probe.source, probe.expected, probe.statement) for probe in tests.probes] == [
        ("candidate(1)", "2", False),
        ("for i in range(3):\n    assert candidate(i) == i + 1", None, True),
    ]
    assert "candidate = globals().get('up')" in tests.setup


@pytest.mark.parametrize(
    "tests", [3, [], ["x = 1"], "(", [{"input": "1"}], {"inputs": ["1"], "outputs": []}, ["assert f()"] * 300]
)
def test_tests_that_are_none(tests: Any) -> None:
    with pytest.raises(TaskError, match="tests"):
        read_tests(tests, "")


@pytest.mark.slow(8)
def test_functions(tmp_path: Path) -> None:
    world = world_of(tmp_path, ADD)
    assert world.threads == 4
    hostile = "```python\nclass Any:\n    def __eq__(self, other): return True\ndef add(a, b): return Any()\n```"
    leaves = '```python\nimport os\nprint(\'{"probe": 0, "value": 3}\')\nos._exit(0)\n```'
    reads = "```python\ndef add(a, b):\n    return open('/box/plan.json').read()\n```"
    loops = "```python\ndef add(a, b):\n    while True: pass\n```"
    answers = (RIGHT, "def add(a, b): return a - b", "no code", "", hostile, leaves, reads, loops, "x" * 200_000)
    assert [played(world, answer)[0].success for answer in answers] == [True] + [False] * 8
    half = world_of(tmp_path, ADD, partial=True)
    assert played(half, "def add(a, b): return 3")[0].reward == pytest.approx(1 / 3)


@pytest.mark.slow(4)
def test_programs_and_humaneval(tmp_path: Path) -> None:
    world = world_of(tmp_path, [{"input": "1 2\n", "output": "3"}, {"input": "4 5\n", "output": "9\n"}])
    program = "```python\na, b = map(int, input().split())\nprint(a + b)\n```"
    assert [played(world, answer)[0].success for answer in (program, "print(3)")] == [True, False]
    check = "import math\ndef check(candidate):\n    assert candidate(1, 2) == math.floor(3.5)\n"
    check += "    assert candidate(0, 0) is not None"
    world = world_of(tmp_path, check, entry="entry_point")
    assert [played(world, answer)[0].success for answer in (RIGHT, "def add(a, b): return 4")] == [True, False]


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"cannot be scored.*has no 'what', which task\.options\.code\.tests names"):
        make_world("dataset", {"file": write(tmp_path / "a.jsonl"), "rewards": ["code"], "code": {"tests": "what"}})
