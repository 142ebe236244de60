"""Whole runs with the vLLM engine: what the torch engine learns from the same seed, interrupted and taken up again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from isentrope.config.load import load_config
from isentrope.config.schema import PolicySettings, RunConfig, RunSettings
from isentrope.core.errors import EngineError
from isentrope.engines.registry import make_engine
from isentrope.learning.learner import Credited, Learner, Update
from isentrope.loop.train import train
from isentrope.models.load import load_policy
from tests.builders.toy_runs import make_model
from tests.engines.vllm.helpers import config_of, requests_of, vllm_engine


def short_run(*changes: str) -> RunConfig:
    return load_config(
        None,
        [
            "agent.prompt=brief",
            "agent.max_response=24",
            "agent.max_context=600",
            "task.max_turns=4",
            "run.device=cpu",
            "run.threads=1",
            "run.steps=3",
            "run.checkpoint_every=1",
            "rollout.groups=2",
            "rollout.group_size=3",
            "rollout.batch=8",
            "learn.lr=1e-3",
            "learn.warmup=0",
            "learn.old_logprobs=recompute",
            "learn.mismatch=truncate",
            "eval.games=4",
            "engine.memory=0.2",
            "task.invalid_reward=-1",  # so that episodes of a group differ in these few turns
            *changes,
        ],
    )


def metrics_of(folder: Path) -> dict[tuple[int, str], dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {(line["step"], line["kind"]): line for line in lines}


def test_learns_what_the_torch_engine_learns_and_can_be_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(short_run(), tmp_path / "torch", quiet=True)
    real = Learner.update

    def interrupted(self: Learner, credited: Credited) -> Update:
        if credited.step == 3:
            raise KeyboardInterrupt
        return real(self, credited)

    monkeypatch.setattr(Learner, "update", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(short_run("engine.kind=vllm"), tmp_path / "vllm", quiet=True)
    monkeypatch.setattr(Learner, "update", real)
    train(short_run("engine.kind=vllm"), tmp_path / "vllm", resume=True, quiet=True)
    by_torch, by_vllm = metrics_of(tmp_path / "torch"), metrics_of(tmp_path / "vllm")
    assert by_torch.keys() == by_vllm.keys()
    for step in (1, 2, 3):
        line, expected = by_vllm[step, "train"], by_torch[step, "train"]
        assert line["grad_norm"] > 0
        assert line["mismatch/logp_max"] < 1e-3  # the weights that vLLM sampled with are those of the step before
        for key in ("response/tokens", "entropy/token", "return/mean", "grad_norm", "loss/total"):
            assert line[key] == pytest.approx(expected[key], rel=0.02, abs=1e-4), (step, key)
    assert by_torch[1, "train"]["entropy/token"] != pytest.approx(by_torch[3, "train"]["entropy/token"], rel=0.02)
    assert by_vllm[2, "train"]["engine/cached"] > 0.2


def test_what_vllm_cannot_start_with_is_an_error_that_names_the_setting() -> None:
    policy = load_policy(PolicySettings(), RunSettings(device="cpu"))
    with pytest.raises(EngineError, match="did not start") as caught:
        make_engine(config_of(length=8192), policy)  # the pocket model has 4096 positions
    assert "agent.max_context = 8192" in str(caught.value)
    with pytest.raises(EngineError, match=r"run\.device=cpu"):
        make_engine(config_of(), replace(policy, device=torch.device("meta")))


def test_a_shape_that_vllm_cannot_compute_is_an_error_in_words(tmp_path: Path) -> None:
    policy = load_policy(PolicySettings(model=str(make_model(tmp_path / "model"))), RunSettings(device="cpu"))
    with vllm_engine(policy) as engine, pytest.raises(EngineError, match="head_dim=8"):
        engine.sample(requests_of(policy, 1))
