"""Runs the tests inside the box. The file is copied into it: it uses nothing but Python and pytest.

It is trusted when it starts and not any more once the package's code is loaded into the same process. So what counts is
sent over a pipe of its own, each line with a token that is gone from the disk by then, and tests that did not report
count as failed: a package that prints "PASSED" or leaves early with success gains nothing.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

MOST_TEXT = 3000  # characters kept of what one failing test says


def main() -> None:
    with open("/box/plan.json", encoding="utf-8") as file:
        plan: dict[str, Any] = json.load(file)
    os.remove("/box/plan.json")
    channel = os.dup(1)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    token = str(plan.pop("token"))

    def say(**fields: Any) -> None:
        line = json.dumps({"token": token, **fields}) + "\n"
        os.write(channel, line.encode("ascii"))

    import pytest

    class Reporter:
        """Tells how each test went, and why it failed."""

        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.when == "call" or report.outcome != "passed":
                text = (str(report.longreprtext) + _printed(report)) if report.outcome == "failed" else ""
                say(test=report.nodeid, outcome=report.outcome, text=text[-MOST_TEXT:])

        def pytest_collectreport(self, report: Any) -> None:
            if report.outcome == "failed":
                say(broken=report.nodeid, text=str(report.longreprtext)[-MOST_TEXT:])

    sys.path[:0] = plan["paths"]
    sys.argv = ["pytest"]
    code = pytest.main(["--rootdir=.", *plan["options"], *plan["targets"]], plugins=[Reporter()])
    say(end=int(code))
    os._exit(0)  # threads that the tests left behind do not hold us up


def _printed(report: Any) -> str:
    return f"\nprinted:\n{report.capstdout[-1000:]}" if report.capstdout.strip() else ""


main()
