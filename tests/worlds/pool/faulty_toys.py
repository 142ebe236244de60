"""The toy world with games that break on purpose: for the soak (bench/soak.py).

Game n of the training split breaks at its first action if `fault_of(n, options)` names a fault. It does so however
often it is played, so two runs with the same seeds meet the same faults. Odd games never break: where a step plays two
games, one after the other, not all of its episodes fail, which would end the run.
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


@dataclass(frozen=True)
class FaultyToyOptions:
    cheap: float = setting(0.12, "share of the even games that raise, give no reward, or are slow", low=0, high=1)
    exits: float = setting(0.01, "share of the even games that end their process", low=0, high=1)
    hangs: float = setting(0.002, "share of the even games that hang", low=0, high=1)
    slow: float = setting(0.05, "seconds that a slow game takes for a step", low=0)


def fault_of(index: int, options: FaultyToyOptions) -> str:
    """The fault of game `index`; "": none."""
    share, kind = stream(0, "soak", index).random(2)
    if index % 2:
        return ""
    if share < options.hangs:
        return "hang"
    if share < options.hangs + options.exits:
        return "exit"
    return CHEAP[int(kind * len(CHEAP))] if share < options.hangs + options.exits + options.cheap else ""


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
        self._faulty, self._fault = options, ""

    def start(self, instance: Instance) -> View:
        self._fault = fault_of(instance.index, self._faulty) if instance.split == "train" else ""
        return super().start(instance)

    def step(self, action: str) -> Step:
        step, fault, self._fault = super().step(action), self._fault, ""
        match fault:
            case "raise":
                raise RuntimeError("injected")
            case "exit":
                os._exit(7)
            case "hang":
                time.sleep(10_000)
            case "slow":
                time.sleep(self._faulty.slow)
            case "nan" | "1e308":
                return replace(step, reward=float(fault))
            case _:
                pass
        return step
