"""old_logprobs = auto: the extra pass is made until sampler and trainer agree, and again when they no longer do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from isentrope.config.schema import LearnSettings, RunConfig, RunSettings
from isentrope.config.validate import impossible
from isentrope.core.types import Episode
from isentrope.learning.learner import Learner
from isentrope.learning.records import Metrics, accumulate, brought
from isentrope.learning.tokens import flatten
from tests.builders.episodes import make_episodes
from tests.learning.test_shared_prefix import alike
from tests.models.helpers import small_policy

AUTO = LearnSettings(lr=1e-4, kl=0.0, old_logprobs="auto", mismatch_limit=0.001)


def learner_of(settings: LearnSettings) -> tuple[Learner, list[int]]:
    """A learner, and a list that grows with every pass that scores tokens."""
    learner = Learner(small_policy(), None, RunConfig(run=RunSettings(steps=5), learn=settings))
    passes: list[int] = []
    score = learner.score

    def counted(*inputs: Any) -> Any:
        passes.append(1)
        return score(*inputs)

    learner.score = counted  # type: ignore[method-assign]
    return learner, passes


def sampled(learner: Learner, seed: int, off: float = 0.0) -> list[Episode]:
    """Episodes whose log-probs are the policy's own now, or off by so many nats, up and down."""
    episodes = make_episodes(seed)
    sequences, tokens = flatten(episodes)
    logp = Learner.score(learner, learner.policy, sequences, tokens)
    logp = logp + off * np.where(np.arange(len(logp)) % 2, 1, -1).astype(np.float32)
    at, new = 0, []
    for episode in episodes:
        turns = []
        for turn in episode.turns:
            turns.append(replace(turn, logprobs=logp[at : at + len(turn.response_ids)]))
            at += len(turn.response_ids)
        new.append(replace(episode, turns=tuple(turns)))
    return new


def test_the_pass_is_left_out_while_the_two_agree_and_comes_back_when_they_do_not() -> None:
    learner, passes = learner_of(AUTO)
    history = []
    for step, off in enumerate((0.0, 0.0, 0.3, 0.3, 0.0, 0.0), 1):
        metrics = learner.learn(step, sampled(learner, step, off)).metrics
        history.append((len(passes), metrics["mismatch/recomputed"]))
        assert metrics["mismatch/kl"] == pytest.approx(np.cosh(off) - 1, rel=0.05, abs=1e-5)
    assert history == [(1, 1.0), (1, 0.0), (1, 0.0), (2, 1.0), (3, 1.0), (3, 0.0)]


def test_a_step_that_takes_the_samplers_learns_as_with_sampler() -> None:
    found: list[torch.Tensor] = []
    for old in ("auto", "sampler"):
        learner, _ = learner_of(replace(AUTO, old_logprobs=old))
        learner.mismatch.trusted = True
        learner.learn(1, sampled(learner, 1, 0.1))
        found.append(torch.cat([p.detach().flatten() for p in learner.policy.module.parameters()]))
    assert torch.equal(found[0], found[1])


def test_what_was_found_survives_a_restart() -> None:
    learner, _ = learner_of(AUTO)
    learner.learn(1, sampled(learner, 1))
    again, passes = learner_of(AUTO)
    again.load_state_dict(learner.state_dict())
    again.learn(2, sampled(again, 2))
    assert passes == []
    old = {key: value for key, value in learner.state_dict().items() if key != "mismatch"}
    learner_of(AUTO)[0].load_state_dict(old)  # of a run from before there was such a thing


def test_truncated_weights_go_with_auto_and_not_with_the_samplers_alone() -> None:
    assert not list(impossible(RunConfig(learn=replace(AUTO, mismatch="truncate"))))
    assert list(impossible(RunConfig(learn=replace(AUTO, old_logprobs="sampler", mismatch="truncate"))))


def test_figures_come_over_together_and_in_their_places() -> None:
    mixed = [{"a": torch.tensor(1.5), "b": 2.0}, {"b": torch.tensor(3.0), "ratio/max": torch.tensor(0.1)}]
    numbers = brought(mixed)
    assert numbers == [{"a": 1.5, "b": 2.0}, {"b": 3.0, "ratio/max": float(torch.tensor(0.1))}]
    sums: Metrics = {}
    for each in numbers:
        accumulate(sums, each)
    assert sums["b"] == 5.0
    assert all(isinstance(value, float) for value in sums.values())


@pytest.mark.parametrize("share", ["on", "auto"])
def test_sharing_leaves_the_update_as_it_is(share: str) -> None:
    """Adam's first step is the sign of the gradient, so what is compared are the gradients' first moments."""
    found: list[torch.Tensor] = []
    shares: list[bool] = []
    for choice in ("off", share):
        learner, _ = learner_of(replace(AUTO, old_logprobs="sampler", share_prefixes=choice))
        episodes = alike(3, full=True, prompt=60)
        sequences, tokens = flatten(episodes)
        shares.append(any(batch.parents_BT is not None for batch in learner._pieces(sequences, tokens, None)))
        learner.learn(1, episodes)
        moments = [state["exp_avg"].flatten() for state in learner.optimiser.adam.state.values()]
        found.append(torch.cat(moments))
    assert shares == [False, True]
    assert float((found[1] - found[0]).norm() / found[0].norm()) < 1e-5
