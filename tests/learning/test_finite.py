"""Tokens whose numbers are not finite: they cost themselves, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from isentrope.config.kinds import ClipOptions
from isentrope.config.schema import Choice, CriticSettings, LearnSettings, RunConfig, RunSettings
from isentrope.core.errors import TrainError
from isentrope.core.method import Method
from isentrope.core.types import Episode, Floats, StepTokens
from isentrope.learning import learner as learner_of
from isentrope.learning.advantages.grpo import grpo
from isentrope.learning.learner import Learner, Update
from isentrope.learning.packing import micro_batches
from isentrope.learning.tokens import finite, flatten, only, renumbered, rows, spread
from isentrope.methods.actre import ActRe
from isentrope.methods.aem import Aem
from isentrope.methods.ea import Ea
from isentrope.methods.entropy_bonus import EntropyBonus, EntropyBonusOptions
from isentrope.methods.epo import Epo, EpoOptions
from isentrope.methods.seal import Seal, SealOptions
from tests.builders.episodes import make_episodes
from tests.models.helpers import small_policy
from tests.reference import naive

SETTINGS = LearnSettings(lr=1e-2, warmup=0.0, kl=0.05, old_logprobs="sampler", micro_tokens=200)
BAD = 5  # number of the token, counted over the whole step


def poisoned(episodes: list[Episode], field: str, value: float, numbers: tuple[int, ...] = (BAD,)) -> list[Episode]:
    """These tokens, counted over the whole step, with another value."""
    at, found = 0, list[Episode]()
    for episode in episodes:
        turns: list[Any] = []
        for turn in episode.turns:
            values = getattr(turn, field).copy()
            inside = [number - at for number in numbers if 0 <= number - at < len(values)]
            values[inside] = value
            at += len(values)
            turns.append(replace(turn, **{field: values}))
        found.append(replace(episode, turns=tuple(turns)))
    return found


def learner_with(s: LearnSettings, methods: list[Method], steps: int = 1) -> Learner:
    config = RunConfig(run=RunSettings(steps=steps), learn=s, critic=CriticSettings(kind="head", trunk=0.5))
    return Learner(small_policy(), small_policy(seed=9) if s.kl else None, config, methods)


def gradient(learner: Learner, episodes: list[Episode]) -> tuple[torch.Tensor, dict[str, float]]:
    """Of every update of a step, taken before the optimiser uses it; and the metrics."""
    taken, update = gradient_and_update(learner, episodes)
    return taken, update.metrics


def gradient_and_update(learner: Learner, episodes: list[Episode]) -> tuple[torch.Tensor, Update]:
    taken: list[torch.Tensor] = []

    def keep(loss: float, rate: float) -> float:
        taken.extend(p.grad.flatten().clone() for p in learner.optimiser.parameters if p.grad is not None)
        learner.optimiser.adam.zero_grad()
        return 0.0

    learner.optimiser.step = keep  # type: ignore[method-assign]
    update = learner.learn(1, episodes)
    return torch.cat(taken), update


def written_down(episodes: list[Episode], s: LearnSettings, left_out: set[int]) -> torch.Tensor:
    """The loss over the other tokens in plain loops, from the log-probs of all of them."""
    policy, reference, clip = small_policy(), small_policy(seed=9), ClipOptions()
    sequences, tokens = flatten(episodes)
    (batch,) = micro_batches(sequences, tokens, micro_tokens=10**6)
    place = np.argsort(batch.number_N)
    logp, ref = policy.stats(batch).logp_N[place], reference.stats(batch).logp_N[place].detach()
    advantage = grpo(np.array([e.ret for e in episodes]), np.array([e.group for e in episodes]))
    kept = [n for n in range(len(place)) if n not in left_out]
    losses: list[Any] = []
    for n in kept:
        a, old = float(advantage[tokens.episode_N[n]]), torch.from_numpy(tokens.logp_N)
        if s.loss.kind == "policy_gradient":
            loss = -a * logp[n]
        else:
            ratio = torch.exp(logp[n] - old[n])
            if s.loss.kind == "sequence":
                mates = [m for m in kept if tokens.turn_N[m] == tokens.turn_N[n]]
                mean = torch.stack([logp[m].detach() - old[m] for m in mates]).mean()
                ratio = torch.exp(mean) * torch.exp(logp[n] - logp[n].detach())
            loss = -torch.minimum(ratio * a, ratio.clamp(1 - clip.clip_low, 1 + clip.clip_high) * a)
        d = logp[n] - ref[n]
        losses.append(loss + s.kl * (torch.exp(-d) - 1 + d))
    where = ([int(tokens.episode_N[n]) for n in kept], [int(tokens.turn_N[n]) for n in kept])
    total: Any = naive.mean_over(losses, *where, s.aggregation)
    return torch.cat([g.flatten() for g in torch.autograd.grad(total, list(policy.module.parameters()))])


@pytest.mark.parametrize("loss", ["clip", "policy_gradient", "sequence"])
@pytest.mark.parametrize("aggregation", ["token", "turn", "sequence", "episode"])
@pytest.mark.parametrize(("field", "value"), [("logprobs", np.nan), ("logprobs", -np.inf), ("entropies", np.nan)])
def test_the_gradient_is_that_of_the_other_tokens(loss: str, aggregation: str, field: str, value: float) -> None:
    episodes = make_episodes(3)
    s = replace(SETTINGS, loss=Choice(loss), aggregation=aggregation)
    ours, metrics = gradient(learner_with(s, []), poisoned(episodes, field, value))
    theirs = written_down(episodes, s, {BAD})
    assert float(theirs.norm()) > 0.01
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
    count = sum(len(turn.response_ids) for e in episodes for turn in e.turns)
    assert (metrics["update/dropped_tokens"], metrics["update/dropped_share"]) == (1, 1 / count)
    assert metrics["update/skipped"] == 0


METHODS: dict[str, Callable[[], Method]] = {
    "entropy_bonus": lambda: EntropyBonus(EntropyBonusOptions(coefficient=0.3)),
    "epo": lambda: _with_history(Epo(EpoOptions(coefficient=0.3, kappa_high=0.5), steps=4)),
    "ea": Ea,
    "aem": Aem,
    "seal": lambda: Seal(SealOptions(alpha=0.5)),
    "seal-mixed": lambda: Seal(SealOptions(alpha=0.5, groups="mixed", label="advantage", state="before")),
    "actre": lambda: ActRe(steps=4),
}
CHANGES: dict[str, dict[str, Any]] = {
    "plain": {},
    "critic": {"advantage": Choice("gae", {"divide_by_std": True})},
    "kl-in-reward": {"kl_in": "reward"},
    "corrected": {"old_logprobs": "recompute", "mismatch": "truncate"},
    "corrected-by-response": {"old_logprobs": "recompute", "mismatch": "truncate", "loss": Choice("sequence")},
    "shared": {"share_prefixes": "on", "row_tokens": 120},
    "minis": {"mini_batches": 2, "epochs": 2},
}


def _with_history(epo: Epo) -> Epo:
    epo.history = [0.4, 0.5]
    return epo


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", [*METHODS, "all"])
def test_nothing_else_is_poisoned(name: str, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last bit what an update on sound numbers is that is told to leave the token out, for every method."""
    episodes, s = make_episodes(11), replace(SETTINGS, **CHANGES[change])
    chosen = list(METHODS) if name == "all" else [name]
    names = [one for one in chosen if one != "seal-mixed" or name != "all"]

    def update(games: list[Episode]) -> tuple[torch.Tensor, Update, Learner]:
        learner = learner_with(s, [METHODS[one]() for one in names], 4)
        return *gradient_and_update(learner, games), learner

    found = [update(poisoned(episodes, *what)) for what in (("logprobs", np.nan), ("entropies", np.inf))]
    whole: list[int] = []

    def told(first_N: Floats, *others: Floats | None) -> NDArray[np.bool_]:
        whole.append(len(first_N))
        return np.arange(len(first_N)) != BAD if len(whole) == 1 else finite(first_N, *others)

    monkeypatch.setattr(learner_of, "finite", told)
    expected, sound_update, sound = update(episodes)
    assert torch.isfinite(expected).all()
    assert float(expected.norm()) > 1e-3
    for taken, seen, learner in found:
        assert torch.equal(taken, expected)
        assert seen.metrics == sound_update.metrics
        for column, values in vars(sound_update.scores).items():
            np.testing.assert_array_equal(getattr(seen.scores, column), values)
        for one, other in zip(learner.methods, sound.methods, strict=True):
            assert str(one.state_dict()) == str(other.state_dict())


