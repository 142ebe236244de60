"""Runs the tests inside the box. The file is copied into it: it uses nothing but Python and pytest.

It is trusted when it starts and not any more once the package's code is loaded into the same process. So what counts is
sent over a pipe of its own, each line with a token that is gone from the disk by then, and tests that did not report
count as failed: a package that prints "PASSED" or leaves early with success gains nothing. The parts of pytest that
make and carry a result are noted down before the package is loaded and compared around every test; what is used to
report is taken at the start, too. (A second process to report from would add nothing: results are made in this one.)
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from json import load
from json.encoder import encode_basestring_ascii
from types import FunctionType
from typing import Any

MOST_TEXT = 3000  # characters kept of what one failing test says
WATCHED = (
    "_pytest.reports", "_pytest.runner", "_pytest.python", "_pytest.nodes", "_pytest.outcomes", "_pytest.unittest",
    "_pytest.main", "_pytest.skipping", "_pytest._code.code", "pluggy._hooks", "pluggy._manager", "pluggy._callers",
    "pluggy._result", "unittest.case",
)  # fmt: skip
DECISIVE = ("runtest_protocol", "runtest_call", "runtest_makereport", "runtest_logreport", "pyfunc_call")


def main() -> None:
    with open("/box/plan.json", encoding="utf-8") as file:
        plan: dict[str, Any] = load(file)
    os.remove("/box/plan.json")
    channel = os.dup(1)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    token = str(plan.pop("token"))
    write, quoted, leave = os.write, encode_basestring_ascii, os._exit

    def say(**fields: str) -> None:
        parts = [f"{quoted(name)}: {quoted(value)}" for name, value in {"token": token, **fields}.items()]
        write(channel, ("{" + ", ".join(parts) + "}\n").encode("ascii"))

    import pytest

    watch = Watch()

    class Reporter:
        """Tells how each test went and why it failed, and whether pytest is still what it was."""

        def pytest_runtest_logstart(self) -> None:
            watch.look(say)

        @pytest.hookimpl(hookwrapper=True, tryfirst=True)
        def pytest_runtest_makereport(self, item: Any) -> Any:
            watch.look(say)
            watch.hooks(say, item.config, self)
            yield

        def pytest_runtest_logreport(self, report: Any) -> None:
            watch.look(say)
            if report.when == "call" or report.outcome != "passed":
                text = (str(report.longreprtext) + _printed(report)) if report.outcome == "failed" else ""
                say(test=str(report.nodeid), outcome=str(report.outcome), text=text[-MOST_TEXT:])

        def pytest_collectreport(self, report: Any) -> None:
            if report.outcome == "failed":
                say(broken=str(report.nodeid), text=str(report.longreprtext)[-MOST_TEXT:])

    sys.path[:0] = plan["paths"]
    sys.argv = ["pytest"]
    code = pytest.main(["--rootdir=.", *plan["options"], *plan["targets"]], plugins=[Reporter()])
    watch.look(say)
    say(end=str(int(code)))
    leave(0)  # threads that the tests left behind do not hold us up


class Watch:
    """What pytest was made of at the start."""

    def __init__(self) -> None:
        self._names: list[tuple[Any, str, Any]] = []  # namespace, name, what stood there
        self._codes: list[tuple[Any, Any]] = []  # function, its code
        for module in WATCHED:
            try:
                space: dict[str, Any] = vars(import_module(module))
            except ImportError:  # another pytest has other parts
                continue
            self._note(space)
            for value in list(space.values()):
                if isinstance(value, type) and value.__module__ == module:
                    self._note(vars(value))

    def _note(self, space: Any) -> None:
        for name, value in list(space.items()):
            value_of = getattr(value, "__func__", getattr(value, "fget", value))
            if isinstance(value_of, FunctionType):
                self._codes.append((value_of, value_of.__code__))
            if value_of is not value or isinstance(value, FunctionType | type):
                self._names.append((space, name, value))

    def look(self, say: Any) -> None:
        for space, name, value in self._names:
            if space.get(name) is not value:
                return say(tampered=name)
        for function, code in self._codes:
            if function.__code__ is not code:
                return say(tampered=function.__name__)

    def hooks(self, say: Any, config: Any, ours: Any) -> None:
        """Nobody but pytest, the package's conftest files and we decide how a test went."""
        for name in DECISIVE:
            for hook in getattr(config.hook, f"pytest_{name}").get_hookimpls():
                where = getattr(hook.plugin, "__file__", "") or ""
                known = type(hook.plugin).__module__.startswith("_pytest.") or "/_pytest/" in where
                if not known and hook.plugin is not ours and not where.endswith("/conftest.py"):
                    return say(tampered=name)


def _printed(report: Any) -> str:
    return f"\nprinted:\n{report.capstdout[-1000:]}" if report.capstdout.strip() else ""


main()
