"""A tiny world for tests: count up to a goal. Some actions misbehave on purpose, when the options allow it."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from isentrope.config.schema import setting
from isentrope.core.errors import TaskError
from isentrope.worlds.contract import Instance, Move, Step, View

ACTIONS = ("add one", "take one", "look")


@dataclass(frozen=True)
class ToyOptions:
    goal: int = setting(3, "the number to reach", low=1, high=9)
    naughty: bool = setting(False, "whether raise, hang, exit and huge are actions")
    flavour: str = setting("plain", "nothing", choices=("plain", "sweet"))
    pace: float = setting(1.0, "nothing", above=0)


class ToyTask:
    def __init__(self, options: ToyOptions) -> None:
        self._options = options
        self._count: int | None = None

    def start(self, instance: Instance) -> View:
        if instance.index == 666 and self._options.naughty:
            os._exit(3)
        if instance.index == 667 and self._options.naughty:
            raise RuntimeError("cannot start this one")
        self._count = -(instance.index % 2)
        return self._view(f"You start game {instance.index} of {instance.split}.")

    def step(self, action: str) -> Step:
        if self._count is None:
            raise TaskError("step before start, or after close")
        if self._options.naughty:
            self._misbehave(action)
        if action == "huge" and self._options.naughty:
            return Step(self._view("x" * 300_000))
        if action not in ACTIONS:
            return Step(self._view("Nothing happens."), valid=False)
        self._count += {"add one": 1, "take one": -1, "look": 0}[action]
        won = self._count >= self._options.goal
        view = self._view("You see a number.")
        if won:
            self._count = None
        return Step(view, reward=float(won), terminated=won, success=won, info={"pid": float(os.getpid())})

    def close(self) -> None:
        self._count = None

    def _view(self, text: str) -> View:
        return View(f"{text} The number is {self._count}.", ACTIONS, f"reach {self._options.goal}")

    def _misbehave(self, action: str) -> None:
        if action == "raise":
            raise ValueError("boom " * 1000)
        if action == "quit":
            raise SystemExit(1)
        if action == "hang":
            time.sleep(1000)
        if action == "exit":
            os._exit(7)


@dataclass
class ToyExpert:
    seed: int = 0
    seen: list[str] = field(default_factory=list)

    def start(self, view: View, instance: Instance) -> None:
        self.seen = [view.text]

    def act(self, view: View) -> Move:
        return Move("One more.", "add one")


class ToyWorld:
    name = "toy"
    kinds = ("even", "odd")
    prefers: str | None = "local"  # a worker process takes longer to begin than a toy run takes

    def __init__(self, options: ToyOptions | None = None) -> None:
        self._options = options or ToyOptions()

    def splits(self) -> Sequence[str]:
        return ("train", "seen")

    def size(self, split: str) -> int | None:
        return None if split == "train" else 10

    def instance(self, split: str, index: int) -> Instance:
        if split not in self.splits():
            raise TaskError(f"no split {split}")
        size = self.size(split)
        if size is not None and index >= size:
            raise TaskError(f"no game {index} in {split}")
        return Instance(self.name, split, index, self.kinds[index % 2])

    def open(self) -> ToyTask:
        return ToyTask(self._options)

    def expert(self, seed: int) -> ToyExpert | None:
        return ToyExpert(seed)
