"""MLflow. Into RUN/mlflow/mlflow.db, unless its own variable MLFLOW_TRACKING_URI names another place."""

from __future__ import annotations

import importlib
import os
import re
import time
from collections.abc import Mapping
from typing import Any, cast

from isentrope.instruments.trackers.base import Session

_NOT_IN_NAMES = re.compile(r"[^\w.\- /]")  # all that MLflow takes in the name of a metric
_MOST_VALUE = 500  # characters of a parameter
_AT_ONCE = 100  # parameters


class Mlflow:
    def __init__(self, session: Session) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # it would report its use over the network
        mlflow: Any = importlib.import_module("mlflow")
        self._entities: Any = importlib.import_module("mlflow.entities")
        folder = session.run.resolve() / "mlflow"
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
        if experiment is None:
            number = self._client.create_experiment(name, artifact_location=artifacts)
        else:
            number = experiment.experiment_id
        ident = str(self._client.create_run(number, run_name=session.name).info.run_id)
        settings = flat(session.config)
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


def flat(table: Mapping[str, Any], path: str = "") -> dict[str, str]:
    """Settings by their full names, as text."""
    found: dict[str, str] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            found |= flat(cast("Mapping[str, Any]", value), f"{path}{key}.")
        else:
            found[path + key] = str(value)
    return found


def _name(key: str) -> str:
    return _NOT_IN_NAMES.sub("_", key)[:250]
