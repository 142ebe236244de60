"""Random numbers of its own for a game that draws from the global generators.

Two such games side by side would draw each other's numbers, and seeding one would seed the trainer's too. So each has a
state of its own, which stands in for the global one while the game is at work.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Generator
from contextlib import contextmanager

import numpy

_TURN = threading.RLock()  # the generators are global: one game at a time


class Luck:
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
