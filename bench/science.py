"""Steps a second in ScienceWorld: ours, and the package's own `env.step()`, in the same run.

    python bench/science.py [--rounds 5] [--simplifications easy]

All play the same games, turn by turn side by side: solutions of 26 tasks, and something that is not understood at the
end. Each has a java process of its own. Of several rounds the quickest time of each action counts: java takes thousands
of steps to warm up, as it has in any run, and whatever else the machine was doing weighs less. Starting a game is not
counted. `env.step()` lists all possible actions, so it is slowest where there are many things: the table has all turns,
and those with 400 possible actions and more. The bar is 15 times for the bare step, over all turns.
(This file cannot be called scienceworld.py: it would be imported in place of the package.)
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from isentrope.core.errors import TaskError
from isentrope.worlds.scienceworld.catalogue import TASKS
from isentrope.worlds.scienceworld.world import ScienceWorld, ScienceWorldOptions

BAR = 15
CROWDED = 400  # possible actions
LONG = ("mendelian-genetics", "inclined-plane-friction")  # solutions of more than a hundred actions
KINDS = tuple(task for task in TASKS if not task.startswith(LONG))
MODES = {
    "step alone": {"hint": "none", "repeatable": False},
    "repeatable": {"hint": "none"},
    "repeatable, things in reach": {},
}
Player = tuple[Callable[[int], object], Callable[[str], Any]]  # start a game by its number; take an action
Turn = tuple[int, int]  # of which game
Times = dict[str, dict[Turn, float]]  # in seconds, by player


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="times that every game is played")
    parser.add_argument("--simplifications", default="", help="as the world's option; the package's default is none")
    arguments = parser.parse_args()
    shared = {"tasks": KINDS, "jvms": 1, "moves": 10**6, "simplifications": arguments.simplifications}
    worlds = {name: ScienceWorld(ScienceWorldOptions(**(shared | mode))) for name, mode in MODES.items()}
    try:
        players = {"env.step()": the_wrapper(worlds["repeatable"])} | {name: ours(w) for name, w in worlds.items()}
        times, crowded = quickest(players, solutions(worlds["repeatable"]), arguments.rounds)
    except TaskError as error:
        raise SystemExit(str(error)) from error
    for world in worlds.values():
        world.close()
    report(times, crowded)


def report(times: Times, crowded: set[Turn]) -> None:
    ratios: dict[str, float] = {}
    for title, turns in ((f"{CROWDED} actions and more", crowded), ("all turns", set(times["env.step()"]))):
        print(f"{title}: {len(turns)}")
        mean = {name: sum(taken[turn] for turn in turns) / len(turns) for name, taken in times.items()}
        for name, seconds in mean.items():
            ratios[name] = mean["env.step()"] / seconds
            print(f"  {name:28} {1000 * seconds:7.2f} ms  {1 / seconds:7.1f} steps/s  {ratios[name]:6.1f} times")
    print(f"bar: {BAR} times: {'met' if ratios['step alone'] >= BAR else 'MISSED'}")
    if ratios["step alone"] < BAR:
        raise SystemExit(1)


def solutions(world: ScienceWorld) -> list[list[str]]:
    """One game of each kind, but for the last action, which would end it."""
    games = [world.instance("train", index) for index in range(len(KINDS))]
    paths = [world.solver.solution(game.kind, world.variation(game)).actions for game in games]
    return [[*path[:-1], "sing a song"] for path in paths]


def quickest(players: dict[str, Player], games: list[list[str]], rounds: int) -> tuple[Times, set[Turn]]:
    times: Times = {name: {} for name in players}
    crowded: set[Turn] = set()
    for _ in range(rounds):
        for number, actions in enumerate(games):
            for start, _ in players.values():
                start(number)
            for turn, action in enumerate(actions):
                for name, (_, step) in players.items():
                    begin = time.perf_counter()
                    result = step(action)
                    spent = time.perf_counter() - begin
                    times[name][number, turn] = min(spent, times[name].get((number, turn), spent))
                    if name == "env.step()" and len(result[3]["valid"]) >= CROWDED:
                        crowded.add((number, turn))
    return times, crowded


def ours(world: ScienceWorld) -> Player:
    task = world.open()
    return lambda number: task.start(world.instance("train", number)), task.step


def the_wrapper(world: ScienceWorld) -> Player:
    from scienceworld import ScienceWorldEnv

    env: Any = ScienceWorldEnv("", envStepLimit=10**6)

    def start(number: int) -> None:
        game = world.instance("train", number)
        env.load(game.kind, world.variation(game), world.options.simplifications)
        env.reset()

    return start, env.step


if __name__ == "__main__":
    main()
