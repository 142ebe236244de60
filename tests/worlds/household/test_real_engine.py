"""Against the real ALFWorld, command by command. It is slow: a few games are enough for everyday use."""

from __future__ import annotations

import random
from typing import Any

import pytest

from isentrope.worlds.household.engine import Engine
from isentrope.worlds.household.export import Language, game_data
from isentrope.worlds.household.game import KINDS, Game
from isentrope.worlds.household.generate import generate
from tests.worlds.household.house import HEAT, LOOK, TWO, house

INSTALL = 'needs the real engine: pip install "textworld[pddl]" alfworld==0.4.2'

pytestmark = pytest.mark.alfworld


def real_engine(game: Game) -> Any:
    textworld: Any = pytest.importorskip("textworld", reason=INSTALL)
    pytest.importorskip("alfworld", reason=INSTALL)
    pytest.importorskip("fast_downward", reason=INSTALL)
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
    from textworld.envs.pddl.pddl import PddlEnv

    real = AlfredDemangler(PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True)))
    real.load(game_data(game, Language.installed()))
    return real


def compare(game: Game, commands: int, seed: int) -> bool:
    """Play the walkthrough and then at random on both engines; whether the walkthrough won."""
    rng = random.Random(seed)
    real, engine = real_engine(game), Engine(game)
    state = real.reset()
    assert state.feedback == engine.introduction()
    won = False
    for number in range(len(game.walkthrough) + commands):
        assert list(state.admissible_commands) == list(engine.admissible())
        command = game.walkthrough[number] if number < len(game.walkthrough) else _any_command(engine, rng)
        state, _, _ = real.step(command)
        assert state.feedback == engine.step(command), command
        assert bool(state.won) == engine.won, command
        if number == len(game.walkthrough) - 1:
            won = engine.won
    return won


def _any_command(engine: Engine, rng: random.Random) -> str:
    """Mostly something other than walking about, sometimes nonsense."""
    listed = engine.admissible()
    if rng.random() < 0.1:
        return rng.choice(["", " look ", "Look", "go to nowhere 1", "take it", "é\x00", rng.choice(listed).upper()])
    acting = [command for command in listed if not command.startswith("go to ")]
    return rng.choice(acting if rng.random() < 0.7 else listed)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", ["small", "full"])
def test_the_real_engine_accepts_and_wins_generated_games(kind: str, size: str) -> None:
    assert compare(generate(kind, "unseen", 3, size), commands=15, seed=1)


@pytest.mark.parametrize("goal", [HEAT, TWO, LOOK])
def test_the_house_of_the_other_tests(goal: str) -> None:
    """What these tests work out by hand is what the real engine does."""
    compare(house(goal), commands=150, seed=2)
