"""The reward function `code`: runs the answer's Python against tests in the sandbox; what is expected stays out of it.

A row's tests are one of these.

    ["assert add(1, 2) == 3", ...] or one text of such lines      as MBPP and HumanEval (its check(candidate)) have them
    [{"input": "1 2\\n", "output": "3\\n"}, ...]                   what a program reads and prints
    {"inputs": [...], "outputs": [...]}                           the same, as APPS and TACO have it

Of `assert A == B` the box is given A alone, and what it returns is compared here with B, which another box without the
answer has worked out. So an answer that changes what a comparison does, or prints what a test would, gains nothing. A
condition without a comparison (`assert is_prime(7)`) has to be true, which an answer can guess.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from isentrope.core.errors import TaskError
from isentrope.sandbox.base import Item, Limits, Sandbox, make_sandbox
from isentrope.worlds.code_repair.plain import OPAQUE, same
from isentrope.worlds.dataset.options import CodeOptions
from isentrope.worlds.dataset.question import Question

MOST_TESTS = 200  # of one question
MOST_CODE = 100_000  # characters of an answer
_FENCED = re.compile(r"```(?:python|py)?[ \t]*\r?\n(.*?)```", re.DOTALL | re.IGNORECASE)
_HERE = Path(__file__).parent
_INSIDE = {"inside.py": _HERE / "inside_code.py", "plain.py": _HERE.parent / "code_repair" / "plain.py"}


@dataclass(frozen=True)
class Probe:
    """One expression or statement for the box, and the expression for what it should give; None: it has to be true."""

    source: str
    expected: str | None = None
    statement: bool = False


@dataclass(frozen=True)
class Tests:
    setup: str = ""
    probes: tuple[Probe, ...] = ()
    cases: tuple[tuple[str, str], ...] = ()  # input and output of a program

    __test__ = False  # pytest: not a test, in spite of its name


class Code:
    name = "code"
    hint = "Answer with Python code in one block between ```python and ```."

    def __init__(self, options: CodeOptions) -> None:
        self._options = options
        limits = Limits(seconds=options.seconds, memory=options.memory << 20, processes=16)
        self._make = lambda: make_sandbox("bubblewrap", limits)
        trial = self._make()
        trial.start({})  # says what is missing, before a model is loaded
        trial.close()
        self._expected = lru_cache(maxsize=4096)(self._work_out)

    def problem(self, question: Question) -> str:
        try:
            self._tests(question)
        except TaskError as error:
            return str(error)
        return ""

    def score(self, question: Question, response: str) -> float:
        tests, code = self._tests(question), code_of(response)
        if len(code) > MOST_CODE:
            return 0.0
        passed = self._program(tests, code) if tests.cases else self._asserts(tests, code)
        total = len(tests.cases) or len(tests.probes)
        return passed / total if self._options.partial else float(passed == total)

    def _tests(self, question: Question) -> Tests:
        column, entry = self._options.tests, self._options.entry
        if question.row.get(column) is None:
            raise TaskError(f"it has no {column!r}, which task.options.code.tests names")
        name = str(question.row.get(entry, "")) if entry else ""
        if entry and not name.isidentifier():
            raise TaskError(f"its {entry} is {name!r:.60}, expected the name of a function")
        return read_tests(question.row[column], name)

    def _asserts(self, tests: Tests, code: str) -> int:
        expected = self._expected(tests)
        got = self._run({"code": code, "setup": tests.setup, "probes": _sources(tests.probes)})
        return sum(
            number in got and got[number] != OPAQUE and same(value, got[number]) for number, value in expected.items()
        )

    def _work_out(self, tests: Tests) -> dict[int, Any]:
        """What the tests expect, worked out without an answer."""
        compared = {number: probe for number, probe in enumerate(tests.probes) if probe.expected is not None}
        values = {number: True for number in range(len(tests.probes)) if number not in compared}
        if compared:
            asked = [[number, probe.expected, False] for number, probe in compared.items()]
            got = self._run({"code": "", "setup": tests.setup, "probes": asked})
            lacking = [probe for number, probe in compared.items() if got.get(number, OPAQUE) == OPAQUE]
            if lacking:
                raise TaskError(f"what a test expects cannot be worked out: {lacking[0].expected!r:.80}")
            values |= got
        return values

    def _program(self, tests: Tests, code: str) -> int:
        plan = {"program": code, "inputs": [given for given, _ in tests.cases], "seconds": self._options.seconds}
        got = self._run(plan)
        return sum(
            isinstance(got.get(number), str) and printed(got[number]) == printed(output)
            for number, (_, output) in enumerate(tests.cases)
        )

    def _run(self, plan: Mapping[str, Any]) -> dict[int, Any]:
        """What a box told, by the number of the probe; of what code printed besides nothing is believed to be ours
        that is not of this form, and it would have to be right all the same."""
        sandbox: Sandbox = self._make()
        sandbox.start({"answer.py": Item(str(plan.get("program", "")).encode("utf-8", "replace"))})
        try:
            files = {name: path.read_bytes() for name, path in _INSIDE.items()}
            files["plan.json"] = json.dumps(plan).encode("utf-8", "replace")
            outcome = sandbox.exec([sandbox.python, "-I", "/box/inside.py"], files)
        finally:
            sandbox.close()
        told: dict[int, Any] = {}
        for line in outcome.output.splitlines():
            try:
                said = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(said, dict) and type(number := cast("dict[str, Any]", said).get("probe")) is int:
                told[number] = cast("dict[str, Any]", said).get("value")
        return told


def code_of(response: str) -> str:
    """The last block of code; without one all of it."""
    blocks = _FENCED.findall(response)
    return blocks[-1] if blocks else response


def printed(text: str) -> list[str]:
    """What a program printed, white space at the ends of lines and at the end aside."""
    return [line.rstrip() for line in text.rstrip().splitlines()]


@lru_cache(maxsize=4096)
def _parsed(text: str, entry: str) -> Tests:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise TaskError(f"its tests are no Python ({str(error)[:80]}): {text[:60]!r}") from None
    setup: list[str] = []
    probes: list[Probe] = []
    for node in _flat(tree.body):
        if isinstance(node, ast.Assert):
            probes.append(_probe(node.test))
        elif any(isinstance(inner, ast.Assert) for inner in ast.walk(node)):
            probes.append(Probe(ast.unparse(node), statement=True))
        else:
            setup.append(ast.unparse(node))
    if not probes:
        raise TaskError("its tests have no assert")
    if entry:
        setup.append(f"candidate = globals().get({entry!r})")
    return Tests("\n".join(setup), tuple(probes))


def _flat(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The statements, those of HumanEval's check(candidate) in its place, and no call of it."""
    flat: list[ast.stmt] = []
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name == "check" and len(node.args.args) == 1:
            flat += node.body
        elif not (isinstance(node, ast.Expr) and ast.unparse(node).startswith("check(")):
            flat.append(node)
    return flat


