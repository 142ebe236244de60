"""A learner on two and three ranks of gloo: the gradients, metrics and states of one process."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from isentrope.config.schema import RunConfig
from isentrope.core.method import Method
from isentrope.core.types import Episode
from isentrope.engines.registry import make_engine
from isentrope.learning.learner import Learner, Update
from isentrope.loop import ranks as loop_ranks
from isentrope.methods.registry import make_methods
from isentrope.models.load import load_policy
from isentrope.models.lora import LoraModel, ReferenceView
from isentrope.models.policy import Policy, snapshot
from isentrope.rollout.collector import Collector
from isentrope.runs.checkpoints import split_tensors
from tests.builders.sizes import EXPLORE
from tests.builders.toy_runs import WARM_MODEL, toy_config
from tests.cluster.ranks import Follower, end_groups, group_of, leading

LEARNING = (
    "rollout.groups=4", "rollout.group_size=3", "learn.grad_clip=1e9", "learn.lr=1e-9", "learn.kl=0.01",
    "learn.warmup=0", "methods=[]", "critic.lr=1e-9",
)  # fmt: skip
ALGORITHMS = ("rloo", "grpo", "dr_grpo", "dapo", "gspo", "gigpo", "gigpo_mixed", "ppo", "grpo_plus", "recommended")
METHODS = ("entropy_bonus", "epo", "ea", "seal", "aem")
CASES: dict[str, tuple[str, ...]] = {
    **{name: (f"learn.algorithm={name}",) for name in ALGORITHMS},
    "reinforce": ("learn.algorithm=reinforce", "learn.mini_batches=1"),
    **{name: (f"methods={name}",) for name in METHODS},
    "actre": ("methods=actre,seal", "learn.algorithm=gspo", "learn.epochs=2", "method.seal.groups=mixed"),
    "critic-head": ("learn.algorithm=ppo", "critic.kind=head", "critic.trunk=0.5"),
    "recompute": ("learn.old_logprobs=recompute", "learn.mismatch=truncate", "learn.kl_in=reward"),
    "rows": ("learn.row_tokens=120", "learn.micro_tokens=240", "learn.share_prefixes=on"),
    "constant": ("learn.aggregation=constant", "learn.mask_truncated=true"),
    "lora": ("policy.lora_rank=2",),
    "bfloat16": ("run.weights=bfloat16", "learn.kl=0"),
}

ON_THREE = tuple(CASES) if EXPLORE else ("grpo", "ppo", "seal", "actre", "critic-head", "recompute", "rows")


@pytest.fixture(scope="module")
def followers() -> Iterator[list[Follower]]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop_ranks, "RankGroup", group_of)
        made = [Follower(rank) for rank in (1, 2)]
        yield made
        for follower in made:
            follower.end()
        end_groups()
    torch.set_num_threads(threads)


@dataclass(frozen=True)
class Step:
    """What learners of one case begin with."""

    config: RunConfig
    policy: Policy
    methods: list[Method]
    episodes: list[Episode]

    def parts(self) -> tuple[Policy, Policy | None, list[Method]]:
        """Of a learner's own: the policy, another one as its reference, and the methods."""
        policy = replace(self.policy, model=copy.deepcopy(self.policy.model))
        return policy, other_than(policy) if self.config.learn.kl else None, copy.deepcopy(self.methods)


def step_of(*changes: str) -> Step:
    config = toy_config(WARM_MODEL, *LEARNING, *changes)
    policy = load_policy(config.policy, config.run, config.learn, config.critic)
    methods = list(make_methods(config))
    with Collector(config, make_engine(config, policy), methods) as collector:
        episodes = collector.collect(1).learnt
    ended = [replace(one, stop="terminated") if n % 2 else one for n, one in enumerate(episodes)]  # not all cut off
    return Step(config, policy, methods, ended)


def other_than(policy: Policy) -> Policy:
    if isinstance(policy.model, LoraModel):
        return replace(policy, model=ReferenceView(policy.model))  # type: ignore[arg-type]
    other = snapshot(policy)
    chance = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in other.module.parameters():
            weight.add_(0.02 * torch.randn(weight.shape, generator=chance).to(weight.dtype))
    return other


def learn(learner: Learner, episodes: Sequence[Episode], steps: int = 2) -> tuple[list[Update], dict[str, Tensor]]:
    """What a learner says of two steps, and the tensors that a checkpoint has of it."""
    updates = [learner.learn(step, episodes) for step in range(1, steps + 1)]
    return updates, split_tensors(learner.state_dict())[0]


def apart(ours: Tensor, theirs: Tensor) -> float:
    a, b = ours.detach().numpy().astype(np.float64), theirs.detach().numpy().astype(np.float64)
    return float(np.linalg.norm(a - b) / max(float(np.linalg.norm(b)), 1e-30))


@cache
def step_and_truth(case: str) -> tuple[Step, list[Update], dict[str, Tensor]]:
    """What there is to learn from, and what one process makes of it."""
    step = step_of(*CASES[case])
    policy, reference, methods = step.parts()
    return step, *learn(Learner(policy, reference, step.config, methods), step.episodes)


@pytest.mark.parametrize(("size", "case"), [*((2, case) for case in CASES), *((3, case) for case in ON_THREE)])
def test_the_gradients_are_those_of_one_process(
    size: int, case: str, followers: list[Follower], tmp_path: Path
) -> None:
    """Adam's first moments are sums of gradients."""
    if case == "lora":
        pytest.importorskip("peft")
    step, wanted, tensors = step_and_truth(case)
    rough = case == "bfloat16"  # each rank rounds the gradient of its part
    config = with_ranks(step.config, size)
    policy, reference, methods = step.parts()
    with leading(followers, policy, reference, config, tmp_path) as first:
        updates, found = learn(Learner(policy, reference, config, methods, first), step.episodes)
    assert found.keys() == tensors.keys()
    for part in ("optimiser", "critic", "methods"):
        moments = [name for name in tensors if name.startswith(f"/{part}") and name.endswith("exp_avg")]
        assert moments or part != "optimiser"
        if moments:
            ours, theirs = (torch.cat([t[name].flatten() for name in moments]) for t in (found, tensors))
            assert apart(ours, theirs) < (1e-2 if rough else 1e-6), part
    for now, before in zip(updates, wanted, strict=True):
        assert now.metrics == pytest.approx(before.metrics, rel=1e-2 if rough else 1e-4, abs=1e-6)
        for column in ("advantage_N", "ratio_N", "weight_N"):
            ours, theirs = getattr(now.scores, column), getattr(before.scores, column)
            np.testing.assert_allclose(ours, theirs, rtol=1e-2 if rough else 1e-5, atol=1e-6)


def with_ranks(config: RunConfig, size: int) -> RunConfig:
    return replace(config, cluster=replace(config.cluster, kind="processes", trainers=size, seconds=120.0))
