"""What claims need of a run is written by a real one."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from isentrope.loop.train import train
from isentrope.papers.measures import converged_success, over, seconds_per_token, share_of_time
from isentrope.study.cells import Cell
from isentrope.study.read import read_one
from tests.builders.toy_runs import make_model, toy_config


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("study")
    for cell, methods in (("aem", "methods=aem"), ("bare", "methods=[]")):
        config = toy_config(make_model(root / "model"), methods, "run.steps=3")
        train(config, root / cell / "seed-0", quiet=True)
    return root


def test_a_run_says_when_it_was_begun(study: Path) -> None:
    told = json.loads((study / "aem/seed-0/run.json").read_text())
    assert told["kind"] == "train"
    begun = datetime.strptime(told["begun"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    assert 0 <= (datetime.now(UTC) - begun).total_seconds() < 3600
    assert read_one(study, Cell("aem", {}, (), (0,)), 0).begun == told["begun"]


def test_the_time_of_methods_is_a_part_of_the_step(study: Path) -> None:
    run, bare = (read_one(study, Cell(cell, {}, (), (0,)), 0) for cell in ("aem", "bare"))
    share = share_of_time(run, "seconds/shape")
    assert share is not None
    assert 0 < share < 0.5
    assert share_of_time(bare, "seconds/shape") is None  # no method, no time of one
    assert all(row["seconds/score"] >= 0 for row in (*run.timings, *bare.timings) if "seconds/score" in row)


def test_measures_of_a_real_run(study: Path) -> None:
    run = read_one(study, Cell("aem", {}, (), (0,)), 0)
    assert run.status == "done"
    assert converged_success(run) is not None
    assert seconds_per_token(run) is not None
    assert over(run, "entropy/token") is not None
    assert over(run, "valid_ratio") is not None
