"""A thing to repair, wherever it comes from: files, words for the agent, and how a repair is graded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from isentrope.tasks.code_repair.grade import Verdict, grade
from isentrope.tasks.code_repair.records import Repair
from isentrope.tasks.code_repair.running import TestRun, run_tests
from isentrope.tasks.code_repair.sandbox import Sandbox
from isentrope.tasks.code_repair.tree import Item

NAMED = 5  # failing tests named in the goal


class Problem(Protocol):
    @property
    def package(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def work(self) -> str:
        """Where the package lies in the sandbox."""
        ...

    @property
    def new_files(self) -> bool:
        """Whether a repair may need files that are not there yet."""
        ...

    @property
    def image(self) -> str:
        """The docker image it has to be played in; empty: any sandbox will do."""
        ...

    @property
    def goal(self) -> str: ...

    @property
    def fingerprint(self) -> str: ...

    def files(self, sandbox: Sandbox) -> Mapping[str, Item]: ...

    def run_tests(self, sandbox: Sandbox, targets: list[str]) -> TestRun: ...

    def grade(self, sandbox: Sandbox, diff: Mapping[str, bytes]) -> Verdict: ...


class InjectedBug:
    """A package in which we have changed one place."""

    work = "/repo"
    new_files = False
    image = ""

    def __init__(self, repair: Repair) -> None:
        self.repair = repair
        self.package = repair.package
        self.kind = repair.kind
        self.fingerprint = repair.fingerprint()

    @property
    def goal(self) -> str:
        failing = self.repair.fail_to_pass
        total = len(failing) + len(self.repair.pass_to_pass)
        more = f" and {len(failing) - NAMED} more" if len(failing) > NAMED else ""
        return (
            f"The package {self.package} has a bug: {len(failing)} of its {total} tests fail. Failing: "
            f"{', '.join(failing[:NAMED])}{more}. Correct the package so that all tests pass."
        )

    def files(self, sandbox: Sandbox) -> Mapping[str, Item]:
        return self.repair.files()

    def run_tests(self, sandbox: Sandbox, targets: list[str]) -> TestRun:
        return run_tests(sandbox, targets)

    def grade(self, sandbox: Sandbox, diff: Mapping[str, bytes]) -> Verdict:
        one = self.repair
        return grade(sandbox, one.files(), diff, one.fail_to_pass, one.pass_to_pass, one.mutant.old)
