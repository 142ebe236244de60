"""From episodes to one advantage per response token: every estimator put together once more from the naive parts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from isentrope.config.schema import Choice, LearnSettings
from isentrope.core.types import Episode
from isentrope.learning.credit import assign_credit
from isentrope.learning.tokens import flatten
from tests.builders.episodes import make_episodes
from tests.reference import naive, naive_credit

SEEDS = range(4)
LONGEST = 6  # tokens of a made-up response
every_seed = pytest.mark.parametrize("seed", SEEDS)


def played(seed: int) -> list[Episode]:
    """Made-up episodes in three rooms, so that states come up again."""
    rng = np.random.default_rng(seed)
    rooms = ["You are in the kitchen.", "You are in the chicken.", "A hall."]
    result: list[Episode] = []
    for episode in make_episodes(seed, groups=3, size=4):
        seen = [rooms[int(rng.integers(3))] for _ in episode.turns]
        turns = tuple(replace(turn, anchor=s, observation=s) for turn, s in zip(episode.turns, seen, strict=True))
        result.append(replace(episode, turns=turns))
    return result


class Written:
    """The same episodes as plain lists."""

    def __init__(self, episodes: list[Episode]) -> None:
        self.rewards = [turn.reward for episode in episodes for turn in episode.turns]
        self.lengths = [len(turn.response_ids) for episode in episodes for turn in episode.turns]
        self.texts = [turn.observation for episode in episodes for turn in episode.turns]
        self.owners = [i for i, episode in enumerate(episodes) for _ in episode.turns]
        self.groups = [episode.group for episode in episodes]
        self.counts = [len(episode.turns) for episode in episodes]
        self.turns = [u for u, length in enumerate(self.lengths) for _ in range(length)]  # of every token

    def returns(self) -> list[float]:
        owned = range(len(self.groups))
        return [sum(r for r, owner in zip(self.rewards, self.owners, strict=True) if owner == i) for i in owned]

    def on_tokens(self, per_episode: list[float]) -> list[float]:
        return [per_episode[self.owners[turn]] for turn in self.turns]


def found(episodes: list[Episode], settings: LearnSettings, **more: np.ndarray) -> np.ndarray:
    _, tokens = flatten(episodes)
    return assign_credit(episodes, tokens, settings, LONGEST, **more).advantage_N


@every_seed
def test_one_number_for_an_episode(seed: int) -> None:
    episodes = played(seed)
    written = Written(episodes)
    returns, groups = written.returns(), written.groups
    cases = {
        "reinforce": naive.reinforce(returns),
        "rloo": naive.rloo(returns, groups),
        "grpo": naive.grpo(returns, groups),
    }
    for name, expected in cases.items():
        settings = LearnSettings(advantage=Choice(name))
        np.testing.assert_allclose(found(episodes, settings), written.on_tokens(expected), rtol=1e-5, atol=1e-6)
    settings = LearnSettings(advantage=Choice("grpo", {"divide_by_std": False}))
    expected = written.on_tokens(naive.grpo(returns, groups, divide_by_std=False))
    np.testing.assert_allclose(found(episodes, settings), expected, rtol=1e-5, atol=1e-6)


@every_seed
@pytest.mark.parametrize("divide", [True, False])
def test_statistics_over_steps(seed: int, divide: bool) -> None:
    episodes = played(seed)
    written = Written(episodes)
    expected = naive.grpo_over_steps(written.returns(), written.groups, written.counts, divide)
    settings = LearnSettings(advantage=Choice("grpo", {"stats": "steps", "divide_by_std": divide}))
    np.testing.assert_allclose(found(episodes, settings), written.on_tokens(expected), rtol=1e-5, atol=1e-6)


@every_seed
@pytest.mark.parametrize("anchor", ["exact", "similar"])
@pytest.mark.parametrize("divide", [True, False])
@pytest.mark.parametrize("form", ["gigpo", "gigpo_mixed"])
def test_gigpo(seed: int, form: str, divide: bool, anchor: str) -> None:
    episodes = played(seed)
    written = Written(episodes)
    groups = [written.groups[owner] for owner in written.owners]
    if anchor == "exact":
        states = naive_credit.exact_anchors(groups, written.texts)
    else:
        states = naive_credit.similar_anchors(groups, written.texts, 0.8)
    naive_form = naive_credit.gigpo if form == "gigpo" else naive_credit.gigpo_mixed
    turns = naive_form(written.rewards, written.owners, written.groups, states, 0.95, 0.5, divide)
    settings = LearnSettings(
        advantage=Choice(
            form,
            {"discount": 0.95, "step_weight": 0.5, "divide_by_std": divide, "anchor": anchor, "anchor_similarity": 0.8},
        )
    )
    expected = [turns[turn] for turn in written.turns]
    np.testing.assert_allclose(found(episodes, settings), expected, rtol=1e-5, atol=1e-6)


@every_seed
@pytest.mark.parametrize("credit", ["turn", "token"])
@pytest.mark.parametrize("whitened", [True, False])
def test_gae(seed: int, credit: str, whitened: bool) -> None:
    episodes = played(seed)
    written = Written(episodes)
    values = np.random.default_rng(seed).normal(size=len(written.turns)).astype(np.float32)
    owners = [written.owners[turn] for turn in written.turns]
    form = naive_credit.turn_credit if credit == "turn" else naive_credit.token_credit
    advantages, returns = form(written.rewards, values.tolist(), written.turns, owners, 0.95, 0.9)
    expected = naive_credit.whiten(advantages) if whitened else advantages
    settings = LearnSettings(
        advantage=Choice("gae", {"discount": 0.95, "gae_lambda": 0.9, "credit": credit, "divide_by_std": whitened})
    )
    _, tokens = flatten(episodes)
    result = assign_credit(episodes, tokens, settings, LONGEST, value_N=values)
    np.testing.assert_allclose(result.advantage_N, expected, rtol=1e-5, atol=1e-5)
    assert result.return_N is not None
    np.testing.assert_allclose(result.return_N, returns, rtol=1e-5, atol=1e-5)


@every_seed
def test_what_is_taken_off_the_rewards(seed: int) -> None:
    """A penalty per token and one for long responses: as if the turns had earned less."""
    episodes = played(seed)
    written = Written(episodes)
    penalty = np.random.default_rng(seed).normal(size=len(written.turns)).astype(np.float32)
    for place, turn in enumerate(written.turns):
        written.rewards[turn] -= float(penalty[place])
    for turn, length in enumerate(written.lengths):
        written.rewards[turn] += 2.5 * naive_credit.overlong_penalty(length, LONGEST, 3)
    expected = written.on_tokens(naive.rloo(written.returns(), written.groups))
    settings = LearnSettings(advantage=Choice("rloo"), overlong=0.5, overlong_penalty=2.5)
    np.testing.assert_allclose(found(episodes, settings, penalty_N=penalty), expected, rtol=1e-5, atol=1e-5)


@every_seed
def test_gigpos_own_numbers(seed: int) -> None:
    episodes = played(seed)
    _, tokens = flatten(episodes)
    credit = assign_credit(episodes, tokens, LearnSettings(advantage=Choice("gigpo", {"step_weight": 2.0})), LONGEST)
    states = [(episode.group, turn.anchor) for episode in episodes for turn in episode.turns]
    assert credit.metrics["gigpo/shared"] == pytest.approx(np.mean([states.count(state) > 1 for state in states]))
    alone = assign_credit(episodes, tokens, LearnSettings(advantage=Choice("gigpo", {"step_weight": 0.0})), LONGEST)
    part_N = np.abs(credit.advantage_N - alone.advantage_N)
    first_N = np.unique(tokens.turn_N, return_index=True)[1]  # one token of each turn
    assert credit.metrics["gigpo/step_part"] == pytest.approx(part_N[first_N].mean(), rel=1e-5)
    assert "gigpo/shared" not in alone.metrics


@every_seed
def test_the_penalty_for_length_is_counted(seed: int) -> None:
    episodes = played(seed)
    _, tokens = flatten(episodes)
    settings = LearnSettings(overlong=0.5, overlong_penalty=3.0)
    metrics = assign_credit(episodes, tokens, settings, LONGEST).metrics
    taken = [-3 * naive_credit.overlong_penalty(length, LONGEST, 3) for length in Written(episodes).lengths]
    assert metrics["overlong/mean"] == pytest.approx(np.mean(taken))
    assert metrics["overlong/share"] == pytest.approx(np.mean([one > 0 for one in taken]))
    assert 0 < metrics["overlong/share"] < 1
    assert "overlong/mean" not in assign_credit(episodes, tokens, LearnSettings(), LONGEST).metrics
