"""rollout.ahead, from the log-probs that were recorded: whose they are, and what the update made of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from isentrope.config.schema import RunConfig
from isentrope.core.types import RolloutPlan
from isentrope.engines.torch import TorchEngine
from isentrope.learning.learner import Learner
from isentrope.models.load import load_policy
from isentrope.rollout.collector import Collector
from tests.audit.naive import Aim, apart, corrected, gradient, grpo, mismatch, weights_of
from tests.audit.runs import Diary, distances, run, scores, watching, written
from tests.audit.staged import config_of, saved

AHEAD = ("rollout.ahead=1", "learn.old_logprobs=recompute", "learn.mismatch=truncate", "learn.mismatch_cap=1.1")
STEPS, CAP = 4, 1.1


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("model") / "new")


@pytest.fixture(scope="module")
def diary(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Diary:
    config = config_of(model, *AHEAD, "learn.epochs=2", "learn.grad_clip=1000000.0")
    return run(config, tmp_path_factory.mktemp("run") / "out")


def test_each_step_was_played_by_the_version_before_the_last_update(diary: Diary) -> None:
    assert len(diary.updates) == STEPS
    for update in diary.updates:
        apart_by = distances(diary, update)
        player = max(0, update.step - 2)
        assert int(np.argmin(apart_by)) == player
        assert apart_by[player] < 1e-5
        assert min(d for k, d in enumerate(apart_by) if k != player) > 1e-3


def test_recorded_entropies_are_those_of_the_version_that_played(diary: Diary) -> None:
    from tests.audit.naive import look

    assert diary.form is not None
    for update in diary.updates:
        with torch.no_grad():
            mine = look(diary.versions[max(0, update.step - 2)], diary.form, update.tokens).entropy.numpy()
        np.testing.assert_allclose(update.tokens.entropy, mine, atol=1e-4)


def test_gradients_have_ratios_to_the_start_of_the_update_and_capped_weights_to_the_sampler(diary: Diary) -> None:
    assert diary.form is not None
    capped = 0.0
    for update in diary.updates:
        old = scores(diary, update.step - 1, update)
        weight = corrected(old, update.tokens.recorded, CAP)
        capped += float((weight == CAP).mean())
        aim = Aim(grpo(update.episodes, update.tokens), old, weight=weight)
        assert len(update.optimised) == 2  # one for each pass: the second has ratios away from 1
        for made in update.optimised:
            now = {name: w.double() for name, w in zip(diary.names, made["held"], strict=True)}
            parts, wanted, _ = gradient(now, diary.form, update.tokens, aim)
            assert made["loss"] == pytest.approx(parts["total"], abs=2e-5)
            for name, found in zip(diary.names, made["grads"], strict=True):
                assert apart(found, wanted[name])[1] < 1e-3, (update.step, name)
    assert capped > 0.05  # else the cap was not looked at


def test_metrics_tell_how_far_the_sampler_was_from_the_start_of_the_update(diary: Diary) -> None:
    for update in diary.updates:
        wanted = mismatch(scores(diary, update.step - 1, update), update.tokens.recorded, CAP)
        for key, value in wanted.items():
            assert update.metrics[key] == pytest.approx(value, abs=1e-4), key
    assert diary.updates[0].metrics["mismatch/logp_max"] < 1e-4
    assert diary.updates[1].metrics["mismatch/logp_max"] > 1e-2


def test_a_run_that_died_while_the_next_episodes_were_played_ends_as_one_that_did_not(
    model: Path, tmp_path: Path
) -> None:
    config = config_of(model, *AHEAD, "run.checkpoint_every=2", "run.keep_last=9")
    whole = run(config, tmp_path / "whole")
    run(config, tmp_path / "died", die_at=4)  # step 3 is done, step 4 was played in advance; both are lost
    again = run(config, tmp_path / "died", resume=True)
    assert [u.step for u in again.updates] == [3, 4]
    for a, b in zip(whole.final, again.final, strict=True):
        assert torch.equal(a, b)
    assert written(tmp_path / "whole") == written(tmp_path / "died")


def by_hand(config: RunConfig) -> Diary:
    """Play with the newest weights, learn, and again."""
    torch.manual_seed(0)
    with watching() as diary:
        policy = load_policy(config.policy, config.run)
        learner = Learner(policy, None, config)
        with Collector(config, TorchEngine(policy)) as collector:
            for step in range(1, config.run.steps + 1):
                plan = RolloutPlan(config.agent.order, config.rollout.temperature)
                learner.update(step, collector.train(step, plan))
    return diary


@pytest.mark.parametrize("changes", [(), AHEAD[1:]])
def test_without_it_a_run_is_the_plain_loop_bit_for_bit(model: Path, tmp_path: Path, changes: tuple[str, ...]) -> None:
    config = config_of(model, "rollout.ahead=0", *changes)
    found, wanted = run(config, tmp_path / "run"), by_hand(config)
    for a, b in zip(found.final, wanted.final, strict=True):
        assert torch.equal(a, b)
    start = weights_of(load_policy(config.policy, config.run).module)
    assert not torch.equal(start["embed_tokens.weight"], found.versions[-1]["embed_tokens.weight"])
    for update in found.updates:  # and every step was played with the newest weights
        assert int(np.argmin(distances(found, update))) == update.step - 1
