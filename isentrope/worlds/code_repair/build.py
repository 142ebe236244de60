"""Makes repair tasks: puts bugs into a package and keeps those that its tests notice; deterministic for a seed."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from isentrope.core.errors import TaskError
from isentrope.sandbox.base import Item, Limits, Sandbox, make_sandbox
from isentrope.worlds.code_repair.exams import GRADED_OUTPUT, grading
from isentrope.worlds.code_repair.grade import files_with_tests, is_protected
from isentrope.worlds.code_repair.mutate import Mutant, mutants
from isentrope.worlds.code_repair.problem import Repair, archive_hash, read_archive
from isentrope.worlds.code_repair.running import TestRun, run_tests

_NOT_SOURCE = re.compile(r"(^|/)(docs?|examples?|benchmarks?|bench|scripts?|tools|versioneer\.py|_version\.py)(/|$)")


def package_name(archive: str) -> str:
    """toolz-1.2.0.tar.gz -> toolz"""
    name = archive.removeprefix("small:").rstrip("/").rpartition("/")[2]
    name = re.sub(r"\.(tar\.\w+|tgz|zip|tar)$", "", name)
    return re.sub(r"-\d[^-]*$", "", name)


class Builder:
    """Tries the bugs of one archive in an order drawn from the seed."""

    def __init__(self, archive: str, seed: int, limits: Limits, sandbox: str = "bubblewrap", image: str = "") -> None:
        self.package, self.archive, self.seed = package_name(archive), archive, seed
        self._limits, self._back_end, self._image = limits, sandbox, image
        self._files = read_archive(archive)
        self._sha256 = archive_hash(archive)
        self._tests = files_with_tests(self._files)
        if not self._tests:
            raise TaskError(f"{archive} ships no tests (test_*.py), so nothing would notice a bug in it")

    def stable_tests(self) -> set[str]:
        """Tests that pass, two times out of two."""
        passed = self._run(self._files).passed() & self._run(self._files).passed()
        if not passed:
            raise TaskError(
                f"no test of {self.archive} passes in the sandbox: run its tests yourself; what they need beyond the "
                "package has to be installed beside pytest, and they have to run without network"
            )
        return passed

    def tries(self, stable: set[str]) -> Iterator[Repair | str]:
        found = [
            mutant
            for path, item in sorted(self._files.items())
            if path.endswith(".py") and not is_protected(path) and not _NOT_SOURCE.search(path)
            for mutant in mutants(path, item.data)
        ]
        random.Random(f"repairs {self.seed} {self._sha256}").shuffle(found)
        return (self.tried(mutant, stable) for mutant in found)

    def tried(self, mutant: Mutant, stable: set[str]) -> Repair | str:
        """The task made of one bug, or why it makes none."""
        item = self._files[mutant.file]
        files = {**self._files, mutant.file: Item(mutant.apply(item.data), item.executable)}
        first = self._run(files)
        if not first.complete:
            return "the tests do not come to an end"
        if first.broken:
            return "the tests cannot be loaded"
        passed = first.passed() & stable
        failed = stable - passed
        if not failed:
            return "no test notices"
        if not passed:
            return "no test passes"
        if self._run(files).passed() & stable != passed:
            return "the tests go differently each time"
        names = tuple(sorted(failed)), tuple(sorted(passed))
        made = Repair(self.package, self.archive, self._sha256, mutant, *names, self.seed)
        given = made.exam(self._sandbox)
        return replace(made, grading=grading(given), whole=tuple(sorted(given.reasons)))

    def reasons(self, repair: Repair) -> dict[str, str]:
        """By test that is run whole: why it is more than calls."""
        return repair.exam(self._sandbox).reasons

    def _sandbox(self, patience: float) -> Sandbox:
        limits = replace(self._limits, seconds=patience * self._limits.seconds, output=GRADED_OUTPUT)
        return make_sandbox(self._back_end, limits, self._image)

    def _run(self, files: dict[str, Item]) -> TestRun:
        sandbox = make_sandbox(self._back_end, self._limits, self._image)
        sandbox.start(files)
        run = run_tests(sandbox, self._tests)
        sandbox.close()
        return run


def check_archives(archives: list[str]) -> None:
    missing = [one for one in archives if not one.startswith("small:") and not Path(one).exists()]
    if missing:
        how = "pip download --no-deps --no-binary :all: NAME"
        raise TaskError(f"there is no {', '.join(missing)}; source archives come with: {how}")
