"""The trackers of a run, in a thread of their own: one that is slow, offline or broken never holds up the training.

    trackers = Trackers(run, ("wandb", "mlflow"), say)
    trackers.write(step, metrics)      # returns at once
    trackers.close()                   # waits until all is written, but not for ever

RUN/trackers.json keeps what each tracker calls the run, so that a resumed run goes on in the same place.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import math
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any, cast

from isentrope.config.older import read_settings
from isentrope.errors import ConfigError
from isentrope.instruments.trackers.base import Session, Tracker
from isentrope.instruments.trackers.mlflow import Mlflow
from isentrope.instruments.trackers.trackio import Trackio
from isentrope.instruments.trackers.wandb import Wandb
from isentrope.rollout.files import write_atomically

IDENTS = "trackers.json"
PATIENCE = 120.0  # seconds that `close` waits
MAKERS: dict[str, Callable[[Session], Tracker]] = {"wandb": Wandb, "mlflow": Mlflow, "trackio": Trackio}
Item = tuple[int, dict[str, float]] | None  # None: there is no more


def say_on_stderr(text: str) -> None:
    print(text, file=sys.stderr)


class Trackers:
    def __init__(self, run: Path, names: Sequence[str], say: Callable[[str], None] = say_on_stderr) -> None:
        self._run, self._names, self._say = run, list(names), say
        self._queue: SimpleQueue[Item] = SimpleQueue()
        self._thread: threading.Thread | None = None
        for name in names:
            if importlib.util.find_spec(name) is None:
                raise ConfigError(
                    f"run.track names {name}, which is not installed: pip install 'isentrope[{name}]', "
                    "or leave it out of run.track"
                )

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Hand numbers on; those that are not finite are left out, since not every tracker takes them."""
        if not self._names:
            return
        if self._thread is None:
            self._queue = SimpleQueue()  # its own: a thread that hangs may still hold the last one
            self._thread = threading.Thread(target=self._work, args=(self._queue,), name="trackers", daemon=True)
            self._thread.start()
            atexit.register(self.close)  # a run that fails before it closes its log
        known = {key: float(value) for key, value in metrics.items() if math.isfinite(value)}
        self._queue.put((step, known))

    def close(self) -> None:
        """What is written afterwards opens the trackers again."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        atexit.unregister(self.close)
        self._queue.put(None)
        thread.join(PATIENCE)
        if thread.is_alive():
            late = " and ".join(self._names)
            self._say(f"{late}: not finished after {PATIENCE:.0f} seconds; the last numbers may be missing there")

    def _work(self, queue: SimpleQueue[Item]) -> None:
        opened: dict[str, Tracker] = {}
        for name in list(self._names):
            self._try(name, opened, lambda name=name: self._open(name, opened))
        while (item := queue.get()) is not None:
            for name, tracker in list(opened.items()):
                self._try(name, opened, lambda tracker=tracker, item=item: tracker.log(*item))
        for name, tracker in list(opened.items()):
            self._try(name, opened, tracker.close)

    def _try(self, name: str, opened: dict[str, Tracker], act: Callable[[], None]) -> None:
        """A tracker that fails is left alone for the rest of the run."""
        try:
            act()
        except (Exception, SystemExit) as error:  # whatever goes wrong in there, the run goes on
            opened.pop(name, None)
            if name in self._names:
                self._names.remove(name)
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            self._say(f"{name} failed and gets no more numbers; the run goes on ({reason})")

    def _open(self, name: str, opened: dict[str, Tracker]) -> None:
        idents = self._idents()
        tracker = MAKERS[name](Session(self._run, self._config(), idents.get(name)))
        opened[name] = tracker
        if idents.get(name) != tracker.ident:
            write_atomically(self._run / IDENTS, (json.dumps(idents | {name: tracker.ident}) + "\n").encode())

    def _idents(self) -> dict[str, str]:
        try:
            found: Any = json.loads((self._run / IDENTS).read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        known = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
        return {name: value for name, value in known.items() if isinstance(value, str)}

    def _config(self) -> dict[str, Any]:
        try:
            return read_settings((self._run / "config.toml").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
