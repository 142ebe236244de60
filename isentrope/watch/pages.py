"""Report and diagnosis of a run as pages of the live page's server, made when somebody asks for them.

One is made at a time, the last ones are kept, and runs whose logs are very long are refused. A page has a policy of its
own: its script and style by their hash, nothing else, in an origin without rights, so that it cannot ask this server.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from isentrope.charts.text import visible
from isentrope.core.errors import RunError
from isentrope.report import diagnosis, page
from isentrope.report.shell import policy
from isentrope.runs.folder import Run as Folder
from isentrope.runs.layout import EVENTS, METRICS, TIMINGS
from isentrope.watch.runs import Run, Runs

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
        return self._page("report", name, lambda run: page.page(run, self._warmup(run)))

    def doctor(self, name: str) -> bytes:
        return self._page("doctor", name, diagnosis.page)

    def _page(self, kind: str, name: str, make: Callable[[Folder], str]) -> bytes:
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
                self._kept[key] = make(Folder.open(run.path)).encode("utf-8", "replace")
                while len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
            return self._kept[key]
        finally:
            self._making.release()

    def _warmup(self, run: Folder) -> Folder | None:
        """The warm-up that it came from, if it lies in a folder that is watched: a run's settings may name any."""
        return run.warmup(lambda path: any(path.resolve().is_relative_to(place) for place in self._runs.places))


def _check_size(run: Run) -> None:
    size = 0
    for name in (METRICS, TIMINGS, EVENTS):
        path = run.path / name
        size += path.stat().st_size if path.is_file() else 0
    if size > _MOST_BYTES:
        told = f"isentrope report {visible(str(run.path))}"
        raise RunError(f"the logs of this run have {size >> 20} MiB, more than a page is made of here; type {told}")
