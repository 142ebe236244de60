"""The real trackers, offline: what a run wrote is read back from their own files. Those not installed are skipped.

pip install -e '.[wandb,mlflow,trackio]' && python -m pytest tests/metrics/test_trackers.py
"""

from __future__ import annotations

import importlib.util
import json
import os
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from isentrope.config.validate import track_problem, trackers_of
from isentrope.core.errors import ConfigError
from isentrope.metrics import trackers as crew
from isentrope.metrics.log import MetricsLog
from isentrope.metrics.trackers import Session, Trackers
from isentrope.runs.layout import TRACKERS

CONFIG = 'methods = ["epo"]\n[run]\nseed = 3\n[learn]\nlr = 1e-6\n'


def needs(name: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(name) is None
    return pytest.mark.skipif(missing, reason=f"{name} is not installed: pip install -e '.[{name}]'")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("WANDB_MODE", "WANDB_PROJECT", "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "TRACKIO_SPACE_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(MetricsLog, "_show", lambda *_: None)  # TensorBoard, which takes seconds to load
    folder = tmp_path / "a run"
    folder.mkdir()
    (folder / "config.toml").write_text(CONFIG)
    return folder


def two_starts(run: Path, name: str, said: list[str]) -> None:
    """Three steps; then the run is resumed from step 2 and goes on to step 4."""
    log = MetricsLog(run, [name], said.append)
    for step in (1, 2, 3):
        log.write(step, {"entropy/token": step / 10, "success/pick[2]:a": 1.0, "grad_norm": float("nan")})
        log.write_timings(step, {"seconds/rollout": 2.0})
    log.close()
    log = MetricsLog(run, [name], said.append)
    log.truncate(2)
    for step in (3, 4):
        log.write(step, {"entropy/token": step})
    log.close()


@needs("mlflow")
def test_mlflow(run: Path) -> None:
    said: list[str] = []
    two_starts(run, "mlflow", said)
    assert said == []
    from mlflow import MlflowClient  # pyright: ignore[reportMissingImports]

    client: Any = MlflowClient(tracking_uri=f"sqlite:///{run / 'mlflow' / 'mlflow.db'}")
    (found,) = client.search_runs([client.get_experiment_by_name("isentrope").experiment_id])
    assert found.info.run_id == json.loads((run / TRACKERS).read_text())["mlflow"]
    assert found.info.run_name == "a run"
    assert found.info.status == "FINISHED"
    assert found.data.params == {"methods": "['epo']", "run.seed": "3", "learn.lr": "1e-06"}
    history = [(one.step, one.value) for one in client.get_metric_history(found.info.run_id, "entropy/token")]
    assert sorted(history) == [(1, 0.1), (2, 0.2), (3, 0.3), (3, 3.0), (4, 4.0)]
    assert found.data.metrics == {"entropy/token": 4.0, "success/pick_2__a": 1.0, "seconds/rollout": 2.0}


@needs("wandb")
def test_wandb(run: Path) -> None:
    said: list[str] = []
    two_starts(run, "wandb", said)
    assert said == []
    folders = sorted((run / "wandb").glob("offline-run-*"))
    ident = json.loads((run / TRACKERS).read_text())["wandb"]
    assert len(folders) == 2
    assert all(ident in folder.name for folder in folders)
    records = [one for folder in folders for one in wandb_records(folder / f"run-{ident}.wandb")]
    rows = [
        {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        for record in records
        if record.history.item
    ]
    tokens = [(row["step"], row["entropy/token"]) for row in rows if "entropy/token" in row]
    assert tokens == [(1, 0.1), (2, 0.2), (3, 0.3), (3, 3), (4, 4)]
    assert all("grad_norm" not in row for row in rows)
    assert {"seconds/rollout", "success/pick[2]:a"} <= {key for row in rows for key in row}
    settings = {item.key: json.loads(item.value_json) for record in records for item in record.run.config.update}
    assert settings["learn"] == {"lr": 1e-06}
    assert {record.run.display_name for record in records if record.run.run_id} == {"a run"}


def wandb_records(path: Path) -> Iterator[Any]:
    """The records of its transaction log: LevelDB's format, a header of 7 bytes, then blocks of 32 KiB."""
    from wandb.proto import wandb_internal_pb2  # pyright: ignore[reportMissingImports]

    data, at, whole = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:  # too little room for a header: the block is filled up
            at += 32768 - at % 32768
        _, length, kind = struct.unpack_from("<IHB", data, at)
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            record: Any = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            whole = b""
            yield record


@needs("trackio")
def test_trackio(run: Path, tmp_path: Path) -> None:
    """In a process of its own: trackio takes its folder from the environment once, when it is imported."""
    code = f"""
from pathlib import Path
from tests.metrics.test_trackers import MetricsLog, two_starts
MetricsLog._show = lambda *_: None
said = []
two_starts(Path({str(run)!r}), "trackio", said)
assert said == [], said
"""
    home = tmp_path / "home"
    surroundings = os.environ | {"TRACKIO_DIR": str(home)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=surroundings, check=False)
    assert done.returncode == 0, done.stderr
    base = sqlite3.connect(home / "isentrope.db")
    rows = base.execute("select run_name, step, metrics from metrics order by id").fetchall()
    assert {name for name, _, _ in rows} == {json.loads((run / TRACKERS).read_text())["trackio"]}
    values = [(step, json.loads(metrics)) for _, step, metrics in rows]
    tokens = [(step, one["entropy/token"]) for step, one in values if "entropy/token" in one]
    assert tokens == [(1, 0.1), (2, 0.2), (3, 0.3), (3, 3), (4, 4)]
    (config,) = base.execute("select config from configs").fetchone()
    assert json.loads(config)["learn"] == {"lr": 1e-06}


class Broken:
    """Stands in for a tracker whose server is gone: what breaks, and when, is the test's choice."""

    ident = "x"

    def __init__(self, session: Session, at: str) -> None:
        self._at, self.logged = at, 0
        if at == "start":
            raise ConnectionError("no route\nto host")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self.logged += 1
        if self._at == "log":
            raise SystemExit(3)

    def close(self) -> None:
        if self._at == "close":
            raise OSError("gone")


class Kept:
    ident = "y"

    def __init__(self, rows: list[tuple[int, dict[str, float]]]) -> None:
        self._rows = rows

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._rows.append((step, dict(metrics)))

    def close(self) -> None:
        self._rows.append((-1, {}))


@pytest.mark.parametrize("at", ["start", "log", "close"])
def test_a_tracker_that_fails_is_said_once_and_the_others_go_on(
    run: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    rows: list[tuple[int, dict[str, float]]] = []
    makers: dict[str, Callable[[Session], Any]] = {"json": lambda s: Broken(s, at), "csv": lambda _: Kept(rows)}
    monkeypatch.setattr(crew, "MAKERS", makers)
    said: list[str] = []
    log = MetricsLog(run, ["json", "csv"], said.append)
    for step in (1, 2, 3):
        log.write(step, {"lr": step})
    log.close()
    assert rows == [(1, {"lr": 1.0}), (2, {"lr": 2.0}), (3, {"lr": 3.0}), (-1, {})]
    assert len(said) == 1
    assert said[0].startswith("json failed and gets no more numbers; the run goes on (")
    assert "\n" not in said[0]
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 3


def test_a_tracker_that_hangs_does_not_hold_up_the_run(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    never = threading.Event()

    class Stuck(Kept):
        def log(self, step: int, metrics: Mapping[str, float]) -> None:
            never.wait()

    monkeypatch.setattr(crew, "MAKERS", {"json": lambda _: Stuck([])})
    monkeypatch.setattr(crew, "PATIENCE", 0.2)
    said: list[str] = []
    trackers = Trackers(run, ["json"], said.append)
    for step in range(1000):
        trackers.write(step, {"lr": 1.0})
    trackers.close()
    assert len(said) == 1
    assert "not finished" in said[0]
    never.set()


def test_a_tracker_that_is_not_installed_is_named_before_the_run_begins(run: Path) -> None:
    with pytest.raises(ConfigError, match=r"install .*\[no_such_tracker\]'"):
        MetricsLog(run, ["no_such_tracker"])


def test_a_damaged_file_of_names_begins_anew(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []

    def make(session: Session) -> Kept:
        seen.append(session.ident)
        return Kept([])

    monkeypatch.setattr(crew, "MAKERS", {"json": make})
    for text in ('{"json": "old", "csv": 3}', "[1]", "{", '{"json": 4}'):
        (run / TRACKERS).write_text(text)
        trackers = Trackers(run, ["json"])
        trackers.write(1, {"lr": 1.0})
        trackers.close()
    assert seen == ["old", None, None, None]
    assert json.loads((run / TRACKERS).read_text()) == {"json": "y"}


def test_what_run_track_may_say() -> None:
    assert trackers_of("") == ()
    assert trackers_of(" wandb, mlflow,,wandb") == ("wandb", "mlflow")
    assert track_problem("wandb,mlflow,trackio") is None
    assert "expected wandb, mlflow, trackio" in (track_problem("wandb;mlflow") or "")


def test_nothing_is_imported_without_a_tracker() -> None:
    code = "import sys, isentrope.metrics.log; sys.exit(bool({'wandb', 'mlflow', 'trackio'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