def _probe(test: ast.expr) -> Probe:
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq | ast.Is):
        left, right = test.left, test.comparators[0]
        if isinstance(left, ast.Constant) and not isinstance(right, ast.Constant):
            left, right = right, left
        return Probe(ast.unparse(left), ast.unparse(right))
    return Probe(f"bool({ast.unparse(test)})")


def _sources(probes: Sequence[Probe]) -> list[Any]:
    return [[number, probe.source, probe.statement] for number, probe in enumerate(probes)]


def read_tests(value: object, entry: str) -> Tests:
    """The tests of a row, whatever form they have. `entry`: the function that they call candidate."""
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        inputs, outputs = table.get("inputs"), table.get("outputs")
        if not isinstance(inputs, list) or not isinstance(outputs, list):
            raise TaskError(f"its tests are a table with {', '.join(table)[:60]}; expected inputs and outputs")
        if len(cast("list[Any]", inputs)) != len(cast("list[Any]", outputs)):
            raise TaskError("its tests have not as many inputs as outputs")
        value = [
            {"input": a, "output": b}
            for a, b in zip(cast("list[Any]", inputs), cast("list[Any]", outputs), strict=True)
        ]
    if isinstance(value, str):
        if value.lstrip().startswith(("[", "{")):  # JSON in a column of text
            try:
                return read_tests(json.loads(value), entry)
            except (ValueError, RecursionError):
                pass
        return _bounded(_parsed(value, entry))
    items = cast("list[Any]", value) if isinstance(value, list) else []
    if items and all(isinstance(one, str) for one in items):
        return _bounded(_parsed("\n".join(items), entry))
    if items and all(
        isinstance(one, dict) and {"input", "output"} <= set(cast("dict[str, Any]", one)) for one in items
    ):
        return _bounded(Tests(cases=tuple((str(one["input"]), str(one["output"])) for one in items)))
    raise TaskError(f"its tests are {value!r:.60}; expected assert statements, or inputs and outputs")


def _bounded(tests: Tests) -> Tests:
    if len(tests.probes) + len(tests.cases) > MOST_TESTS:
        raise TaskError(f"it has more than {MOST_TESTS} tests")
    return tests
