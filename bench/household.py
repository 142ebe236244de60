"""Steps a second of the household engine, and of the real ALFWorld engine in the same run.

    python bench/household.py [--steps 20000] [--real-steps 60]

Both play the same generated games with the same random commands and list the admissible commands after each.
The bar is 1,000 times the real engine.
"""

from __future__ import annotations

import argparse
import random
import time
from typing import Any

from isentrope.core.errors import TaskError
from isentrope.worlds.household.engine import Engine
from isentrope.worlds.household.export import Language, game_data
from isentrope.worlds.household.game import KINDS, Game
from isentrope.worlds.household.generate import generate
from isentrope.worlds.household.world import HouseholdOptions, HouseholdWorld

BAR = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20000, help="steps of our engine per game")
    parser.add_argument("--real-steps", type=int, default=60, help="steps of the real engine per game")
    arguments = parser.parse_args()
    games = [generate(kind, "train", 0, "full") for kind in KINDS]
    ours = sum(time_ours(game, arguments.steps) for game in games)
    rate = len(games) * arguments.steps / ours
    print(f"household engine   {rate:12,.0f} steps/s, admissible commands included")
    for size in ("small", "medium", "full"):
        print(f"generate, {size:8} {time_generating(size) * 1000:12.2f} ms a game, walkthrough checked")
    try:
        theirs = sum(time_real(game, arguments.real_steps) for game in games)
    except (ImportError, TaskError):
        print('real engine        not installed: pip install "textworld[pddl]" alfworld==0.4.2')
        return
    real_rate = len(games) * arguments.real_steps / theirs
    ratio = rate / real_rate
    print(f"real engine        {real_rate:12,.1f} steps/s")
    print(f"ratio              {ratio:12,.0f} (bar {BAR:,}: {'met' if ratio >= BAR else 'MISSED'})")
    if ratio < BAR:
        raise SystemExit(1)


def time_ours(game: Game, steps: int) -> float:
    engine, rng = Engine(game), random.Random(0)
    begin = time.perf_counter()
    for _ in range(steps):
        engine.step(rng.choice(engine.admissible()))
    return time.perf_counter() - begin


def time_real(game: Game, steps: int) -> float:
    import textworld
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
    from textworld.envs.pddl.pddl import PddlEnv

    package: Any = textworld
    real: Any = AlfredDemangler(PddlEnv(package.EnvInfos(won=True, admissible_commands=True)))
    real.load(game_data(game, Language.installed()))
    state, rng = real.reset(), random.Random(0)
    begin = time.perf_counter()
    for _ in range(steps):
        state, _, _ = real.step(rng.choice(state.admissible_commands))
    return time.perf_counter() - begin


def time_generating(size: str, count: int = 200) -> float:
    world = HouseholdWorld(HouseholdOptions(rooms=size))
    world.game(world.instance("train", 0))  # the layouts are drawn once
    begin = time.perf_counter()
    for index in range(count):
        world.game(world.instance("train", index))
    return (time.perf_counter() - begin) / count


if __name__ == "__main__":
    main()
