"""rollout.ahead against a naive loop that does the same one thing after another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from isentrope.config.schema import RunConfig
from isentrope.core.errors import ConfigError
from isentrope.core.types import RolloutPlan
from isentrope.engines.torch import TorchEngine
from isentrope.learning.learner import Learner
from isentrope.loop.session import settled
from isentrope.loop.train import train
from isentrope.methods.registry import make_methods
from isentrope.models.load import load_policy
from isentrope.models.policy import Policy, follow, snapshot
from isentrope.rollout.collector import Collector
from isentrope.runs.episodes import read_episodes
from isentrope.runs.layout import train_path
from tests.builders.toy_runs import WARM_MODEL, toy_config

AHEAD = ("rollout.ahead=1", "learn.old_logprobs=recompute", "learn.mismatch=truncate")
SETTINGS = (
    *AHEAD,
    "learn.kl=0.0",
    "learn.lr=1e-2",
    "learn.warmup=0",
    "run.eval_every=0",
    "run.steps=4",
    "eval.games=2",
    "methods=['actre', 'entropy_bonus']",
    "method.actre.switch=2",
    "method.entropy_bonus.coefficient=0.5",
)


@pytest.fixture(scope="module")
def model() -> Path:
    return WARM_MODEL


def weights(policy: Policy) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in policy.module.parameters()]


def naive(config: RunConfig) -> tuple[list[torch.Tensor], list[list[str]]]:
    """Two policies; the episodes of a step are played by the one that has not yet made the last update."""
    torch.manual_seed(0)
    methods = make_methods(config)
    policy = load_policy(config.policy, config.run)
    older = load_policy(config.policy, config.run)
    learner = Learner(policy, None, config, methods)
    said: list[list[str]] = []

    def play(step: int, collector: Collector) -> Any:
        plan = RolloutPlan(config.agent.order, config.rollout.temperature)
        for method in methods:
            plan = method.plan(step, plan)
        return collector.play_groups(step, plan)

    with Collector(config, TorchEngine(older)) as collector:
        waiting = play(1, collector)  # with the first weights
        for step in range(1, config.run.steps + 1):
            before = [tensor.clone() for tensor in policy.module.state_dict().values()]
            older.module.load_state_dict(dict(zip(policy.module.state_dict(), before, strict=True)))
            coming = play(step + 1, collector) if step < config.run.steps else []
            learner.learn(step, waiting)
            said.append([episode.order for episode in waiting])
            waiting = coming
    return weights(policy), said


def test_a_run_in_advance_equals_the_naive_one(model: Path, tmp_path: Path) -> None:
    config = settled(toy_config(model, *SETTINGS))
    torch.set_num_threads(1)
    expected, orders = naive(config)
    train(config, tmp_path / "run", quiet=True)
    last = load_policy(toy_config(tmp_path / "run", *SETTINGS).policy, config.run)
    for ours, theirs in zip(weights(last), expected, strict=True):
        assert torch.equal(ours, theirs)
    assert not torch.equal(expected[0], weights(load_policy(config.policy, config.run))[0])
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    steps = [record for record in records if record["kind"] == "train"]
    # ActRe changes the form after step 2: what is played for step 3 is planned for it, though step 2 is being learnt
    assert [step["plan/stage"] for step in steps] == [1, 1, 2, 2]
    for number, expected_orders in enumerate(orders, 1):
        assert [e.order for e in read_episodes(train_path(tmp_path / "run", number))] == expected_orders
    # The first step is learnt from by the policy that played it, the others by one that has been updated since.
    assert steps[0]["mismatch/logp_max"] < 1e-4
    assert all(step["mismatch/logp_max"] > 1e-3 for step in steps[1:])
    stages = [json.loads(line) for line in (tmp_path / "run" / "timings.jsonl").read_text().splitlines()]
    assert {"seconds/rollout", "seconds/score", "seconds/update", "seconds/store", "seconds/observe"} <= stages[
        1
    ].keys()
    assert {"rollout_seconds/engine", "rollout_seconds/tasks", "rollout_seconds/host"} <= stages[2].keys()


def test_it_has_to_be_corrected_for(model: Path) -> None:
    for changes in ((), ("learn.old_logprobs=recompute",)):
        with pytest.raises(ConfigError, match=r"rollout\.ahead = 1 with learn\.old_logprobs"):
            toy_config(model, "rollout.ahead=1", *changes)


def test_a_snapshot_stays_until_it_follows(model: Path) -> None:
    config = toy_config(model)
    policy = load_policy(config.policy, config.run)
    taken, first = snapshot(policy), weights(policy)
    with torch.no_grad():
        for parameter in policy.module.parameters():
            parameter.add_(1)
    assert all(torch.equal(a, b) for a, b in zip(weights(taken), first, strict=True))
    follow(taken, policy)
    assert all(torch.equal(a, b) for a, b in zip(weights(taken), weights(policy), strict=True))
    assert not any(parameter.requires_grad for parameter in taken.module.parameters())
    assert all(parameter.requires_grad for parameter in policy.module.parameters())
