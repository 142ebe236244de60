"""MiniGrid's own bot as an expert for the BabyAI levels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from isentrope.errors import TaskError
from isentrope.tasks.contract import Instance, Move, View
from isentrope.tasks.needs import require

if TYPE_CHECKING:
    from isentrope.tasks.adapters.gym import GymWorld

_REASONS = {
    "turn left": "I turn left to look or go that way.",
    "turn right": "I turn right to look or go that way.",
    "go forward": "The way is free, I go on.",
    "pick up": "What I want is in front of me, I take it.",
    "drop": "I put down what I carry.",
    "toggle": "A door or a box is in front of me, I open it.",
    "done": "The mission is complete.",
}


class BabyAIExpert:
    """Plays a copy of the level beside the task: the bot needs the level itself, not its text."""

    def __init__(self, world: GymWorld) -> None:
        self._world = world
        self._bots = require("minigrid.utils.baby_ai_bot", "gym", "the BabyAI expert")
        self._env: Any = None

    def start(self, view: View, instance: Instance) -> None:
        if self._env is not None:
            self._env.close()
        self._env = self._world.make()
        self._observation = self._world.reset(self._env, instance)[0]
        self._bot: Any = self._bots.BabyAIBot(self._env)
        self._mission = view.goal

    def act(self, view: View) -> Move:
        if self._env is None:
            raise TaskError("the expert was asked before it was told which game is played")
        if self._world.describe is not None and view.text != self._world.describe(self._observation):
            raise TaskError("the game went another way than the expert's")
        number = int(self._bot.replan())
        self._observation = self._env.step(number)[0]
        name = (self._world.actions or ())[number]
        return Move(f"{self._mission} {_REASONS.get(name, '')}".strip(), name)
