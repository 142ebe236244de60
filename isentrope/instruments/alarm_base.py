"""What the rules of all alarms share: a trouble, the courses they remember, and how a metric is read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

Metrics = Mapping[str, float | None]


@dataclass(frozen=True)
class Trouble:
    """A plain sentence with the numbers, what to try, and the numbers once more for those who compute."""

    text: str
    remedy: str
    numbers: dict[str, float] = field(default_factory=dict[str, float])


class Rule(Protocol):
    name: str

    def look(self, step: int, metrics: Metrics) -> Trouble | None:
        """The trouble that the run is in at this step, every step that it lasts; None: no trouble."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


def number(metrics: Metrics, key: str) -> float | None:
    """A metric, if it was measured and is a number."""
    value = metrics.get(key)
    return float(value) if value is not None and math.isfinite(value) else None


class Ends:
    """The first and the last values of one metric."""

    def __init__(self, first: int = 5, last: int = 5) -> None:
        self._sizes, self.first, self.last, self.count = (first, last), list[float](), list[float](), 0

    def add(self, value: float | None) -> bool:
        if value is None:
            return False
        self.first = [*self.first, value][: self._sizes[0]]
        self.last = [*self.last, value][-self._sizes[1] :]
        self.count += 1
        return True

    def state_dict(self) -> dict[str, Any]:
        return {"first": list(self.first), "last": list(self.last), "count": self.count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.first, self.last, self.count = list(state["first"]), list(state["last"]), int(state["count"])


class Remembers:
    """A rule that remembers the courses of a few metrics and nothing else."""

    def __init__(self, keys: tuple[str, ...], first: int = 5, last: int = 5) -> None:
        self.courses = {key: Ends(first, last) for key in keys}

    def add(self, metrics: Metrics) -> None:
        for key, course in self.courses.items():
            course.add(number(metrics, key))

    def state_dict(self) -> dict[str, Any]:
        return {key: course.state_dict() for key, course in self.courses.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for key, course in self.courses.items():
            course.load_state_dict(state[key])
