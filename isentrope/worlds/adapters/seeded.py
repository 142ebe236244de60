"""What worlds that adapt other packages share: splits with a range of seeds each, and random numbers of their own."""

from __future__ import annotations

import importlib
import random
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import cast

import numpy

from isentrope.core.errors import TaskError
from isentrope.worlds.contract import Expert, Instance

# split -> its first seed; all lie below 2**32, which every generator takes. A run begins its training games anywhere
# below 2**31 and takes the next ones from there, so there have to be some more
FIRST = {"train": 0, "dev": 3 * 2**30, "test": 7 * 2**29}
SEEDS = {"train": 3 * 2**30, "dev": 2**29, "test": 2**29}
SPLITS = tuple(FIRST)


class SeededWorld:
    """What such worlds share: game number i of a split has the seed i of the split's range."""

    name: str
    kinds: tuple[str, ...]

    def splits(self) -> Sequence[str]:
        return SPLITS

    def size(self, split: str) -> int | None:
        self.check(split, 0)
        return None

    def instance(self, split: str, index: int) -> Instance:
        self.check(split, index)
        return Instance(self.name, split, index, self.kinds[index % len(self.kinds)])

    def fingerprint(self, instance: Instance) -> tuple[str, int]:
        """Different seeds are different games, though two of them may happen to start alike."""
        return instance.kind, self.seed(instance)

    def expert(self, seed: int) -> Expert | None:
        return None

    def seed(self, instance: Instance) -> int:
        self.check(instance.split, instance.index)
        return FIRST[instance.split] + instance.index

    def check(self, split: str, index: int) -> None:
        if split not in SPLITS:
            raise TaskError(f"the world {self.name} has no split {split!r}; it has {', '.join(SPLITS)}")
        if not 0 <= index < SEEDS[split]:
            raise TaskError(f"there is no {self.name} game number {index} in {split}; it has 0 to {SEEDS[split] - 1}")


def play_order(started: bool) -> None:
    """Refuse a step that has no episode to go on."""
    if not started:
        raise TaskError("step was called without a running episode: start an instance first")


def users_function(option: str, name: str, others: str) -> Callable[..., str]:
    """A function of the user's own, which the option names as module:function."""
    module, colon, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute) if colon else None
    except (ImportError, AttributeError) as error:
        raise TaskError(f"task.options.{option} = {name!r} could not be loaded: {error}") from error
    if not callable(found):
        raise TaskError(f"task.options.{option} = {name!r}: expected {others}, or a function as module:function")
    return cast("Callable[..., str]", found)


_TURN = threading.RLock()  # the generators are global: one game at a time


class Luck:
    """Random numbers of its own for a game that draws from the global generators.

    Two such games side by side would draw each other's numbers, and seeding one would seed the trainer's too. So each
    has a state of its own, which stands in for the global one while the game is at work.
    """

    def __init__(self, seed: int) -> None:
        self._python = random.Random(seed).getstate()
        self._numpy = numpy.random.RandomState(seed % 2**32).get_state()

    @contextmanager
    def drawn_from(self) -> Generator[None]:
        """Within this, `random` and `numpy.random` go on where this game left them; afterwards they are as before."""
        with _TURN:
            python, numbers = random.getstate(), numpy.random.get_state()
            random.setstate(self._python)
            numpy.random.set_state(self._numpy)
            try:
                yield
            finally:
                self._python, self._numpy = random.getstate(), numpy.random.get_state()
                random.setstate(python)
                numpy.random.set_state(numbers)
