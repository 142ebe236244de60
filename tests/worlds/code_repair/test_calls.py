"""Grading by calls, on a package made for it: what is asked, what is expected, what decides."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from isentrope.sandbox.base import Item, Outcome, Sandbox, make_sandbox
from isentrope.sandbox.bubblewrap import Bubblewrap
from isentrope.worlds.code_repair.calls import Answer, Exam, Probe, Reference, ask, exam, mark, reference
from isentrope.worlds.code_repair.exams import graded, grading
from isentrope.worlds.code_repair.plain import OPAQUE
from isentrope.worlds.code_repair.probes import calls_of
from tests.sandbox.boxes import QUICK, needs_bwrap

pytestmark = needs_bwrap

RIGHT = """import random


def double(n):
    return 2 * n


def limited(n):
    return n if n < 1000 else 1000


def chance():
    return random.random()


def slow(n):
    while n > 50:
        pass
    return n
"""
TESTS = """import pytest
from sums.core import *


def test_double():
    assert double(4) == 8


def test_same_for_all():
    assert limited(2) == 2


def test_whole(tmp_path):
    assert double(1) == 2


def test_chance():
    assert chance() < 1


def test_slow():
    assert slow(40) == 40
"""
NAMES = {f"tests/test_core.py::{name}" for name in ("test_double", "test_same_for_all", "test_slow")}
WHOLE = "tests/test_core.py::test_whole"


def files(core: str = RIGHT, tests: str = TESTS) -> dict[str, Item]:
    texts = {"sums/__init__.py": "", "sums/core.py": core, "tests/test_core.py": tests, "conftest.py": ""}
    return {path: Item(text.encode()) for path, text in texts.items()}


def make(patience: float = 1.0) -> Sandbox:
    return make_sandbox("bubblewrap", replace(QUICK, seconds=patience * QUICK.seconds, output=1 << 20))


@cache
def answers() -> Reference:
    return reference(files(), make, "0")


def examined(bug: str, tests: set[str]) -> Exam:
    return exam(answers(), files(bug), make, tests, "0")


DOUBLE_BUG = RIGHT.replace("2 * n", "n + 4")  # right for 4 alone
LIMIT_BUG = RIGHT.replace("else 1000", "else 999")  # no other input of the tests is that large


def test_the_reference() -> None:
    known = answers()
    assert set(known.shown) == NAMES
    assert "fixtures: tmp_path" in known.reasons[WHOLE]
    assert known.reasons["tests/test_core.py::test_chance"] == "it returns something else each time"
    asked = {probe.test: 0 for probe, _ in known.others}
    assert set(asked) == NAMES
    assert not any(answer.error for _, answer in known.others)
    assert reference(files(), make, "0").others == known.others
    assert reference(files(), make, "1").others != known.others


def test_what_decides() -> None:
    assert grading(examined(DOUBLE_BUG, NAMES)) == "calls"
    assert grading(examined(DOUBLE_BUG, {*NAMES, WHOLE})) == "both"
    assert grading(examined(LIMIT_BUG, NAMES)) == "shown"
    assert grading(examined(LIMIT_BUG, {*NAMES, WHOLE})) == "tests"


def test_hidden_inputs_decide() -> None:
    given = examined(DOUBLE_BUG, NAMES)
    assert given.showing > 5
    right, wrong = mark(given, make(), files()), mark(given, make(), files(DOUBLE_BUG))
    assert right.passed == wrong.passed == NAMES
    assert right.right == right.hidden == len(given.hidden)
    assert wrong.right <= wrong.hidden - given.showing
    assert right.complete
    assert wrong.complete


def verdict_of(bug: str, diff: Mapping[str, str]) -> tuple[bool, str, int, int]:
    given = examined(bug, {*NAMES, WHOLE})
    found = graded(
        given, files(bug), make, {path: text.encode() for path, text in diff.items()}, [WHOLE], sorted(NAMES)
    )
    return found.resolved, found.grading, found.fixed, found.kept


def test_tests_that_are_run_whole() -> None:
    assert verdict_of(DOUBLE_BUG, {"sums/core.py": RIGHT}) == (True, "both", 1, 3)
    assert verdict_of(DOUBLE_BUG, {}) == (False, "both", 0, 3)
    assert verdict_of(DOUBLE_BUG, {"sums/core.py": RIGHT + "import sys; sys.modules\n"}) == (False, "both", 1, 3)
    learnt = RIGHT.replace("2 * n", "{1: 2, 4: 8}.get(n)")
    assert verdict_of(DOUBLE_BUG, {"sums/core.py": learnt}) == (False, "both", 1, 3)


def test_a_bug_that_no_call_tells() -> None:
    """An operator with a value of the test: the sum is told as what it is, and its `__eq__` is not asked."""
    core = "class Sum:\n    def __init__(self, n):\n        self._n = n\n"
    core += "    def __eq__(self, n):\n        return self._n == n\n"
    tests = "from sums.core import *\ndef test_equal():\n    assert str(3) == '3'\n    assert Sum(3) == 3\n"
    bug = files(core.replace("self._n == n", "self._n != n"), tests)
    name = "tests/test_core.py::test_equal"
    given = exam(reference(files(core, tests), make, "0"), bug, make, {name}, "0", {name})
    assert given.reasons == {name: "as calls it does not show the bug"}
    assert grading(given) == "tests"
    assert not graded(given, bug, make, {}, [name], []).resolved
    assert graded(given, bug, make, {"sums/core.py": core.encode()}, [name], [], "self._n == n").resolved


EQUAL = """
class Equal:
    def __eq__(self, other):
        return True


