"""Sends a run's metrics to experiment trackers (wandb, mlflow, trackio), in a thread of their own."""

from __future__ import annotations

import atexit
import importlib
import json
import math
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol, cast

from isentrope.core.errors import ConfigError, RunError
from isentrope.core.limits import NOTE_BYTES, read_json
from isentrope.core.needs import install_command, is_here
from isentrope.runs.atomic import write_atomically
from isentrope.runs.folder import leaves, read_config
from isentrope.runs.layout import MLFLOW, TRACKERS


@dataclass(frozen=True)
class Session:
    """A run, as a tracker is told of it."""

    run: Path
    config: Mapping[str, Any]  # the tables of config.toml
    ident: str | None = None  # what the tracker called the run when it was begun; None: it begins now

    @property
    def name(self) -> str:
        return self.run.resolve().name


class Tracker(Protocol):
    ident: str  # by which the run is found again after --resume

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Numbers of one step, all finite. A step may come more than once, with other metrics or with the same."""

    def close(self) -> None: ...


_NOT_IN_NAMES = re.compile(r"[^\w.\- /]")  # all that MLflow takes in the name of a metric
_MOST_VALUE = 500  # characters of a parameter
_AT_ONCE = 100  # parameters


class Mlflow:
    """Writes to RUN/mlflow/mlflow.db, unless its own variable MLFLOW_TRACKING_URI names another place."""

    def __init__(self, session: Session) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # it would report its use over the network
        mlflow: Any = importlib.import_module("mlflow")
        self._entities: Any = importlib.import_module("mlflow.entities")
        folder = session.run.resolve() / MLFLOW
        uri = os.environ.get("MLFLOW_TRACKING_URI")
        if not uri:
            folder.mkdir(exist_ok=True)
            uri = f"sqlite:///{folder / 'mlflow.db'}"
        self._client: Any = mlflow.MlflowClient(tracking_uri=uri)
        if session.ident:
            self.ident = session.ident
            self._client.update_run(self.ident, status="RUNNING")
        else:
            artifacts = None if os.environ.get("MLFLOW_TRACKING_URI") else (folder / "artifacts").as_uri()
            self.ident = self._begin(session, artifacts)

    def _begin(self, session: Session, artifacts: str | None) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "isentrope"
        experiment = self._client.get_experiment_by_name(name)
        new = experiment is None
        number = self._client.create_experiment(name, artifact_location=artifacts) if new else experiment.experiment_id
        ident = str(self._client.create_run(number, run_name=session.name).info.run_id)
        settings = {key: str(value) for key, value in leaves(session.config).items() if value != {}}
        params = [self._entities.Param(_name(key), value[:_MOST_VALUE]) for key, value in settings.items()]
        for first in range(0, len(params), _AT_ONCE):
            self._client.log_batch(ident, params=params[first : first + _AT_ONCE])
        return ident

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        now = int(1000 * time.time())
        numbers = [self._entities.Metric(_name(key), value, now, step) for key, value in metrics.items()]
        self._client.log_batch(self.ident, metrics=numbers)

    def close(self) -> None:
        self._client.set_terminated(self.ident)


def _name(key: str) -> str:
    return _NOT_IN_NAMES.sub("_", key)[:250]


class Trackio:
    """Writes on this machine, where `trackio show` finds it, unless its own variables name a Space or a server."""

    def __init__(self, session: Session) -> None:
        trackio: Any = importlib.import_module("trackio")
        self.ident = session.ident or f"{session.name}-{os.urandom(3).hex()}"  # its runs are known by their names
        self._run: Any = trackio.init(
            project=os.environ.get("TRACKIO_PROJECT") or "isentrope", name=self.ident, config=dict(session.config),
            resume="must" if session.ident else "never", embed=False, auto_log_gpu=False, auto_log_cpu=False,
        )  # fmt: skip

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        self._run.finish()


class Wandb:
    """Offline unless its own variable WANDB_MODE says otherwise; `wandb sync` uploads later."""

    def __init__(self, session: Session) -> None:
        mode = os.environ.get("WANDB_MODE") or "offline"
        if mode == "offline":
            os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # else it reports its own crashes over the network
        wandb: Any = importlib.import_module("wandb")
        # settings and numbers alone: neither the terminal's text nor code nor the repository's address
        settings = wandb.Settings(console="off", silent=True, disable_git=True, save_code=False)
        self._run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or "isentrope", name=session.name, id=session.ident,
            resume="allow" if session.ident and mode != "offline" else None, dir=str(session.run),
            config=dict(session.config), mode=mode, settings=settings,
        )  # fmt: skip
        self.ident = str(self._run.id)
        # its own count of calls must only grow; a resumed run goes back to an earlier step
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log({"step": step, **metrics})

    def close(self) -> None:
        self._run.finish()


PATIENCE = 120.0  # seconds that `close` waits
MAKERS: dict[str, Callable[[Session], Tracker]] = {"wandb": Wandb, "mlflow": Mlflow, "trackio": Trackio}
Item = tuple[int, dict[str, float]] | None  # None: there is no more


def check_tracker(name: str) -> None:
    if not is_here(name):
        raise ConfigError(
            f"run.track names {name}, which is not installed: {install_command(name)}; or leave it out of run.track"
        )


def say_on_stderr(text: str) -> None:
    print(text, file=sys.stderr)


class Trackers:
    """The trackers of a run: one that is slow, offline or broken never holds up the training.

        trackers = Trackers(run, ("wandb", "mlflow"), say)
        trackers.write(step, metrics)      # returns at once
        trackers.close()                   # waits until all is written, but not for ever

    RUN/trackers.json keeps what each tracker calls the run, so that a resumed run goes on in the same place.
    """

    def __init__(self, run: Path, names: Sequence[str], say: Callable[[str], None] = say_on_stderr) -> None:
        self._run, self._names, self._say = run, list(names), say
        self._queue: SimpleQueue[Item] = SimpleQueue()
        self._thread: threading.Thread | None = None
        for name in names:
            check_tracker(name)

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
        try:
            config = read_config(self._run)[1]
        except RunError:
            config = {}
        tracker = MAKERS[name](Session(self._run, config, idents.get(name)))
        opened[name] = tracker
        if idents.get(name) != tracker.ident:
            write_atomically(self._run / TRACKERS, (json.dumps(idents | {name: tracker.ident}) + "\n").encode())

    def _idents(self) -> dict[str, str]:
        try:
            found: Any = read_json(self._run / TRACKERS, NOTE_BYTES)
        except (OSError, ValueError):
            return {}
        known = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
        return {name: value for name, value in known.items() if isinstance(value, str)}
