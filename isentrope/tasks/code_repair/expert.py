"""A player that knows where the bug is, and says no more than what it sees or does."""

from __future__ import annotations

from collections.abc import Callable

from isentrope.errors import TaskError
from isentrope.tasks.code_repair.mutate import Mutant
from isentrope.tasks.code_repair.problem import InjectedBug, Problem
from isentrope.tasks.contract import Instance, Move, View

AROUND = 8  # lines looked at before and after the bug

_WRONG = {
    "compare": "The comparison there is the wrong one.",
    "arithmetic": "The operator there is the wrong one.",
    "logic": "The condition there is wrong.",
    "boundary": "The number there is off by one.",
    "constant": "The truth value there is the wrong way round.",
    "return": "It returns None there instead of its result.",
    "statement": "A statement is missing there: pass stands in its place.",
    "arguments": "The arguments there are in the wrong order.",
    "loop": "The loop goes on or ends there where it should not.",
}


class RepairExpert:
    """Runs the tests, looks at the place, corrects it, runs the tests again and submits."""

    def __init__(self, problem: Callable[[Instance], Problem]) -> None:
        self._find = problem
        self._moves: list[Move] = []

    def start(self, view: View, instance: Instance) -> None:
        problem = self._find(instance)
        if not isinstance(problem, InjectedBug):
            raise TaskError("the expert knows injected bugs only: a SWE-bench issue has no known way of playing it")
        repair = problem.repair
        source = repair.files()[repair.mutant.file].data
        self._moves = _plan(repair.mutant, source, repair.fail_to_pass)

    def act(self, view: View) -> Move:
        if not self._moves:
            raise TaskError("the expert has submitted: the task is over")
        return self._moves.pop(0)


def _plan(mutant: Mutant, source: bytes, failing: tuple[str, ...]) -> list[Move]:
    fixed = mutant.undo(source)
    end = mutant.offset + len(mutant.new.encode())
    first, last = source.count(b"\n", 0, mutant.offset) + 1, source.count(b"\n", 0, end) + 1
    lines = fixed.decode("utf-8").replace("\r\n", "\n").split("\n")
    count = last - first + 1 + mutant.old.count("\n") - mutant.new.count("\n")
    right = "\n".join(lines[first - 1 : first - 1 + count])
    total = source.count(b"\n") + (not source.endswith(b"\n"))
    look = f"{max(1, first - AROUND)}-{min(total, last + AROUND)}"
    where = f"{mutant.function} in {mutant.file}" if mutant.function else mutant.file
    test = failing[0].rpartition("::")[2]
    lines_are = f"line {first}" if first == last else f"lines {first}-{last}"
    return [
        Move(f"First I see how {test} fails.", f"run tests {failing[0].partition('::')[0]}"),
        Move(f"That leads to {where}. I look at it.", f"view {mutant.file} {look}"),
        Move(
            f"The fault is in {lines_are}. {_WRONG[mutant.kind]} I correct it.",
            f"edit {mutant.file} {first}-{last}\n{right}",
        ),
        Move("Now I run all tests.", "run tests"),
        Move("All tests pass. I submit.", "submit"),
    ]
