"""Phases of a run, from its entropy curve: descent, eruption, subsidence, eruption, ...

    phases = PhaseDetector()
    change = phases.look(step, metrics.get("entropy/token"))   # at every step; a PhaseChange, or None
    phases.phase, phases.eruptions, phases.forecast()

A run begins in descent. An eruption is a rise as `rise_detector.py` defines it. It is followed by subsidence, which
lasts until the next eruption. The detector is online: at each step it says what can be told by then. An eruption is
noticed some steps after its onset; `spans` tells the phases as they were, with every onset where it belongs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from isentrope.diagnosis.rise_detector import Rise, RiseDetector

DESCENT, ERUPTION, SUBSIDENCE = 0, 1, 2
NAMES = ("descent", "eruption", "subsidence")


@dataclass(frozen=True)
class PhaseChange:
    """The phase that was entered, said at the step at which that could be told."""

    step: int
    phase: int
    text: str

    @property
    def name(self) -> str:
        return NAMES[self.phase]


@dataclass(frozen=True)
class Span:
    phase: int
    first: int  # step
    last: int  # step, included

    @property
    def name(self) -> str:
        return NAMES[self.phase]


@dataclass(frozen=True)
class Forecast:
    """When the next eruption would begin if the run went on as it did."""

    step: int
    period: float  # steps from onset to onset: the median
    shortest: int
    longest: int
    periods: int  # how many it is told by


class PhaseDetector:
    """Feed it every step's entropy. `state_dict` is JSON: a resumed run goes on as if it had never stopped."""

    def __init__(self) -> None:
        self._detector = RiseDetector()
        self._first: int | None = None
        self._last: int | None = None

    def look(self, step: int, entropy: float | None) -> PhaseChange | None:
        if self._first is None:
            self._first = step
        self._last = step
        if not self._detector.look(step, entropy):
            return None
        rise = self._detector.rises[-1]
        return PhaseChange(
            step, self.phase, risen(rise) if self._detector.rising else sunk(rise, self._detector.level or 0.0)
        )

    @property
    def phase(self) -> int:
        if not self._detector.rises:
            return DESCENT
        return ERUPTION if self._detector.rising else SUBSIDENCE

    @property
    def eruptions(self) -> list[Rise]:
        """All so far; the last one changes while it is under way."""
        return list(self._detector.rises)

    def spans(self) -> list[Span]:
        """The phases from the first step to the last, without a gap. Subsidence begins after the peak."""
        if self._first is None or self._last is None:
            return []
        marks = [(DESCENT, self._first)]
        for rise in self._detector.rises:
            marks.append((ERUPTION, max(rise.onset, marks[-1][1])))
            if rise.over is not None:
                marks.append((SUBSIDENCE, rise.peak + 1))
        ends = [first - 1 for _, first in marks[1:]] + [self._last]
        return [Span(phase, first, end) for (phase, first), end in zip(marks, ends, strict=True) if end >= first]

    def forecast(self) -> Forecast | None:
        """The next onset, told by the steps between the onsets so far; None with fewer than two eruptions."""
        onsets = [rise.onset for rise in self._detector.rises]
        periods = [after - before for before, after in pairwise(onsets)]
        if not periods:
            return None
        period = median(periods)
        return Forecast(onsets[-1] + round(period), period, min(periods), max(periods), len(periods))

    def state_dict(self) -> dict[str, Any]:
        return {"first": self._first, "last": self._last, "rises": self._detector.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._first, self._last = state["first"], state["last"]
        self._detector.load_state_dict(state["rises"])


def find_phases(steps: Sequence[int], entropies: Sequence[float | None]) -> PhaseDetector:
    """The detector after a whole curve."""
    detector = PhaseDetector()
    for step, entropy in zip(steps, entropies, strict=True):
        detector.look(step, entropy)
    return detector


def risen(rise: Rise) -> str:
    return (
        f"Entropy erupted: it left its level of {rise.before:.3g} nats a token at step {rise.onset} "
        f"and was at {rise.top:.3g} by step {rise.noticed}."
    )


def sunk(rise: Rise, level: float) -> str:
    eruption, peak = f"The eruption of step {rise.onset}", f"{rise.top:.3g} nats a token at its peak, step {rise.peak}"
    if rise.settled:
        return f"{eruption} rises no further: {peak}; entropy stays at {level:.3g}, {rise.before:.3g} before."
    return f"{eruption} subsides: {peak}; {level:.3g} now, {rise.before:.3g} before."
