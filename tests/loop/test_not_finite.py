"""A run whose engine now and then cannot say how likely a token was."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isentrope.core.engine import Request, Sampled
from isentrope.engines.torch import TorchEngine
from isentrope.loop import session
from isentrope.loop.train import train
from isentrope.metrics.recompute import analyze
from isentrope.runs.episodes import read_episodes, read_scores
from isentrope.runs.layout import scores_path, train_path
from tests.builders.toy_runs import make_model, toy_config


class Stumbling(TorchEngine):
    """Gives NaN for the second token of one training response, at step 2."""

    def refresh(self) -> None:
        super().refresh()
        self.learnt = getattr(self, "learnt", 0) + 1

    def sample(self, requests: Sequence[Request]) -> list[Sampled]:
        found = super().sample(requests)
        if getattr(self, "learnt", 0) == 1 and not getattr(self, "stumbled", False) and requests[0].temperature == 1:
            self.stumbled = True
            logprobs = found[0].logprobs.copy()
            logprobs[1] = np.nan
            found[0] = replace(found[0], logprobs=logprobs)
        return found


def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Any, name: str) -> list[dict[str, Any]]:
    monkeypatch.setattr(session, "make_engine", lambda config, policy: engine(policy))
    model = make_model(tmp_path / "model")
    changes = ("run.steps=4", "learn.kl=0.01", "methods=['epo', 'aem', 'seal', 'ea']", "run.store_episodes=1")
    train(toy_config(model, *changes, "learn.mini_batches=1"), tmp_path / name, quiet=True)
    lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
    return [one for one in map(json.loads, lines) if one.get("kind", "train") == "train"]


def test_one_log_prob_that_is_none_costs_its_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sound, found = (made(tmp_path, monkeypatch, e, e.__name__) for e in (TorchEngine, Stumbling))
    assert [record["update/dropped_tokens"] for record in sound] == [0, 0, 0, 0]
    assert [record["update/dropped_tokens"] for record in found] == [0, 1, 0, 0]
    assert [record["update/skipped"] for record in found] == [0, 0, 0, 0]
    assert found[0] == sound[0]
    assert found[1]["entropy/token"] == sound[1]["entropy/token"]  # the same games, but for one number
    assert all(np.isfinite(record["grad_norm"]) and record["grad_norm"] > 0 for record in found)
    run = tmp_path / "Stumbling"
    scores = read_scores(scores_path(run, 2))
    logp_N = np.concatenate([turn.logprobs for e in read_episodes(train_path(run, 2)) for turn in e.turns])
    assert scores.weight_N is not None
    np.testing.assert_array_equal(np.isnan(scores.ratio_N), np.isnan(logp_N))
    np.testing.assert_array_equal(scores.weight_N == 0, np.isnan(logp_N))
    again = analyze(run)
    assert (again.steps, again.differing, again.missing) == (4, [], [])
