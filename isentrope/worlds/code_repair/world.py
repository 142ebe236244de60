"""The code repair world: packages with a bug, tools to find and correct it, and tests that decide."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

from isentrope.config.schema import setting
from isentrope.core.errors import TaskError
from isentrope.core.needs import Needs, installer
from isentrope.core.process import usable_cores
from isentrope.sandbox.base import BACK_ENDS, Limits, Sandbox, make_sandbox
from isentrope.sandbox.bubblewrap import python_folders
from isentrope.worlds.code_repair.exams import GRADED_OUTPUT
from isentrope.worlds.code_repair.grade import Verdict
from isentrope.worlds.code_repair.mutate import KINDS, Mutant
from isentrope.worlds.code_repair.problem import SMALL, Repair, read_rows, repair_of
from isentrope.worlds.code_repair.swebench import Issue, issues
from isentrope.worlds.code_repair.workbench import RULES, Misunderstood, Workbench, clipped, parse_action
from isentrope.worlds.contract import Expert, Instance, Move, Step, View
from isentrope.worlds.pool.open import MOST_THREADS

Problem = Repair | Issue
AROUND = 8  # lines looked at before and after the bug

_WRONG = {
    "compare": "The comparison there is the wrong one.", "arithmetic": "The operator there is the wrong one.",
    "logic": "The condition there is wrong.", "boundary": "The number there is off by one.",
    "constant": "The truth value there is the wrong way round.",
    "return": "It returns None there instead of its result.",
    "statement": "A statement is missing there: pass stands in its place.",
    "arguments": "The arguments there are in the wrong order.",
    "loop": "The loop goes on or ends there where it should not.",
}  # fmt: skip


class RepairExpert:
    """Knows where the bug is: runs the tests, looks at the place, corrects it, runs the tests again and submits. Its
    thoughts say no more than what it sees or does."""

    def __init__(self, problem: Callable[[Instance], Problem]) -> None:
        self._find = problem
        self._moves: list[Move] = []

    def start(self, view: View, instance: Instance) -> None:
        repair = self._find(instance)
        if not isinstance(repair, Repair):
            raise TaskError("the expert knows injected bugs only: a SWE-bench issue has no known way of playing it")
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
    correction = f"edit {mutant.file} {first}-{last}\n{right}"
    return [
        Move(f"First I see how {test} fails.", f"run tests {failing[0].partition('::')[0]}"),
        Move(f"That leads to {where}. I look at it.", f"view {mutant.file} {look}"),
        Move(f"The fault is in {lines_are}. {_WRONG[mutant.kind]} I correct it.", correction),
        Move("Now I run all tests.", "run tests"),
        Move("All tests pass. I submit.", "submit"),
    ]


PYTEST = Needs("code", ("pytest",))  # in our own Python installation, which boxes see; the sandbox looks for itself
LISTED = 60  # files named at the start


def check_pytest() -> None:
    """Without pytest in the box every test run would come to nothing, and no repair could be solved."""
    PYTEST.check("code repair", TaskError)
    spec = importlib.util.find_spec("pytest")
    seen = ["/usr", *python_folders()]
    if spec is not None and spec.origin and not any(Path(spec.origin).is_relative_to(folder) for folder in seen):
        raise TaskError(
            f"code repair runs tests in a box that sees {', '.join(seen)}, and pytest lies elsewhere ({spec.origin}): "
            f"install it into this environment with {installer()} pytest"
        )


class RepairTask:
    """Plays one repair at a time. The episode ends with `submit`; what was not submitted is not solved. The runner sets
    the turn limit."""

    def __init__(self, world: CodeRepairWorld) -> None:
        self._world, self._options = world, world.options
        self._played: tuple[Problem, Sandbox, Workbench] | None = None

    def start(self, instance: Instance) -> View:
        self.close()
        problem = self._world.problem(instance)
        if not problem.image and self._options.sandbox == "bubblewrap":
            check_pytest()
        sandbox = self._make(problem, self._world.limits)
        files = problem.files()
        sandbox.start(files)
        bench = Workbench(sandbox, files, self._options.answer, problem.new_files, problem.run_tests)
        self._played = problem, sandbox, bench
        names = sorted(files)
        more = f"\n({len(names) - LISTED} more files)" if len(names) > LISTED else ""
        return self._view(problem, f"Files of {problem.package}:\n" + "\n".join(names[:LISTED]) + more)

    def step(self, action: str) -> Step:
        if self._played is None:
            raise TaskError("step was called before start: start an instance first")
        problem, sandbox, bench = self._played
        try:
            wanted = parse_action(action)
            if wanted.verb != "submit":
                return Step(self._view(problem, bench.do(wanted)))
        except Misunderstood as reason:
            return Step(self._view(problem, str(reason)), valid=False)
        make = partial(self._make_graded, problem)
        found = problem.grade(make, sandbox.tree.diff(), self._options.hidden_seed)
        self.close()  # what comes now needs a new start
        fixed = found.fixed / found.to_fix if found.to_fix else 1.0
        kept = found.kept / found.to_keep if found.to_keep else 1.0
        hidden = found.right / found.hidden if found.hidden else 1.0
        info: dict[str, str | float | bool] = {
            "fixed": fixed, "kept": kept, "hidden": hidden, "honest": found.honest, "grading": found.grading,
        }  # fmt: skip
        view, resolved = self._view(problem, _in_words(found)), found.resolved
        return Step(view, 1.0 if resolved else 0.0, terminated=True, success=resolved, info=info)

    def close(self) -> None:
        if self._played is not None:
            self._played[1].close()
        self._played = None

    def _make(self, problem: Problem, limits: Limits) -> Sandbox:
        back_end = "docker" if problem.image else self._options.sandbox
        return make_sandbox(back_end, limits, problem.image or self._options.image, problem.work)

    def _make_graded(self, problem: Problem, patience: float) -> Sandbox:
        limits = self._world.limits
        return self._make(problem, replace(limits, seconds=patience * limits.seconds, output=GRADED_OUTPUT))

    def _view(self, problem: Problem, text: str) -> View:
        return View(text=clipped(text, self._options.answer), admissible=None, goal=problem.goal, rules=RULES)


def _in_words(found: Verdict) -> str:
    if found.resolved:
        return "Submitted. All tests pass: the bug is repaired."
    if not found.honest:
        return "Submitted. The tests could not be run to their end, or the repair makes code from text: not repaired."
    if (found.fixed, found.kept) == (found.to_fix, found.to_keep):
        wrong = f"{found.hidden - found.right} of {found.hidden}"
        return f"Submitted. All tests pass, but {wrong} other inputs give wrong results: not repaired."
    return (
        f"Submitted. Of the failing tests {found.fixed} of {found.to_fix} pass now, of the others {found.kept} of "
        f"{found.to_keep} still do: not repaired."
    )


SHIPPED = SMALL / "tasks.jsonl"
SHIPPED_TEST = ("calculator", "stores")


@dataclass(frozen=True)
class CodeRepairOptions:
    tasks: str = setting(
        "", "empty: bugs in our own small packages; else a file of isentrope build-repairs, or SWE-bench rows"
    )
    test_packages: tuple[str, ...] = setting(
        (), "packages of the test split; empty: about a quarter of them, at least one, chosen by name"
    )
    sandbox: str = setting("bubblewrap", "what confines the code", choices=BACK_ENDS)
    image: str = setting("", "docker: image with Python and pytest; SWE-bench rows name their own")
    seconds: float = setting(20.0, "a test run that takes longer is stopped", above=0)
    memory: int = setting(1024, "megabytes that a test run may take", low=64)
    disk: int = setting(64, "megabytes that a test run may write", low=1)
    hidden_seed: int = setting(0, "which hidden inputs a repair is graded on")
    answer: int = setting(4000, "characters of one observation; the middle of longer ones is left out", low=200)


class CodeRepairWorld:
    name = "code_repair"
    prefers = "local"  # the work is done in boxes, which are processes anyway

    def __init__(self, options: CodeRepairOptions | None = None) -> None:
        self.options = options or CodeRepairOptions()
        if self.options.sandbox not in BACK_ENDS:
            raise TaskError(f"sandbox = {self.options.sandbox!r}: choose one of {', '.join(BACK_ENDS)}")
        self.kinds = (*KINDS, "issue")

    @property
    def threads(self) -> int:
        return min(MOST_THREADS, max(2, usable_cores()))

    @property
    def limits(self) -> Limits:
        disk = self.options.disk << 20
        return Limits(self.options.seconds, self.options.memory << 20, disk=disk, file=max(16 << 20, disk // 4))

    @cached_property
    def problems(self) -> dict[str, list[Problem]]:
        """By split, in an order that is the same everywhere and mixes packages and kinds."""
        path = Path(self.options.tasks) if self.options.tasks else SHIPPED
        rows = read_rows(path)
        if "instance_id" in rows[0]:
            return {"test": [*issues(rows)]}
        found = [repair_of(row, path.parent, number) for number, row in enumerate(rows, start=1)]
        for_test = self._test_packages({one.package for one in found})
        splits: dict[str, list[Problem]] = {"train": [], "test": []}
        for one in sorted(found, key=lambda one: one.fingerprint):
            splits["test" if one.package in for_test else "train"].append(one)
        for split, problems in splits.items():
            random.Random(f"code repair {split}").shuffle(problems)
        return {split: problems for split, problems in splits.items() if problems}

    def _test_packages(self, packages: set[str]) -> set[str]:
        chosen = set(self.options.test_packages or (() if self.options.tasks else SHIPPED_TEST))
        if unknown := chosen - packages:
            there = ", ".join(sorted(packages))
            raise TaskError(f"test_packages names {', '.join(sorted(unknown))}; there are {there}")
        if chosen or len(packages) == 1:
            return chosen
        order = sorted(packages)
        random.Random("code repair packages").shuffle(order)
        return set(order[: max(1, len(order) // 4)])

    def splits(self) -> Sequence[str]:
        return tuple(self.problems)

    def size(self, split: str) -> int:
        return len(self._of(split))

    def instance(self, split: str, index: int) -> Instance:
        problems = self._of(split)
        if not 0 <= index < len(problems):
            raise TaskError(f"there is no task {index} in {split}, which has {len(problems)}, numbered from 0")
        return Instance(self.name, split, index, problems[index].kind)

    def problem(self, instance: Instance) -> Problem:
        self.instance(instance.split, instance.index)
        return self.problems[instance.split][instance.index]

    def fingerprint(self, instance: Instance) -> str:
        return self.problem(instance).fingerprint

    def open(self) -> RepairTask:
        return RepairTask(self)

    def expert(self, seed: int) -> Expert | None:
        known = any(isinstance(one, Repair) for problems in self.problems.values() for one in problems)
        return RepairExpert(self.problem) if known else None

    def _of(self, split: str) -> list[Problem]:
        if split not in self.problems:
            raise TaskError(f"the code repair world has no split {split!r} here; it has {', '.join(self.problems)}")
        return self.problems[split]
