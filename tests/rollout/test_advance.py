"""Episodes that are played in advance: which they are, when they are played, and what becomes of failures."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch

from isentrope.core.types import RolloutPlan
from isentrope.rollout.advance import Played, Progress, Rollouts
from isentrope.rollout.dynamic import Sampled

CPU = torch.device("cpu")


class Game:
    """Notes which weights each step was played and planned with. `weights` is the policy, `held` the engine's."""

    def __init__(self) -> None:
        self.weights = self.held = 0
        self.played: dict[int, int] = {}
        self.planned: dict[int, int] = {}
        self.threads: set[str] = set()
        self.during: Callable[[Progress], None] = lambda progress: None

    def plan(self, step: int) -> RolloutPlan:
        assert threading.current_thread() is threading.main_thread()
        self.planned[step] = self.weights
        return RolloutPlan(notes={"step": float(step)})

    def play(self, step: int, plan: RolloutPlan, progress: Progress) -> Played:
        assert plan.notes == {"step": step}
        self.during(progress)
        self.played[step] = self.held
        self.threads.add(threading.current_thread().name)
        return Played(Sampled([], [], {"step": float(step)}), {"weights": float(self.held)}, {})

    def follow(self) -> None:
        self.held = self.weights

    def rollouts(self, ahead: bool, last: int = 5) -> Rollouts:
        return Rollouts(self.plan, self.play, self.follow, ahead, last, CPU)


def step(game: Game, rollouts: Rollouts, number: int) -> Played:
    played = rollouts.take(number, lambda finished: None)
    rollouts.begin_next(number)
    game.weights += 1  # the update
    rollouts.learnt()
    return played


@pytest.mark.parametrize("ahead", [False, True])
def test_which_weights_each_step_is_played_with(ahead: bool) -> None:
    game = Game()
    rollouts = game.rollouts(ahead)
    for number in range(1, 6):
        assert step(game, rollouts, number).sampled.metrics == {"step": number}
        if number == 3:
            rollouts.settle()  # for an evaluation: with the newest weights
            assert game.held == 3
    rollouts.close()
    # Step k begins with the weights of k - 1 updates. In advance: with those of k - 2, but for the first.
    assert game.played == ({1: 0, 2: 0, 3: 1, 4: 2, 5: 3} if ahead else {1: 0, 2: 1, 3: 2, 4: 3, 5: 4})
    assert game.planned == game.played
    assert 6 not in game.played
    assert any(name.startswith("isentrope-rollout") for name in game.threads) == ahead


def test_what_was_played_in_advance_is_in_the_state() -> None:
    game, again = Game(), Game()
    rollouts, restored = game.rollouts(True), again.rollouts(True)
    step(game, rollouts, 1)
    restored.load_state_dict(rollouts.state_dict())
    assert restored.take(2, lambda finished: None).metrics == {"weights": 0.0}
    assert again.played == {}  # not again
    assert rollouts.take(2, lambda finished: None).metrics == {"weights": 0.0}
    assert rollouts.state_dict() == {}
    for each in (rollouts, restored):
        each.close()


def test_an_error_in_the_thread_is_raised_where_the_episodes_are_wanted() -> None:
    game = Game()
    rollouts = game.rollouts(True)

    def fail(progress: Progress) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise ValueError("boom")

    game.during = fail
    step(game, rollouts, 1)
    with pytest.raises(ValueError, match="boom"):
        rollouts.take(2, lambda finished: None)
    rollouts.close()


def test_closing_ends_what_is_being_played_at_its_next_turn() -> None:
    game, begun = Game(), threading.Event()
    rollouts = game.rollouts(True)

    def endless(progress: Progress) -> None:
        while threading.current_thread() is not threading.main_thread():
            begun.set()
            progress(0)

    game.during = endless
    step(game, rollouts, 1)
    assert begun.wait(20)
    rollouts.close()
    assert 2 not in game.played
