"""Runs a package's tests in the sandbox and reads what they report."""

from __future__ import annotations

import json
import re
import secrets
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from isentrope.sandbox.base import Sandbox

_INSIDE = Path(__file__).with_name("inside.py")
_OPTIONS = ("-p", "no:cacheprovider", "-o", "addopts=", "--tb=short", "-q")
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")
# where Python is installed differs from machine to machine; packages first, since they may lie inside
_INSTALLED = ((f"{sysconfig.get_path('purelib')}/", "site-packages/"), (f"{sysconfig.get_path('stdlib')}/", "python/"))


@dataclass(frozen=True)
class TestRun:
    """`outcomes` by test: passed, failed or skipped. A test that did not come to its end is not in it."""

    outcomes: dict[str, str] = field(default_factory=dict[str, str])
    failures: dict[str, str] = field(default_factory=dict[str, str])  # by test: what it said
    broken: dict[str, str] = field(default_factory=dict[str, str])  # files that could not even be loaded
    ended: str = "exit"  # or the limit at which the run was stopped
    complete: bool = False  # the run came to its end
    tampered: bool = False  # the test runner was changed under way

    __test__ = False  # pytest: not a test, in spite of its name

    def passed(self) -> set[str]:
        return {test for test, outcome in self.outcomes.items() if outcome == "passed"}


def run_tests(sandbox: Sandbox, targets: Sequence[str], extra: dict[str, bytes] | None = None) -> TestRun:
    """`targets` are files, folders or single tests, as pytest names them."""
    token = secrets.token_hex(16)
    plan = {
        "token": token, "paths": [sandbox.work, f"{sandbox.work}/src"], "options": list(_OPTIONS),
        "targets": [target if target.startswith("/box/") else f"./{target}" for target in targets],
    }  # fmt: skip
    files = {"inside.py": _INSIDE.read_bytes(), "plan.json": json.dumps(plan).encode(), **(extra or {})}
    outcome = sandbox.exec([sandbox.python, "-I", "/box/inside.py"], files)
    return _read(outcome.output, token, outcome.ended, sandbox.work)


def _read(output: bytes, token: str, ended: str, work: str) -> TestRun:
    """What was reported with the token; everything else in the output is noise, or a lie."""
    outcomes, failures, broken = dict[str, str](), dict[str, str](), dict[str, str]()
    complete = tampered = False
    for line in output.splitlines():
        said = _message(line, token)
        text = sanitize(said.get("text", ""), work)
        if "test" in said:
            test, outcome = said["test"], said.get("outcome", "")
            if outcomes.get(test) != "failed":  # a test may pass and then fail to clean up
                outcomes[test] = outcome
            if outcome == "failed":
                failures.setdefault(test, text)
        elif "broken" in said:
            broken.setdefault(said["broken"], text)
        elif "tampered" in said:
            tampered = True
        elif "end" in said:
            complete = True
    return TestRun(outcomes, failures, broken, ended, complete, tampered)


def _message(line: bytes, token: str) -> dict[str, str]:
    """What a line says, if it carries the token and holds nothing but texts, as ours do. Whatever else code writes to
    the pipe says nothing: half characters and deep nesting raise no error on this side."""
    try:
        said: Any = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    fields = cast("dict[str, Any]", said) if isinstance(said, dict) else {}
    if not all(isinstance(value, str) for value in fields.values()):
        return {}
    given = str(fields.get("token")).encode("utf-8", "surrogatepass")
    return fields if secrets.compare_digest(given, token.encode()) else {}


def sanitize(text: str, work: str = "/repo") -> str:
    """The same text for the same failure: no addresses, no paths of the box, nothing that acts on a terminal."""
    for folder, name in ((f"{work}/", ""), *_INSTALLED):
        text = text.replace(folder, name)
    return printable(_ADDRESS.sub("0x...", text))


def printable(text: str) -> str:
    """Without what is not seen but acts, and without half characters."""
    return "".join(char for char in text if char in "\n\t" or char.isprintable())
