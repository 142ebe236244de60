"""Whole runs of the toy world, so small that a test can make many of them and compare them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from isentrope.config.schema import RunConfig
from isentrope.loop.train import train
from tests.builders.toy_runs import toy_config

FEW = (
    "run.steps=2",
    "run.eval_every=0",
    "eval.games=2",
    "run.checkpoint_every=2",
    "methods=[]",
    "learn.mini_batches=1",
)


def config_for(model: Path, *changes: str) -> RunConfig:
    """A run of the toy world, so easy that the model of conftest.py wins now and then."""
    return toy_config(model, *FEW, "task.options={goal=1}", *changes)


def play_run(model: Path, out: Path, *changes: str, resume: bool = False) -> Path:
    train(config_for(model, *changes), out, resume=resume, quiet=True)
    return out


def records(out: Path, *own: str) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl without the keys that begin like this."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if not own or not key.startswith(own)} for line in lines]


def steps_of(out: Path) -> list[dict[str, Any]]:
    return [record for record in records(out) if record["kind"] == "train"]


def weights(out: Path) -> bytes:
    return (sorted((out / "checkpoints").glob("step-*"))[-1] / "policy" / "model.safetensors").read_bytes()


def assert_same_run(ours: Path, theirs: Path, *own: str) -> None:
    assert records(ours, *own) == records(theirs)
    assert weights(ours) == weights(theirs)


def check_resumed(model: Path, folder: Path, *changes: str) -> Path:
    """A run taken up again at its first checkpoint ends like one that was never interrupted. Gives the run."""
    settings = (*changes, "run.steps=3", "run.checkpoint_every=1", "run.keep_last=9")
    whole = play_run(model, folder / "whole", *settings)
    again = folder / "again"
    shutil.copytree(whole, again)
    for checkpoint in sorted((again / "checkpoints").glob("step-*"))[1:]:
        shutil.rmtree(checkpoint)
    play_run(model, again, *settings, resume=True)
    assert (again / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    assert weights(again) == weights(whole)
    for name in ("state.json", "state.safetensors"):
        assert (again / "checkpoints/step-000003" / name).read_bytes() == (
            whole / "checkpoints/step-000003" / name
        ).read_bytes()
    return whole
