"""Plays one repair at a time."""

from __future__ import annotations

from collections.abc import Callable

from isentrope.errors import TaskError
from isentrope.tasks.code_repair.actions import RULES, Misunderstood, parse_action
from isentrope.tasks.code_repair.grade import Verdict
from isentrope.tasks.code_repair.problem import Problem
from isentrope.tasks.code_repair.sandbox import Limits, Sandbox, make_sandbox
from isentrope.tasks.code_repair.words import clipped
from isentrope.tasks.code_repair.workbench import Workbench
from isentrope.tasks.contract import Instance, Step, View
from isentrope.tasks.needs import Needs

PYTEST = Needs("code", ("pytest",))  # in our own Python installation, which boxes see
LISTED = 60  # files named at the start


class RepairTask:
    """The episode ends with `submit`; the runner sets the turn limit, and what was not submitted is not solved."""

    def __init__(
        self, problem: Callable[[Instance], Problem], back_end: str, image: str, limits: Limits, most: int
    ) -> None:
        self._find, self._back_end, self._image, self._limits, self._most = problem, back_end, image, limits, most
        self._problem: Problem | None = None
        self._sandbox: Sandbox | None = None
        self._bench: Workbench | None = None

    def start(self, instance: Instance) -> View:
        self.close()
        problem = self._find(instance)
        if not problem.image and self._back_end == "bubblewrap" and (missing := PYTEST.missing()):
            raise TaskError(f"code repair runs tests with pytest, which is not here; {missing[0]}")
        sandbox = self._make(problem)
        files = problem.files(sandbox)
        sandbox.start(files)
        self._problem, self._sandbox = problem, sandbox
        self._bench = Workbench(sandbox, files, self._most, problem.new_files, problem.run_tests)
        names = sorted(files)
        more = f"\n({len(names) - LISTED} more files)" if len(names) > LISTED else ""
        return self._view(problem, f"Files of {problem.package}:\n" + "\n".join(names[:LISTED]) + more)

    def step(self, action: str) -> Step:
        problem, bench = self._problem, self._bench
        if problem is None or bench is None:
            raise TaskError("step was called before start: start an instance first")
        try:
            wanted = parse_action(action)
            if wanted.verb != "submit":
                return Step(self._view(problem, bench.do(wanted)))
        except Misunderstood as reason:
            return Step(self._view(problem, str(reason)), valid=False)
        return self._submitted(problem)

    def close(self) -> None:
        if self._sandbox is not None:
            self._sandbox.close()
        self._problem = self._sandbox = self._bench = None

    def _submitted(self, problem: Problem) -> Step:
        assert self._sandbox is not None
        found = problem.grade(self._make(problem), self._sandbox.diff())
        step = Step(
            self._view(problem, _in_words(found)),
            reward=1.0 if found.resolved else 0.0,
            terminated=True,
            success=found.resolved,
            info={
                "fixed": found.fixed / found.to_fix if found.to_fix else 1.0,
                "kept": found.kept / found.to_keep if found.to_keep else 1.0,
                "honest": found.honest,
            },
        )
        self._bench = None  # what comes now needs a new start
        return step

    def _make(self, problem: Problem) -> Sandbox:
        back_end = "docker" if problem.image else self._back_end
        return make_sandbox(back_end, self._limits, problem.image or self._image, problem.work)

    def _view(self, problem: Problem, text: str) -> View:
        return View(text=clipped(text, self._most), admissible=None, goal=problem.goal, rules=RULES)


def _in_words(found: Verdict) -> str:
    if found.resolved:
        return "Submitted. All tests pass: the bug is repaired."
    if not found.honest:
        return "Submitted. The tests could not be run as they are meant to: not repaired."
    return (
        f"Submitted. Of the failing tests {found.fixed} of {found.to_fix} pass now, of the others {found.kept} of "
        f"{found.to_keep} still do: not repaired."
    )
