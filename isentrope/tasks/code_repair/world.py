"""The code repair world: packages with a bug, tools to find and correct it, and tests that decide."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from isentrope.config.schema import setting
from isentrope.errors import TaskError
from isentrope.tasks.code_repair.archive import SMALL
from isentrope.tasks.code_repair.mutate import KINDS
from isentrope.tasks.code_repair.problem import InjectedBug, Problem
from isentrope.tasks.code_repair.records import read_rows, repair_of
from isentrope.tasks.code_repair.sandbox import BACK_ENDS, Limits
from isentrope.tasks.code_repair.task import RepairTask
from isentrope.tasks.contract import Expert, Instance
from isentrope.tasks.where import MOST_THREADS, cores

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
        return min(MOST_THREADS, max(2, cores()))

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
            from isentrope.tasks.code_repair.swebench import issues

            return {"test": [*issues(rows)]}
        found = [InjectedBug(repair_of(row, path.parent, number)) for number, row in enumerate(rows, start=1)]
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
        return RepairTask(self.problem, self.options.sandbox, self.options.image, self.limits, self.options.answer)

    def expert(self, seed: int) -> Expert | None:
        from isentrope.tasks.code_repair.expert import RepairExpert

        known = any(isinstance(one, InjectedBug) for problems in self.problems.values() for one in problems)
        return RepairExpert(self.problem) if known else None

    def _of(self, split: str) -> list[Problem]:
        if split not in self.problems:
            raise TaskError(f"the code repair world has no split {split!r} here; it has {', '.join(self.problems)}")
        return self.problems[split]
