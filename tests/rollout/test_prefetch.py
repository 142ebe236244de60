"""Episodes that are played ahead: which they are, when they are played, and what becomes of failures."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
import torch

from isentrope.config.schema import RunConfig
from isentrope.core.engine import Engine
from isentrope.core.types import RolloutPlan
from isentrope.rollout import prefetch
from isentrope.rollout.collector import Collector, Rollout
from isentrope.rollout.dynamic_sampling import Groups
from isentrope.rollout.episode import EpisodesEnded
from isentrope.rollout.prefetch import Prefetch
from isentrope.rollout.sampler import InTurn


class Policies:
    device = torch.device("cpu")


@pytest.fixture(autouse=True)
def without_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetch, "follow", lambda sampler, policy: None)


class Game(Collector):
    """Notes which weights each step was played and planned with. `weights` is the policy, `held` the engine's."""

    def __init__(self, last: int = 5) -> None:
        config = RunConfig()
        self.config = replace(config, run=replace(config.run, steps=last))
        self.sampler, self.engine = InTurn(), cast("Engine", None)
        self.weights = self.held = 0
        self.played: dict[int, int] = {}
        self.planned: dict[int, int] = {}
        self.threads: set[str] = set()
        self.during: Callable[[EpisodesEnded], None] = lambda progress: None

    def plan(self, step: int) -> RolloutPlan:
        assert threading.current_thread() is threading.main_thread()
        self.planned[step] = self.weights
        return RolloutPlan(notes={"step": float(step)})

    def play_step(self, step: int, plan: RolloutPlan, progress: EpisodesEnded) -> Rollout:
        assert plan.notes == {"step": step}
        self.during(progress)
        self.played[step] = self.held
        self.threads.add(threading.current_thread().name)
        return Rollout(Groups([], [], {"step": float(step)}), {"weights": float(self.held)}, {})

    def refresh(self) -> None:
        self.held = self.weights

    def close(self) -> None:
        pass

    def ahead(self) -> Prefetch:
        policies: Any = Policies()
        return Prefetch(self, policies, policies)


def step(game: Game, rollouts: Collector | Prefetch, number: int) -> Rollout:
    played = rollouts.collect(number)
    game.weights += 1  # the update
    rollouts.refresh()
    return played


@pytest.mark.parametrize("ahead", [False, True])
def test_which_weights_each_step_is_played_with(ahead: bool) -> None:
    game = Game()
    rollouts = game.ahead() if ahead else game
    for number in range(1, 6):
        assert step(game, rollouts, number).groups.metrics == {"step": number}
        if number == 3:
            assert rollouts.settle() is game  # for an evaluation: with the newest weights
            assert game.held == 3
    rollouts.close()
    # Step k begins with the weights of k - 1 updates. In advance: with those of k - 2, but for the first.
    assert game.played == ({1: 0, 2: 0, 3: 1, 4: 2, 5: 3} if ahead else {1: 0, 2: 1, 3: 2, 4: 3, 5: 4})
    assert game.planned == game.played
    assert 6 not in game.played
    assert any(name.startswith("isentrope-rollout") for name in game.threads) == ahead


def test_what_was_played_in_advance_is_in_the_state() -> None:
    game, again = Game(), Game()
    rollouts, restored = game.ahead(), again.ahead()
    step(game, rollouts, 1)
    restored.load_state_dict(rollouts.state_dict())
    again.config = game.config = Game(last=2).config  # nothing comes after
    assert restored.collect(2).metrics == {"weights": 0.0}
    assert again.played == {}  # not again
    assert rollouts.collect(2).metrics == {"weights": 0.0}
    assert rollouts.state_dict() == game.state_dict() == {}
    for each in (rollouts, restored):
        each.close()


def test_an_error_in_the_thread_is_raised_where_the_episodes_are_wanted() -> None:
    game = Game()
    rollouts = game.ahead()

    def fail(progress: EpisodesEnded) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise ValueError("boom")

    game.during = fail
    step(game, rollouts, 1)
    with pytest.raises(ValueError, match="boom"):
        rollouts.collect(2)
    rollouts.close()


def test_closing_ends_what_is_being_played_at_its_next_turn() -> None:
    game, begun = Game(), threading.Event()
    rollouts = game.ahead()

    def endless(progress: EpisodesEnded) -> None:
        while threading.current_thread() is not threading.main_thread():
            begun.set()
            progress(0)

    game.during = endless
    step(game, rollouts, 1)
    assert begun.wait(20)
    rollouts.close()
    assert 2 not in game.played
