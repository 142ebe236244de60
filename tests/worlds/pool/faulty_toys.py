"""The toy world with games that break on purpose: for the soak (bench/soak.py).

Game n of the training split breaks if `fault_of(n, ...)` names a fault; it breaks at the same turn however often it is
played, so two runs with the same seeds meet the same faults.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace

from isentrope.config.schema import setting
from isentrope.core.seeding import stream
from isentrope.worlds.contract import Instance, Step, View
from tests.toys import ToyOptions, ToyTask, ToyWorld

NAME = "tests.worlds.pool.faulty_toys:FaultyToys"
CHEAP = ("raise", "nan", "1e308", "slow")  # costs an episode, or nothing but a moment
DEAR = ("exit", "hang")  # costs the worker process
TURNS = 2  # the fault comes in one of the first


@dataclass(frozen=True)
class FaultyToyOptions:
    cheap: float = setting(0.02, "share of the games that raise, give no reward, or are slow", low=0, high=1)
    exits: float = setting(0.002, "share of the games that end their process", low=0, high=1)
    hangs: float = setting(0.0005, "share of the games that hang", low=0, high=1)
    slow: float = setting(0.05, "seconds that a slow game takes for a step", low=0)


def fault_of(index: int, options: FaultyToyOptions) -> tuple[str, int]:
    """The fault of game `index` and its turn; "": none."""
    kind, which, turn = stream(0, "soak", index).random(3)
    fault = ""
    if kind < options.hangs:
        fault = "hang"
    elif kind < options.hangs + options.exits:
        fault = "exit"
    elif kind < options.hangs + options.exits + options.cheap:
        fault = CHEAP[int(which * len(CHEAP))]
    return fault, int(turn * TURNS)


class FaultyToys(ToyWorld):
    name = "faulty_toys"
    prefers = "processes"

    def __init__(self, options: FaultyToyOptions | None = None) -> None:
        super().__init__(ToyOptions(goal=1))
        self.faulty = options or FaultyToyOptions()

    def open(self) -> FaultyToy:
        return FaultyToy(self.faulty)


class FaultyToy(ToyTask):
    def __init__(self, options: FaultyToyOptions) -> None:
        super().__init__(ToyOptions(goal=1))
        self._faulty, self._fault, self._turns_left = options, "", 0

    def start(self, instance: Instance) -> View:
        fault = fault_of(instance.index, self._faulty) if instance.split == "train" else ("", 0)
        self._fault, self._turns_left = fault
        return super().start(instance)

    def step(self, action: str) -> Step:
        step = super().step(action)
        self._turns_left -= 1
        return self._broken(step) if self._turns_left == -1 else step

    def _broken(self, step: Step) -> Step:
        match self._fault:
            case "raise":
                raise RuntimeError("injected")
            case "exit":
                os._exit(7)
            case "hang":
                time.sleep(10_000)
            case "slow":
                time.sleep(self._faulty.slow)
            case "nan" | "1e308":
                return replace(step, reward=float(self._fault))
            case _:
                pass
        return step
