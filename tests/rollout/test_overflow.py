"""Episodes whose conversations lose turns: what is recorded, stored, counted and learnt from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from isentrope.config.schema import AgentSettings, TaskSettings
from isentrope.core.types import Episode, RolloutPlan
from isentrope.engines.torch import TorchEngine
from isentrope.learning.packing import micro_batches
from isentrope.learning.tokens import flatten
from isentrope.metrics.episodes import rollout_metrics
from isentrope.models.load import load_folder
from isentrope.models.policy import Policy
from isentrope.models.sources.find import POCKET
from isentrope.rollout.collector import Runner
from isentrope.rollout.demonstrations import demonstrations, longest_sequence
from isentrope.rollout.episode import Seat
from isentrope.runs.episodes import read_episodes, write_episodes
from isentrope.worlds.pool.open import LocalTasks
from tests.models.helpers import small_policy
from tests.toys import ToyOptions, ToyWorld

AGENT = AgentSettings(prompt="brief", max_response=24, max_context=260)
TASK = TaskSettings(max_turns=14)


def play(policy: Policy, agent: AgentSettings, count: int = 3) -> list[Episode]:
    world = ToyWorld(ToyOptions(goal=9))
    runner = Runner(TorchEngine(policy), LocalTasks(world, count), agent, TASK, batch=count)
    seats = [Seat(world.instance("train", i), i, 0) for i in range(count)]
    return runner.play(seats, RolloutPlan(), seed=0, name="test")


@torch.no_grad()
@pytest.mark.parametrize("context", ["full", "window"])
@pytest.mark.parametrize("pocket", [False, True])
def test_the_learner_scores_exactly_what_was_sampled(context: str, pocket: bool) -> None:
    policy = load_folder(POCKET, torch.device("cpu"), "float32") if pocket else small_policy()
    agent = replace(AGENT, context=context, window=6, max_context=260 if context == "full" else 180)
    episodes = play(policy, agent)
    turns = [turn for episode in episodes for turn in episode.turns]
    assert any(turn.dropped for turn in turns)
    if context == "full":
        anew = [turn for episode in episodes for turn in episode.turns[1:] if not turn.continues]
        assert anew
        assert all(turn.dropped for turn in anew)
        assert len(anew) < len(turns) / 2
    sequences, tokens = flatten(episodes)
    for batch in micro_batches(sequences, tokens, micro_tokens=1024):
        stats = policy.stats(batch)
        np.testing.assert_allclose(stats.logp_N.numpy(), tokens.logp_N[batch.number_N], atol=2e-4)
        np.testing.assert_allclose(stats.entropy_N.numpy(), tokens.entropy_N[batch.number_N], atol=2e-4)


@pytest.fixture(scope="module")
def episodes() -> list[Episode]:
    return play(small_policy(), AGENT)


def test_no_conversation_outgrows_the_limit(episodes: list[Episode]) -> None:
    for episode in episodes:
        assert episode.stop == "turn_limit"
        assert longest_sequence(episode) <= AGENT.max_context


def test_where_even_the_newest_message_does_not_fit_the_episode_ends() -> None:
    for episode in play(small_policy(), replace(AGENT, max_context=100)):
        assert episode.stop == "context_limit"
        assert "leave no room" in episode.detail


def test_turns_left_out_are_counted(episodes: list[Episode]) -> None:
    dropped = [turn.dropped for episode in episodes for turn in episode.turns]
    found = rollout_metrics(episodes)
    assert found["context/dropped"] == pytest.approx(np.mean(dropped))
    assert found["context/shortened"] == pytest.approx(np.mean([d > 0 for d in dropped]))
    assert 0 < found["context/shortened"] < 1


def test_they_are_stored_and_files_from_before_can_be_read(episodes: list[Episode], tmp_path: Path) -> None:
    write_episodes(tmp_path / "new.parquet", episodes)
    again = read_episodes(tmp_path / "new.parquet")
    assert [t.dropped for e in again for t in e.turns] == [t.dropped for e in episodes for t in e.turns]
    table = pq.read_table(tmp_path / "new.parquet")
    pq.write_table(table.drop_columns(["dropped"]), tmp_path / "old.parquet")
    old = read_episodes(tmp_path / "old.parquet")
    assert {turn.dropped for episode in old for turn in episode.turns} == {0}
    assert [len(episode.turns) for episode in old] == [len(episode.turns) for episode in episodes]


@pytest.mark.parametrize(("overflow", "found"), [("drop", 1), ("end", 0)])
def test_expert_games_follow_the_same_rule(overflow: str, found: int) -> None:
    world = ToyWorld(ToyOptions(goal=9))
    agent = replace(AGENT, overflow=overflow)
    games = list(demonstrations(world, small_policy().tokenizer, agent, TASK, [world.instance("train", 0)], 0))
    assert len(games) == found
    for game in games:
        assert game.turns[-1].dropped > 0
        assert longest_sequence(game) <= agent.max_context
    too_small = replace(agent, max_context=90)
    assert not list(demonstrations(world, small_policy().tokenizer, too_small, TASK, [world.instance("train", 0)], 0))
