"""Rewards by a function of your own (`task.reward`) instead of the world's.

    def short_answers(episode):                 # isentrope.core.types.Episode
        return float(episode.success) - 0.01 * len(episode.turns)

A number is the return of the whole episode, given at its last turn; a list has one reward for each turn. A function
that raises, or gives something else, costs its episode: it is recorded as a failure and not learnt from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

from isentrope.config.parts import Parts
from isentrope.core.errors import ConfigError
from isentrope.core.types import FAILURES, Episode
from isentrope.worlds.pool.sanitize import LARGEST_REWARD, in_words

REWARDS = Parts("reward function", "isentrope.rewards")
RewardFunction = Callable[[Episode], object]


def load_reward(name: str) -> RewardFunction | None:
    """The function that `task.reward` names; None: rewards are the world's own."""
    if not name:
        return None
    function = REWARDS.load(name)
    if not callable(function):
        raise ConfigError(f"task.reward = {name!r} is {function!r:.60}, expected a function of an episode")
    return cast(RewardFunction, function)


def rewarded(episode: Episode, function: RewardFunction | None) -> Episode:
    """The episode with the function's rewards."""
    if function is None or episode.stop in FAILURES or not episode.turns:
        return episode
    try:
        rewards = _rewards(function(episode), len(episode.turns))
    except Exception as error:  # somebody's code, which may raise anything
        detail = f"the reward function raised {in_words(error)}"
        return replace(episode, stop="task_error", detail=detail, success=False)
    turns = tuple(replace(turn, reward=reward) for turn, reward in zip(episode.turns, rewards, strict=True))
    return replace(episode, turns=turns)


def _rewards(given: object, turns: int) -> list[float]:
    if hasattr(given, "__float__") and getattr(given, "ndim", 0) == 0:  # arrays and tensors of one number too
        values = [0.0] * (turns - 1) + [float(cast(float, given))]
    else:
        values = [float(value) for value in cast("Sequence[float]", given)]
    if len(values) != turns:
        raise ValueError(f"it gave {len(values)} rewards for {turns} turns")
    for value in values:
        if not abs(value) <= LARGEST_REWARD:  # NaN compares with nothing
            raise ValueError(f"it gave the reward {value}, expected a number of at most {LARGEST_REWARD:,.0f} in size")
    return values
