"""Declares a metric: its key, what it means, and how its values from several places become one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Literal

KEY = re.compile(r"[A-Za-z0-9_.{}-]+(/[A-Za-z0-9_.{}-]+)*")


@cache
def _pattern(key: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/\\s]+)", re.escape(key)))


Reduction = Literal["mean", "min", "max"]


@dataclass(frozen=True)
class Metric:
    """A number that a run writes at its steps.

        Metric("mine/weight", "Mean weight given to a response.", "weight")

    A part in braces stands for any name: `success/{kind}`. `reduction` is for numbers that come from the pieces of an
    update. `mean`: each piece gives its share, as sums with `batch.weights` do, so the shares add up to the number of
    the mini-batch, and a step has the mean over its updates. `min` and `max`: the extreme of all pieces and updates.
    """

    key: str
    meaning: str
    unit: str = "as the method says"
    reduction: Reduction = "mean"

    def __post_init__(self) -> None:
        if not KEY.fullmatch(self.key):
            raise ValueError(f"metric {self.key!r}: expected names with / between them, such as mine/weight")
        if self.reduction not in ("mean", "min", "max"):
            raise ValueError(f"metric {self.key}: reduction {self.reduction!r}: expected mean, min or max")

    def match(self, key: str) -> dict[str, str] | None:
        """The names that the parts in braces stand for, or None if this is not the key's metric."""
        found = _pattern(self.key).fullmatch(key)
        return None if found is None else found.groupdict()
