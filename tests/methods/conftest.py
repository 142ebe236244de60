"""A small model that plays the toy world, and one run with it that no method takes part in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from isentrope.config.schema import AgentSettings, TaskSettings
from isentrope.core.types import Episode
from isentrope.learning.optimiser import Optimiser
from isentrope.learning.sft_step import imitate
from isentrope.models.llama import Llama, Shape
from isentrope.models.policy import Policy
from isentrope.models.sources.pocket import PocketTokens
from isentrope.rollout.demonstrations import demonstrate
from isentrope.worlds.contract import Instance, Move, View
from tests.methods.runs import play_run
from tests.toys import ACTIONS, ToyOptions, ToyWorld

PHRASES = ["One more.", "add", "take", " one", "look", "You see a number. The number is", " 1", "reach", "Nothing"]


class Dice:
    """Plays at random, so that the model that imitates it has something to learn."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def start(self, view: View, instance: Instance) -> None: ...

    def act(self, view: View) -> Move:
        return Move("One more.", str(self.rng.choice(ACTIONS)))


def games(tokens: PocketTokens) -> list[Episode]:
    world, found = ToyWorld(ToyOptions(goal=1)), []
    for seed in range(6):
        order, context = ("think_act", "act_think", "act")[seed % 3], ("full", "window")[seed % 2]
        agent = AgentSettings(prompt="brief", order=order, context=context)
        instance = world.instance("train", seed // 2)
        found.append(demonstrate(world, Dice(seed), tokens, agent, TaskSettings(max_turns=4), instance))
    return found


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pocket model that knows the forms of a response and acts at random."""
    folder = tmp_path_factory.mktemp("player")
    tokens = PocketTokens(PHRASES)
    llama = Llama(Shape(vocabulary=tokens.size, width=16, layers=1, heads=2, kv_heads=1, inner=32))
    llama.initialise(torch.Generator().manual_seed(5))
    policy = Policy(llama, tokens, torch.device("cpu"), torch.float32)
    optimiser, played = Optimiser(llama.parameters()), games(tokens)
    for _ in range(50):
        imitate(policy, optimiser, played, 2e-2, 10**6)
    policy.save(folder)
    return folder


@pytest.fixture(scope="session")
def baseline(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without methods."""
    return play_run(model, tmp_path_factory.mktemp("baseline") / "run")
