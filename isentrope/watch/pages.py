"""Report and diagnosis of a run as pages of the live page's server, made when somebody asks for them.

One is made at a time, in a process of its own with limits: the server stays quick and as small as it is. The last ones
are kept, and runs whose logs are very long are refused. A page has a policy of its own: its script and style by their
hash, nothing else, in an origin without rights, so that it cannot ask this server.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from pathlib import Path

from isentrope.charts.text import visible
from isentrope.core.errors import RunError
from isentrope.report.shell import policy
from isentrope.runs.layout import EVENTS, METRICS, TIMINGS
from isentrope.sandbox.base import Limits
from isentrope.sandbox.own_child import run_module
from isentrope.watch.page_child import PAGE, REFUSED
from isentrope.watch.runs import Run, Runs

CHILD = "isentrope.watch.page_child"
LIMITS = Limits(seconds=100.0, memory=1 << 30, output=64 << 20)
_KEPT = 8  # pages
_MOST_BYTES = 256 << 20  # of a run's logs
_PATIENCE = 120.0  # seconds to wait while another page is made

Key = tuple[str, str, int, int, int, int]


def page_policy() -> str:
    return f"{policy()}; frame-ancestors 'none'; sandbox allow-scripts"


class Pages:
    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._kept: OrderedDict[Key, bytes] = OrderedDict()
        self._making = threading.Lock()

    def report(self, name: str) -> bytes:
        return self._page("report", name)

    def doctor(self, name: str) -> bytes:
        return self._page("doctor", name)

    def _page(self, kind: str, name: str) -> bytes:
        run = self._runs.get(name)
        if run is None:
            raise RunError("there is no such run (any more); go back to the live page")
        if not self._making.acquire(timeout=_PATIENCE):
            raise RunError("other pages are being made; ask again in a minute")
        try:
            key = (kind, run.id, run.begun, run.columns.rows, run.clock.rows, len(run.events))
            if key not in self._kept:
                _check_size(run)
                for older in [known for known in self._kept if known[:2] == key[:2]]:
                    del self._kept[older]  # of a run that has come further since: nobody asks for it again
                self._kept[key] = _made(kind, run, [str(place) for place in self._runs.places])
                while len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
            return self._kept[key]
        finally:
            self._making.release()


def _made(kind: str, run: Run, places: list[str]) -> bytes:
    told = {"kind": kind, "run": str(run.path), "places": places, "here": str(Path.cwd())}
    outcome = run_module(CHILD, json.dumps(told).encode(), LIMITS)
    if outcome.ended == "exit" and outcome.code == 0:
        if outcome.output.startswith(PAGE):
            return outcome.output[len(PAGE) :]
        if outcome.output.startswith(REFUSED):
            raise RunError(outcome.output[len(REFUSED) :].decode("utf-8", "replace"))
    why = f"its limit of {outcome.ended}" if outcome.ended != "exit" else f"an error, {outcome.code}"
    raise RunError(f"making this page ended with {why}; type {_command(kind, run)}")


def _command(kind: str, run: Run) -> str:
    return f"isentrope {kind} {visible(str(run.path))}"


def _check_size(run: Run) -> None:
    size = 0
    for name in (METRICS, TIMINGS, EVENTS):
        path = run.path / name
        size += path.stat().st_size if path.is_file() else 0
    if size > _MOST_BYTES:
        more = f"the logs of this run have {size >> 20} MiB, more than a page is made of here"
        raise RunError(f"{more}; type {_command('report', run)}")
