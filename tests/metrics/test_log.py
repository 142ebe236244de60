"""Lines of a log are whole, equal for equal runs, and can be cut back to a step."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from isentrope.core.errors import RunError
from isentrope.metrics.log import MetricsLog
from isentrope.runs.log import read_records


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves TensorBoard out, which takes seconds to load."""
    monkeypatch.setattr(MetricsLog, "_show", lambda *_: None)


@pytest.mark.usefixtures("silent")
def test_one_sorted_line_per_record(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path)
    log.write(3, {"return/mean": 0.1, "lr": np.float32(0.5), "failures": 2})
    log.write(3, {"eval/unseen/success": 1 / 3}, kind="eval")
    log.write_timings(3, {"seconds/rollout": 1.5})
    assert (tmp_path / "metrics.jsonl").read_text().splitlines() == [
        '{"step": 3, "kind": "train", "failures": 2.0, "lr": 0.5, "return/mean": 0.1}',
        '{"step": 3, "kind": "eval", "eval/unseen/success": 0.3333333333333333}',
    ]
    assert json.loads((tmp_path / "timings.jsonl").read_text()) == {"step": 3, "kind": "train", "seconds/rollout": 1.5}


@pytest.mark.usefixtures("silent")
def test_what_is_not_finite_is_null_and_named(tmp_path: Path) -> None:
    MetricsLog(tmp_path).write(0, {"grad_norm": float("inf"), "lr": 1.0, "kl/k3": float("nan")})
    line = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert line == {
        "step": 0, "kind": "train", "grad_norm": None, "kl/k3": None, "lr": 1.0, "nonfinite": ["grad_norm", "kl/k3"]
    }  # fmt: skip


@pytest.mark.usefixtures("silent")
def test_refusals_leave_the_file_alone(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path)
    with pytest.raises(KeyError, match="entropy/token"):
        log.write(0, {"entropy/tokn": 1.0})
    with pytest.raises(KeyError, match="beside"):
        log.write(0, {"step": 1.0})
    with pytest.raises(ValueError, match="train, eval, sft"):
        log.write(0, {"lr": 1.0}, kind="test")
    assert not (tmp_path / "metrics.jsonl").exists()


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("torn", ["", '{"step": 9, "ki', '{"step": 9}', "\x00\x00", '{"step": 2, "kind": "train",'])
def test_truncated_and_continued_equals_uninterrupted(tmp_path: Path, torn: str) -> None:
    whole, cut = MetricsLog(tmp_path / "whole"), MetricsLog(tmp_path / "cut")
    for log, steps in ((whole, range(6)), (cut, range(4))):
        for step in steps:
            log.write(step, {"lr": step / 7, "kl/k3": float("nan")})
            log.write_timings(step, {"seconds/rollout": step})
    with (tmp_path / "cut" / "metrics.jsonl").open("a") as file:
        file.write(torn)
    cut.truncate(after_step=2)
    for step in range(3, 6):
        cut.write(step, {"lr": step / 7, "kl/k3": float("nan")})
        cut.write_timings(step, {"seconds/rollout": step})
    for name in ("metrics.jsonl", "timings.jsonl"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.usefixtures("silent")
def test_a_whole_record_without_its_line_end_is_kept(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 0, "kind": "train"}\n{"step": 1, "kind": "train"}')
    MetricsLog(tmp_path).truncate(1)
    assert (tmp_path / "metrics.jsonl").read_text().endswith('{"step": 1, "kind": "train"}\n')


def test_truncate_of_an_empty_folder_does_nothing(tmp_path: Path) -> None:
    MetricsLog(tmp_path).truncate(5)
    assert list(tmp_path.iterdir()) == []


def test_damage_before_the_last_line_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Who looks at the log sees the rest of it; a run that would write it anew does not go on."""
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 0}\n{"st\n{"step": 2}\n')
    assert [record["step"] for record in read_records(path)] == [0, 2]
    assert "metrics.jsonl: one damaged line left out" in caplog.text
    with pytest.raises(RunError, match=r"metrics\.jsonl is damaged: line 2"):
        MetricsLog(tmp_path).truncate(1)
    assert path.read_text() == '{"step": 0}\n{"st\n{"step": 2}\n'


@pytest.mark.usefixtures("silent")
def test_a_full_disk_is_a_run_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(RunError, match="free some space"):
        MetricsLog(tmp_path).write(0, {"lr": 1.0})


def test_a_full_disk_that_the_thread_of_tensorboard_meets_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = pytest.importorskip("tensorboard.summary.writer.record_writer")
    pytest.importorskip("torch")
    printed: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", printed.append)
    log = MetricsLog(tmp_path)
    log.write(0, {"lr": 1.0})
    writer = next(thread for thread in threading.enumerate() if type(thread).__module__.startswith("tensorboard."))

    def full_disk(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(records.RecordWriter, "write", full_disk)
    with pytest.raises(RunError, match="tensorboard: No space left on device; free some space"):
        log.write(1, {"lr": 1.0})
    writer.join()
    assert not printed
    other = threading.Thread(target=full_disk)
    other.start()
    other.join()
    assert [raised.thread for raised in printed] == [other]


def test_tensorboard_shows_the_run_and_forgets_what_was_cut(tmp_path: Path) -> None:
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    pytest.importorskip("torch")
    log = MetricsLog(tmp_path)
    for step in range(4):
        log.write(step, {"lr": float(step), "grad_norm": float("inf")})
    time.sleep(1.05 - time.time() % 1)  # files of one second are read in the order of their names
    log.truncate(after_step=1)
    log.write(2, {"lr": 20.0})
    log.close()
    events = accumulators.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("lr")] == [(0, 0.0), (1, 1.0), (2, 20.0)]
    assert "grad_norm" not in events.Tags()["scalars"]


def test_the_log_loads_without_torch() -> None:
    code = "import sys, isentrope.metrics.log; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
