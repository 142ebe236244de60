"""Probes in whole runs: nothing else changes, and a resumed run probes the same states."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from isentrope.loop.train import train
from tests.builders.toy_runs import WARM_MODEL, toy_config


@pytest.fixture(scope="module")
def model() -> Path:
    """A model that has learnt to think and act, so that there is something to probe."""
    return WARM_MODEL


def records(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def without_probes(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in record.items() if not key.startswith("probe/")} for record in found]


@pytest.fixture(scope="module")
def probed(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("probed") / "run"
    train(toy_config(model, "instruments.probe_every=2", "instruments.probe_states=4"), run, quiet=True)
    return run


def test_a_run_learns_the_same_with_and_without_probes(model: Path, probed: Path, tmp_path: Path) -> None:
    train(toy_config(model, "instruments.probe_every=0"), tmp_path / "plain", quiet=True)
    plain, seen = records(tmp_path / "plain"), records(probed)
    assert without_probes(seen) == plain
    steps = [record["step"] for record in seen if "probe/similarity/failed" in record or "probe/delta_h" in record]
    assert steps == [1, 2, 4, 6]
    assert all("probe/seconds" not in record for record in seen)
    timings = [json.loads(line) for line in (probed / "timings.jsonl").read_text().splitlines()]
    assert [t["step"] for t in timings if "probe/seconds" in t] == steps
    weights = "checkpoints/step-000006/policy/model.safetensors"
    assert (probed / weights).read_bytes() == (tmp_path / "plain" / weights).read_bytes()


def test_a_resumed_run_probes_the_same_states(model: Path, probed: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    shutil.copytree(probed, again)
    shutil.rmtree(again / "checkpoints/step-000006")
    train(toy_config(model, "instruments.probe_every=2", "instruments.probe_states=4"), again, resume=True, quiet=True)
    assert (again / "metrics.jsonl").read_bytes() == (probed / "metrics.jsonl").read_bytes()
    assert "probe/delta_h" in (probed / "metrics.jsonl").read_text()
