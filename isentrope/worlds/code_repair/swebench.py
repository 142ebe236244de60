"""Plays SWE-bench: real issues of real projects, each in the docker image made for it.

The rows come from a file of yours. What an image needs is known by convention: the project lies in /testbed, and its
Python environment is conda's `testbed`.
"""

from __future__ import annotations

import json
import platform
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from isentrope.core.errors import TaskError
from isentrope.core.needs import require
from isentrope.sandbox.base import Item, Limits, Sandbox
from isentrope.sandbox.docker import Docker
from isentrope.worlds.code_repair.calls import Make
from isentrope.worlds.code_repair.grade import Verdict, graded_part, verdict
from isentrope.worlds.code_repair.running import TestRun, sanitize

WORK = "/testbed"
FIELDS = ("instance_id", "repo", "base_commit", "problem_statement", "test_patch", "FAIL_TO_PASS", "PASS_TO_PASS")
_STATUS = re.compile(r"^(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS) (\S.*?)(?: - .*)?$")
_TOUCHED = re.compile(r"^\+\+\+ b/(.+)$", re.MULTILINE)
_BASH = "source /opt/miniconda3/bin/activate testbed && "
_OWN_RUNNER = {"django/django", "sympy/sympy"}  # their tests are not run by pytest
_START = ">>>>> tests start here"


@dataclass(frozen=True)
class Issue:
    """One row, ready to be played."""

    instance_id: str
    repo: str
    version: str
    statement: str
    test_patch: str
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]

    kind = "issue"
    work = WORK
    new_files = True  # a repair may need some

    @property
    def package(self) -> str:
        return self.repo.rpartition("/")[2]

    @property
    def image(self) -> str:
        return image_name(self.instance_id)

    @property
    def goal(self) -> str:
        return f"Resolve this issue of {self.repo}:\n{sanitize(self.statement)}"

    @property
    def fingerprint(self) -> str:
        return self.instance_id

    def files(self) -> dict[str, Item]:
        return _files(self.image)

    def grade(self, make: Make, diff: Mapping[str, bytes], seed: int = 0) -> Verdict:
        """The tests' patch is applied on top of the agent's files, so its tests are the ones that count."""
        files, sandbox = self.files(), make(1.0)
        counted = graded_part(diff, files, new_files=True)
        sandbox.start({**files, **{path: Item(data) for path, data in counted.items()}})
        try:
            run = self.run_tests(sandbox, sorted(set(_TOUCHED.findall(self.test_patch))), self.test_patch)
        finally:
            sandbox.close()
        return verdict(run.passed(), self.fail_to_pass, self.pass_to_pass)

    def run_tests(self, sandbox: Sandbox, targets: Sequence[str], patch: str = "") -> TestRun:
        apply = "git apply /box/tests.patch && " if patch else ""
        script = f"{_BASH}{apply}echo '{_START}' && {test_command(self.repo, self.version, targets)}"
        outcome = sandbox.exec(["/bin/bash", "-c", script], {"tests.patch": patch.encode()})
        return read_log(self.repo, outcome.output.decode("utf-8", "replace"), outcome.ended)


def issues(rows: Sequence[Mapping[str, Any]]) -> Iterator[Issue]:
    for number, row in enumerate(rows, start=1):
        missing = [name for name in FIELDS if not isinstance(row.get(name), str | list)]
        if missing:
            raise TaskError(f"row {number} is not a SWE-bench row: it lacks {', '.join(missing)}")
        yield Issue(
            str(row["instance_id"]), str(row["repo"]), str(row.get("version", "")), str(row["problem_statement"]),
            str(row["test_patch"]), _names(row["FAIL_TO_PASS"], number), _names(row["PASS_TO_PASS"], number),
        )  # fmt: skip


def _names(value: Any, number: int) -> tuple[str, ...]:
    """A list, or a list written as JSON, which is how the data set comes."""
    try:
        names: Any = json.loads(value) if isinstance(value, str) else value
    except ValueError as error:
        raise TaskError(f"row {number}: its list of tests is not JSON: {error}") from error
    if not isinstance(names, list):
        raise TaskError(f"row {number}: its tests are not a list")
    return tuple(str(name) for name in cast("list[object]", names))


def image_name(instance_id: str) -> str:
    """The name under which SWE-bench publishes the image of an instance."""
    if not re.fullmatch(r"[\w.-]+", instance_id, re.ASCII):
        raise TaskError(f"{instance_id!r:.80} is not the id of a SWE-bench instance")
    arch = "arm64" if platform.machine() in ("aarch64", "arm64") else "x86_64"
    return f"swebench/sweb.eval.{arch}.{instance_id.lower().replace('__', '_1776_')}:latest"


@lru_cache(maxsize=8)
def _files(image: str) -> dict[str, Item]:
    return Docker(Limits(), image, WORK).files_of_image(WORK)


def test_command(repo: str, version: str, targets: Sequence[str]) -> str:
    """pytest, unless the project has a way of its own, which the swebench package knows."""
    if repo not in _OWN_RUNNER:
        return shlex.join(["pytest", "-rA", "--tb=short", "-p", "no:cacheprovider", *targets])
    constants: Any = require("swebench.harness.constants", "swebench", f"running the tests of {repo}")
    command: Any = constants.MAP_REPO_VERSION_TO_SPECS[repo][version]["test_cmd"]
    if "django" in repo:
        targets = [re.sub(r"\.py$", "", one).removeprefix("tests/").replace("/", ".") for one in targets]
    return f"{command if isinstance(command, str) else command[-1]} {shlex.join(targets)}"


def read_log(repo: str, log: str, ended: str = "exit") -> TestRun:
    """How each test went, from what the test run printed."""
    log = log.partition(_START)[2] or log
    if repo in _OWN_RUNNER:
        parsers: Any = require("swebench.harness.log_parsers", "swebench", f"reading the tests of {repo}")
        status: dict[str, str] = parsers.MAP_REPO_TO_PARSER[repo](log, None)
    else:
        status = {match[2]: match[1] for line in log.splitlines() if (match := _STATUS.match(line))}
    words = {"PASSED": "passed", "XFAIL": "passed", "XPASS": "passed", "SKIPPED": "skipped"}
    outcomes = {test: words.get(word, "failed") for test, word in status.items()}
    failed = [test for test, outcome in outcomes.items() if outcome == "failed"]
    failures = dict.fromkeys(failed, "") | {test: sanitize(log[-3000:], WORK) for test in failed[:1]}
    return TestRun(outcomes, failures, {}, ended, ended == "exit" and bool(outcomes))
