"""Old log-probs: `auto` makes the extra pass until sampler and trainer agree, and again when they no longer do; the
first mini-batch takes those of its own forward pass, which changes nothing but the time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from isentrope.config.schema import Choice, CriticSettings, LearnSettings, RunConfig, RunSettings
from isentrope.config.validate import impossible
from isentrope.core.types import Episode
from isentrope.learning.learner import Learner, Update
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
    learner, passes = learner_of(replace(AUTO, mini_batches=2))  # the first takes its own
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
        shares.append(any(batch.parents_BT is not None for batch in learner.replica.pieces(sequences, tokens, None)))
        learner.learn(1, episodes)
        moments = [state["exp_avg"].flatten() for state in learner.optimiser.adam.state.values()]
        found.append(torch.cat(moments))
    assert shares == [False, True]
    assert float((found[1] - found[0]).norm() / found[0].norm()) < 1e-5


OWN: dict[str, dict[str, Any]] = {
    "one": {},
    "three": {"mini_batches": 3},
    "epochs": {"mini_batches": 2, "epochs": 2},
    "kept": {"mini_batches": 2, "mismatch": "keep", "epochs": 2},
    "by-response": {"mini_batches": 2, "loss": Choice("sequence"), "epochs": 2},
    "auto": {"mini_batches": 2, "old_logprobs": "auto"},
    "masked": {"mini_batches": 2, "mask_truncated": True, "epochs": 2},
    "reference": {"mini_batches": 2, "kl": 0.05},
    "critic": {"mini_batches": 2, "advantage": Choice("gae")},
    "shared": {"mini_batches": 2, "share_prefixes": "on"},
}
BEFORE: dict[str, tuple[dict[str, Any], int]] = {  # settings under which all tokens are scored first, critic.warmup
    "a KL penalty in the rewards": ({"kl": 0.05, "kl_in": "reward"}, 0),
    "an update of the critic alone": ({"advantage": Choice("gae")}, 3),
}


def learnt(changes: dict[str, Any], first: bool, warmup: int = 0, steps: int = 2) -> tuple[Learner, list[Update], int]:
    """After some steps; `first`: all tokens are scored first. Tells how many tokens were."""
    chosen = replace(AUTO, old_logprobs="recompute", mismatch="truncate", mismatch_cap=1.1, micro_tokens=100)
    settings = replace(chosen, **changes)
    critic = CriticSettings(kind="head", warmup=warmup)
    config = RunConfig(run=RunSettings(steps=5), learn=settings, critic=critic)
    torch.manual_seed(0)
    learner = Learner(small_policy(), small_policy(seed=9) if settings.kl else None, config)
    if first:
        learner.mismatch.asked = lambda reference, policy_too: ("a test",)  # type: ignore[method-assign]
    score, tokens = learner.score, list[int]()

    def counted(policy: Any, sequences: Any, table: Any) -> Any:
        tokens.append(sum(len(s.tokens) for s in sequences) if policy is learner.policy else 0)
        return score(policy, sequences, table)

    learner.score = counted  # type: ignore[method-assign]
    updates: list[Update] = []
    for step in range(1, steps + 1):
        games = sampled(learner, step, 0.2)
        games[0] = replace(games[0], stop="truncated")
        updates.append(learner.learn(step, games))
    return learner, updates, sum(tokens)


def alike_in_all(ours: tuple[Learner, list[Update], int], theirs: tuple[Learner, list[Update], int]) -> None:
    for mine, other in zip(ours[1], theirs[1], strict=True):
        assert mine.metrics.keys() == other.metrics.keys()
        for key, value in mine.metrics.items():
            assert value == pytest.approx(other.metrics[key], rel=1e-4, abs=2e-6), key
        for name, values in vars(mine.scores).items():
            np.testing.assert_allclose(values, getattr(other.scores, name), rtol=1e-4, atol=1e-6, err_msg=name)
    for a, b in zip(ours[0].policy.module.parameters(), theirs[0].policy.module.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=2e-5)
    assert ours[0].mismatch.state_dict() == theirs[0].mismatch.state_dict()


@pytest.mark.parametrize("name", OWN)
def test_the_first_mini_batch_takes_its_own(name: str) -> None:
    """All metrics and scores, and the weights, as when all tokens are scored first."""
    ours, theirs = learnt(OWN[name], False), learnt(OWN[name], True)
    alike_in_all(ours, theirs)
    assert ours[2] < theirs[2]
    if name == "one":
        assert ours[2] == 0


@pytest.mark.parametrize("name", BEFORE)
def test_who_asks_for_them_before_gets_them(name: str) -> None:
    changes, warmup = BEFORE[name]
    ours, theirs = learnt(changes, False, warmup), learnt(changes, True, warmup)
    assert ours[0].mismatch.asked(ours[0].reference is not None, not warmup) == (name,)
    alike_in_all(ours, theirs)
    assert ours[2] == theirs[2]


@pytest.mark.parametrize("lost", range(3))
def test_tokens_that_are_left_out_leave_none_waiting(lost: int) -> None:
    """Without a group that has no numbers the mini-batches are others, so all are scored after all."""
    found: list[Update] = []
    for first in (False, True):
        learner, _, _ = learnt(OWN["epochs"], first, steps=0)
        games, dropped = sampled(learner, 1, 0.2), 0
        for n, game in enumerate(games):
            if game.group == lost:
                turns = [replace(t, logprobs=np.full_like(t.logprobs, np.nan)) for t in game.turns]
                games[n], dropped = replace(game, turns=tuple(turns)), dropped + sum(len(t.response_ids) for t in turns)
        found.append(learner.learn(1, games))
        assert found[-1].metrics["update/dropped_tokens"] == dropped > 0
        assert found[-1].metrics["update/skipped"] == 0
    for key, value in found[0].metrics.items():
        assert value == pytest.approx(found[1].metrics[key], rel=1e-4, abs=2e-6), key


def test_a_policy_that_fails_for_some_tokens_is_scored_first_from_then_on() -> None:
    """The update that found it is skipped; the next ones leave these tokens out, also after a restart."""
    learner, _, _ = learnt({"epochs": 2}, False, steps=0)
    games, stats = sampled(learner, 1, 0.2), learner.policy.stats
    count = sum(len(turn.response_ids) for game in games for turn in game.turns)

    def failing(batch: Any) -> Any:
        found = stats(batch)
        lost_N = torch.from_numpy(batch.number_N == 3) & (int(batch.mini_batch.max()) == count - 1)  # while it is there
        return replace(found, logp_N=torch.where(lost_N, torch.nan, found.logp_N))

    learner.policy = learner.replica.policy = replace(learner.policy)  # its own, to be changed
    object.__setattr__(learner.policy, "stats", failing)
    metrics = learner.learn(1, games).metrics
    assert (metrics["update/skipped"], metrics["update/count"]) == (1, 2)
    assert all(np.isfinite(value) for key, value in metrics.items() if key.startswith("mismatch/"))
    again, _, _ = learnt({"epochs": 2}, False, steps=0)
    again.load_state_dict(learner.state_dict())
    for one in (learner, again):
        assert one.mismatch.asked(False, True)
    metrics = learner.learn(2, games).metrics
    assert (metrics["update/skipped"], metrics["update/dropped_tokens"]) == (1, 1)
