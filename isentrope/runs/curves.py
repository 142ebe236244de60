"""A metric over the steps of a run: its start, end, noise and best level, as a diagnosis needs them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from typing import Any

ENDS = 5  # steps that a start or an end is averaged over
ENOUGH = 4  # numbers from which a trend can be told


@dataclass(frozen=True)
class Curve:
    steps: tuple[int, ...]
    values: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.values)

    @property
    def width(self) -> int:
        """How many numbers a start and an end are averaged over, so that the two never overlap."""
        return max(1, min(ENDS, len(self) // 5))

    @property
    def start(self) -> float:
        return fmean(self.values[: self.width])

    @property
    def end(self) -> float:
        return fmean(self.values[-self.width :])

    @property
    def noise(self) -> float:
        """Standard deviation of a single number around the curve, from the differences of neighbours."""
        differences = [b - a for a, b in pairwise(self.values)]
        if len(differences) < 2:
            return 0.0
        middle = median(differences)
        return 1.4826 * median(abs(difference - middle) for difference in differences) / math.sqrt(2)

    @property
    def margin(self) -> float:
        """What start and end may differ by through noise alone: three standard deviations of their difference."""
        return 3 * self.noise * math.sqrt(2 / self.width)

    @property
    def best(self) -> tuple[int, float]:
        """The highest mean of `width` numbers in a row, and the step in their middle."""
        width = self.width
        means = [(fmean(self.values[i : i + width]), -i) for i in range(len(self) - width + 1)]
        top, place = max(means)
        return self.steps[-place + width // 2], top

    def reached(self, level: float) -> int:
        """The first step by which the mean of the last `width` numbers was there; the last step if it never was."""
        for i in range(len(self)):
            window = self.values[max(0, i + 1 - self.width) : i + 1]
            if len(window) == self.width and fmean(window) >= level:
                return self.steps[i]
        return self.steps[-1]

    def before(self, step: int, numbers: int = ENDS) -> Curve:
        """The last numbers before a step."""
        return self.between(self.steps[0], step - 1).tail(numbers) if len(self) else self

    def between(self, first: int, last: int) -> Curve:
        """What lies between two steps, both included."""
        return self.at(step for step in self.steps if first <= step <= last)

    def at(self, steps: Iterable[int]) -> Curve:
        wanted = set(steps)
        kept = [(step, value) for step, value in zip(self.steps, self.values, strict=True) if step in wanted]
        return Curve(tuple(step for step, _ in kept), tuple(value for _, value in kept))

    def __neg__(self) -> Curve:
        """The curve upside down: its best is the lowest, and it reaches what it falls to."""
        return Curve(self.steps, tuple(-value for value in self.values))

    def tail(self, numbers: int) -> Curve:
        return Curve(self.steps[-numbers:], self.values[-numbers:])

    def highest_of_three(self) -> float:
        """The highest median of three neighbours: one stray number is not a height."""
        if len(self) < 3:
            return median(self.values)
        return max(median(self.values[i : i + 3]) for i in range(len(self) - 2))


def curve(records: Sequence[Mapping[str, Any]], key: str) -> Curve:
    """A metric's numbers; steps where it is missing or not finite are left out."""
    found = [
        (int(record["step"]), float(value))
        for record in records
        if isinstance(value := record.get(key), int | float) and math.isfinite(value)
    ]
    return Curve(tuple(step for step, _ in found), tuple(value for _, value in found))
