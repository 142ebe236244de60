"""Engines from outside: what they note is declared, and their faults name the engine and the hook."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from isentrope.core.engine import Capabilities, Request, Sampled
from isentrope.core.errors import ConfigError, EngineError
from isentrope.core.metric import Metric
from isentrope.engines.registry import check_training
from isentrope.engines.torch import TorchEngine
from isentrope.loop.train import train
from isentrope.runs.layout import ABOUT, METRICS
from tests.builders.toy_runs import WARM_MODEL, toy_config

HERE = "tests.engines.test_outside"


class Counting(TorchEngine):
    metrics = (Metric("engine/calls", "Times that the engine was asked.", "calls"),)

    def __init__(self, policy: Any, config: Any, options: Any) -> None:
        super().__init__(policy)
        self.calls = 0

    def sample(self, requests: Sequence[Request]) -> list[Sampled]:
        self.calls += 1
        return super().sample(requests)

    def notes(self) -> dict[str, float]:
        calls, self.calls = self.calls, 0
        return {"calls": calls}


class Undeclared(Counting):
    metrics = ()


class Raises(Counting):
    def sample(self, requests: Sequence[Request]) -> list[Sampled]:
        raise RuntimeError("the server is gone")


class TooFew(Counting):
    def sample(self, requests: Sequence[Request]) -> list[Sampled]:
        return super().sample(requests)[1:]


class NotAnEngine:
    def __init__(self, policy: Any, config: Any, options: Any) -> None: ...


class OnlyEvaluates(Counting):
    capabilities = Capabilities(trains=False)


def run(out: Path, name: str) -> Path:
    config = toy_config(WARM_MODEL, "run.steps=1", f"engine.kind={HERE}:{name}", "eval.games=2", "methods=[]")
    train(config, out, quiet=True)
    return out


def test_what_an_engine_notes_is_recorded_and_explained(tmp_path: Path) -> None:
    out = run(tmp_path / "run", "Counting")
    records = [json.loads(line) for line in (out / METRICS).read_text().splitlines()]
    assert [record["engine/calls"] for record in records if record["kind"] == "train"] == [4]  # one for each turn
    assert json.loads((out / ABOUT).read_text())["metrics"]["engine/calls"][0] == "calls"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Undeclared", "hook notes: gave the metric 'engine/calls', which `metrics` of its class does not declare"),
        ("Raises", "hook sample: raised RuntimeError: the server is gone"),
        ("TooFew", r"hook sample: gave \d+ responses to \d+ requests"),
        ("NotAnEngine", "it has no tokenizer, open"),
    ],
)
def test_faults_name_the_engine_and_the_hook(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(EngineError, match=rf"engine {HERE}:{name}.*{said}"):
        run(tmp_path / "run", name)


def test_an_engine_that_cannot_train_is_refused() -> None:
    with pytest.raises(ConfigError, match="can only evaluate"):
        check_training(toy_config(WARM_MODEL, f"engine.kind={HERE}:OnlyEvaluates"))
