"""Runs of one study that were made in several places: do they begin from the same warm-up?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from isentrope.study.plan import read_plan
from isentrope.study.read import StudyData, read_study, write_compact
from isentrope.study.run import How, other_start, run_study
from isentrope.study.show import Show
from tests.builders.run_folders import STUDY_CONFIG, cell, make_study, whole_run
from tests.study.test_run import STUDY, Sleeping

LOSSES = (0.9, 0.51234, 0.3)


def write_warmup(folder: Path, losses: Sequence[float]) -> None:
    run = folder / "warmup" / "small"
    run.mkdir(parents=True)
    (run / "config.toml").write_text(STUDY_CONFIG.format(seed=0, steps=10))
    (run / "run.json").write_text('{"kind": "sft"}')
    rows = [{"step": n, "kind": "sft", "sft/loss": loss} for n, loss in enumerate(losses, start=1)]
    rows.append({"step": len(losses), "kind": "eval", "eval/unseen/success": 0.3})
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def earlier(folder: Path, runs: int = 2, losses: Sequence[float] = LOSSES) -> StudyData:
    """As it is left of a part that was made elsewhere: the compact form."""
    make_study(folder, [replace(cell("a", (0, 1)), warmup="small"), cell("cold", (0,))])
    for seed in range(runs):
        whole_run(folder, "a", seed, 0.5)
    whole_run(folder, "cold", 0, 0.5)
    write_warmup(folder, losses)
    return read_study(write_compact(read_study(folder), folder / "kept"))


def test_the_same_warmup_is_nothing_to_tell(tmp_path: Path) -> None:
    write_warmup(tmp_path / "here", (0.9, 0.512338, 0.3))  # the compact form has four digits
    assert other_start(tmp_path / "here", "warmup/small", earlier(tmp_path / "there")) == ""


@pytest.mark.parametrize(
    ("losses", "told"),
    [
        ((0.9, 0.513, 0.3), "at step 2 its loss was 0.5123 there and is 0.513 here"),
        ((0.9, 0.51234), "at step 3 its loss was 0.3 there and is none here"),
        ((0.9, 0.51234, 0.3, 0.2), "at step 4 its loss was none there and is 0.2 here"),
    ],
)
def test_another_warmup_is_told_of(tmp_path: Path, losses: Sequence[float], told: str) -> None:
    write_warmup(tmp_path / "here", losses)
    said = other_start(tmp_path / "here", "warmup/small", earlier(tmp_path / "there"))
    assert told in said
    assert "the one that 2 earlier runs began from" in said
    assert str(tmp_path / "here" / "warmup" / "small") in said


def test_what_nobody_began_from_and_what_is_no_warmup_is_nothing_to_tell(tmp_path: Path) -> None:
    write_warmup(tmp_path / "here", (0.8, 0.7, 0.6))
    assert other_start(tmp_path / "here", "warmup/small", earlier(tmp_path / "cold", runs=0)) == ""
    assert other_start(tmp_path / "here", "warmup/small", None) == ""
    there = earlier(tmp_path / "there")
    assert other_start(tmp_path / "here", "a/seed-0", there) == ""
    assert other_start(tmp_path / "here", "a/small", there) == ""  # a cell's, whatever stands behind
    assert other_start(tmp_path / "here", "warmup/other", there) == ""
    assert other_start(tmp_path / "nowhere", "warmup/small", there) == ""


def test_a_study_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("isentrope.study.run.Queue", Sleeping)
    monkeypatch.setattr("isentrope.study.run.GRACE", 0.5)
    (tmp_path / "study.toml").write_text(f"warmup = 'small'\n{STUDY}[warmups.small]\n")
    write_warmup(tmp_path / "out", (0.9, 0.6, 0.4))
    how = How(minutes=0.03, earlier=earlier(tmp_path / "before", runs=1))
    run_study(read_plan(tmp_path / "study.toml"), tmp_path / "out", how, Show())
    told = " ".join(capsys.readouterr().out.split())
    assert "MIND: warmup/small is not the one that an earlier run began from: at step 2" in told