def test_a_reference_that_fails_for_a_token() -> None:
    episodes, learner = make_episodes(3), learner_with(SETTINGS, [])
    scored = learner.score

    def failing(policy: Any, sequences: Any, tokens: StepTokens) -> Floats:
        values_N = scored(policy, sequences, tokens)
        values_N[BAD] = np.inf
        return values_N

    learner.score = failing  # type: ignore[method-assign]
    ours, metrics = gradient(learner, episodes)
    torch.testing.assert_close(ours, written_down(episodes, SETTINGS, {BAD}), rtol=1e-3, atol=1e-4)
    assert metrics["update/dropped_tokens"] == 1


def test_an_advantage_that_is_none() -> None:
    class Odd(Method):
        def shape(self, step: int, tokens: StepTokens, advantage_N: Floats) -> Floats:
            return np.where(np.arange(len(advantage_N)) == BAD, np.float32(np.nan), advantage_N)

    episodes, learner = make_episodes(3), learner_with(SETTINGS, [Odd()])
    ours, metrics = gradient(learner, episodes)
    torch.testing.assert_close(ours, written_down(episodes, SETTINGS, {BAD}), rtol=1e-3, atol=1e-4)
    assert metrics["update/dropped_tokens"] == 1
    told = learner.credit(1, episodes).advantage_N
    assert np.isfinite(told).all()
    assert len(told) == sum(len(turn.response_ids) for e in episodes for turn in e.turns)


