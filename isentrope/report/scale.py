"""From values to positions, and ticks at round numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """Maps low..high to start..end."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def holds(self, value: float) -> bool:
        slack = 1e-9 * (self.high - self.low)
        return self.low - slack <= value <= self.high + slack


def nice_ticks(low: float, high: float, count: int, least: float = 0.0) -> list[float]:
    """About `count` intervals of 1, 2 or 5 times a power of ten, none below `least`, that cover low..high."""
    room = (high - low) or 1.0
    rough = room / max(count, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    step = max(step, least)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [step * number for number in range(first, max(last, first + 1) + 1)]


def decimals(ticks: list[float]) -> int:
    """Places after the point that tell neighbouring ticks apart."""
    if len(ticks) < 2:
        return 0 if not ticks or ticks[0] == int(ticks[0]) else 2
    return max(0, math.ceil(-math.log10(abs(ticks[1] - ticks[0])) - 1e-9))


def spread(values: list[float], *, zero: bool, most: float | None) -> tuple[float, float]:
    """The range of an axis that shows all values, never empty."""
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if high - low <= 1e-12 * max(1.0, abs(high)):
        low, high = (low - 0.5, high + 0.5) if low else (0.0, 1.0)
    return (low, high) if most is None else (low, min(high, most))