def double(n):
    return Equal()
"""


def test_an_answer_that_equals_everything() -> None:
    tests = "from sums.core import *\ndef check(n, wanted):\n    assert double(n) == wanted\n"
    tests += "def test_double():\n    check(4, 8)\n"
    name = "tests/test_core.py::test_double"
    bug = files(DOUBLE_BUG.replace("n + 4", "n + 5"), tests)
    given = exam(reference(files(RIGHT, tests), make, "0"), bug, make, {name}, "0", {name})
    assert grading(given) == "calls"
    assert not graded(given, bug, make, {"sums/core.py": (RIGHT + EQUAL).encode()}, [name], []).resolved
    assert graded(given, bug, make, {"sums/core.py": RIGHT.encode()}, [name], []).resolved


def test_an_endless_loop_ends_with_its_probe() -> None:
    given = examined(DOUBLE_BUG, NAMES)
    found = mark(given, make(), files(RIGHT.replace("n > 50", "True")))
    assert not found.complete
    assert found.right < found.hidden


class Seen(Bubblewrap):
    """Keeps what lies in the box."""

    def exec(self, command: Any, extra: Mapping[str, bytes] | None = None) -> Outcome:
        self.paths, self.extra = self.tree.paths(), dict(extra or {})
        return super().exec(command, extra)


def test_the_box_holds_no_test_and_no_expected_value() -> None:
    given = examined(DOUBLE_BUG, NAMES)
    box = Seen(QUICK)
    mark(given, box, files())
    assert box.paths == ["sums/__init__.py", "sums/core.py"]
    plan = json.loads(box.extra["plan.json"])
    assert set(box.extra) == {"plan.json", "plain.py", "inside_calls.py"}
    assert set(plan) == {"paths", "seconds", "shown", "patience", "modules", "probes"}
    assert "assert" not in plan["modules"][0]["source"]
    assert 8 not in plan["modules"][0]["constants"]
    assert {len(probe) for probe in plan["probes"]} == {4}  # number, module, case, changes


class Says(Sandbox):
    """A box whose code sends what it likes."""

    work, python = "/repo", "python3"

    def __init__(self, *lines: object) -> None:
        self._output = b"".join((one if isinstance(one, bytes) else json.dumps(one).encode()) + b"\n" for one in lines)

    def _check_works(self) -> None: ...

    def exec(self, command: Any, extra: Mapping[str, bytes] | None = None) -> Outcome:
        return Outcome(0, self._output)


GOOD: dict[str, Any] = {"probe": 0, "seen": [1], "error": None}


@pytest.mark.parametrize(
    "lines",
    [
        (), ("passed",), (b"{",), (b"[" * 100_000,), (b"9" * 100_000,), (b"\xff",), (None,), ([GOOD],), (GOOD, GOOD),
        ({**GOOD, "probe": "0"},), ({**GOOD, "probe": False},), ({**GOOD, "probe": 0.0},), ({**GOOD, "seen": {}},),
        ({**GOOD, "error": 3},), ({**GOOD, "probe": 1},), ({"probe": 0},), (GOOD, b" " * 5000),
    ],
)  # fmt: skip
def test_what_is_no_answer(lines: tuple[object, ...]) -> None:
    probe = Probe(0, 0, "test_a.py::test_a")
    module = calls_of("test_a.py", b"def test_a():\n    assert f(1) == 2\n")
    assert ask(Says(*lines), {}, [module], [probe], 1.0, 1, room=4000) == [None]
    assert ask(Says(b"noise", GOOD), {}, [module], [probe], 1.0, 1, room=4000) == [Answer([1], None)]


def test_which_answers_are_right() -> None:
    expected = Answer([1, OPAQUE, ["list", 2]], None)
    assert expected.expects(Answer([1, "anything", ["list", 2]], None))
    for other in (
        None, Answer([1, OPAQUE, ["list", 2]], "Slow"), Answer([1, OPAQUE], None), Answer([], None),
        Answer([1, OPAQUE, ["list", 2], 3], None), Answer([True, OPAQUE, ["list", 2]], None),
        Answer([OPAQUE, OPAQUE, OPAQUE], None),
    ):  # fmt: skip
        assert not expected.expects(other)