def test_a_whole_response_without_numbers() -> None:
    episodes = make_episodes(3)
    _, tokens = flatten(episodes)
    lost = tuple(np.flatnonzero(tokens.turn_N == tokens.turn_N[BAD]).tolist())
    ours, metrics = gradient(learner_with(SETTINGS, []), poisoned(episodes, "logprobs", np.nan, lost))
    torch.testing.assert_close(ours, written_down(episodes, SETTINGS, set(lost)), rtol=1e-3, atol=1e-4)
    assert metrics["update/dropped_tokens"] == len(lost)


@pytest.mark.parametrize("change", CHANGES)
def test_no_token_with_numbers(change: str) -> None:
    """Left out and counted as an update that was not finite; too many in a row end the run, with the reason."""
    s = replace(SETTINGS, max_skips=2 * CHANGES[change].get("epochs", 1) * CHANGES[change].get("mini_batches", 1))
    s = replace(s, **CHANGES[change])
    learner = learner_with(s, [make() for name, make in METHODS.items() if name != "seal-mixed"], 9)
    before = [p.clone() for p in learner.policy.module.parameters()]
    episodes = make_episodes(3)
    everything = poisoned(episodes, "logprobs", np.nan, tuple(range(1000)))
    for step in (1, 2):
        metrics = learner.learn(step, everything).metrics
        assert metrics["update/dropped_share"] == 1
        assert metrics["update/skipped"] == step * s.epochs * s.mini_batches
        assert metrics["update/count"] == 0
    assert all(torch.equal(a, b) for a, b in zip(before, learner.policy.module.parameters(), strict=True))
    with pytest.raises(TrainError, match="in a row had no token to learn from: a log-prob, entropy or advantage"):
        learner.learn(3, everything)
    assert learner_with(s, []).learn(1, episodes).metrics["update/skipped"] == 0


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1000), st.booleans(), st.booleans(), st.floats(0, 1))
def test_tables_without_some_tokens(seed: int, full: bool, share: bool, part: float) -> None:
    episodes = make_episodes(seed, full=full)
    sequences, table = flatten(episodes)
    keep_N = np.random.default_rng(seed).random(len(table.logp_N)) < part
    tokens, left = rows(table, keep_N), renumbered(sequences, keep_N)
    np.testing.assert_array_equal(spread(tokens.logp_N, keep_N, np.nan)[keep_N], table.logp_N[keep_N])
    assert np.isnan(spread(tokens.logp_N, keep_N, np.nan)[~keep_N]).all()
    numbers = [n for sequence in only(sequences, keep_N) for n in sequence.tokens.tolist()]
    assert numbers == np.flatnonzero(keep_N).tolist()
    pieces = list(micro_batches(left, tokens, micro_tokens=120, share=share))
    seen = [n for piece in pieces for n in piece.number_N.tolist()]
    assert sorted(seen) == list(range(int(keep_N.sum())))
    for piece in pieces:
        torch.testing.assert_close(piece.ids_BT[piece.row_N, piece.col_N], piece.target_N)
        np.testing.assert_array_equal(piece.target_N.numpy(), tokens.target_N[piece.number_N])
    for mode in ("token", "turn", "sequence", "episode"):
        total = sum(float(piece.weights[mode].sum()) for piece in pieces)
        assert total == pytest.approx(1 if keep_N.any() else 0, abs=1e-5)
