"""Phases of a run, from its entropy curve: descent, eruption, subsidence, eruption, ...

    phases = PhaseDetector()
    change = phases.look(step, metrics.get("entropy/token"))   # at every step; a PhaseChange, or None
    phases.phase, phases.eruptions, phases.forecast()

A run begins in descent. An eruption is a rise of the curve. It is followed by subsidence, which lasts until the next
eruption. The detector is online: at each step it says what can be told by then. An eruption is
noticed some steps after its onset; `spans` tells the phases as they were, with every onset where it belongs.

The rise detector finds where any noisy curve rises and comes down again, one number at a time.

A rise must stand out of the curve's own noise, be large against the level that it started from, and last: only medians
are compared, so one or two stray numbers are never a rise. It is noticed a few steps after it began and then dated back
to where it began. There are two tests, and either may find it:

- The quick one compares the median of the last `SMOOTH` numbers with the lowest such median of late.
- The slow one compares the median of the last `SLOW` numbers with that of the `PAST` numbers before. It finds rises
  that bring noise of their own, which hides them from the quick test: only the noise before them counts here.

Everything is relative: the same curve times ten gives the same rises, ten times as high (TINY apart). Noise counts in
proportion to the level, as it does in entropy curves. Numbers that are missing or not finite are passed over.

docs/doctor.md tells on which runs the limits were set and how often noise alone is taken for a rise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Any

SMOOTH = 5  # numbers in the trailing median: a rise has to last three of them
REACH = 25  # a rise happens within so many numbers; what takes longer is drift
LEAST = 6  # numbers before anything is called a rise
IN_NOISE = 5.0  # a rise is at least so many times the noise of a single number
IN_LEVEL = 0.3  # and at least this share of the level before it
KEPT_RISES = 10  # of a state that is saved
SLOW = 15  # numbers in the median of the slow test
PAST = 40  # numbers before them that it is compared with, at least SLOW
MEDIAN = 1.25  # deviation of a median of n numbers: so many times that of one number, over the root of n
TINY = 1e-3  # and at least this much: below, the curve is at zero for all that matters
FLOOR = 0.02  # numbers under this share of the highest level differ by nothing that matters
NOTHING = 1e-9  # the floor under a curve that has been zero so far
FALL_IN_NOISE = 3.0  # a rise is over when the curve is so many times the noise under its top
FALL_SHARE = 1 / 3  # and this share of the rise; or when there was no new top for REACH numbers

NOISE = 40  # step-to-step differences that the noise is told by
USUAL = 0.1  # relative noise that is taken for granted,
FEW = 5.0  # as if so many differences had shown it: a few real ones may agree by chance
MORE = 2.0  # the noise told by n differences counts 1 + MORE / n times


@dataclass(frozen=True)
class Rise:
    """One rise. All levels are medians, so a single stray number moves none of them."""

    onset: int  # the step at which the curve left its level
    noticed: int  # the step at which that could be told
    before: float  # level before the onset
    peak: int  # the step in the middle of the highest three
    top: float  # level there
    over: int | None = None  # the step from which it was seen to come down; None: still up
    back: int | None = None  # the step at which three quarters of the rise were gone; None: it stayed
    settled: bool = False  # over because it rose no further, not because it fell

    @property
    def amplitude(self) -> float:
        return self.top - self.before


class RiseDetector:
    """Feed it with `look`, step by step; `rises` has what was found so far, `rising` whether one is under way."""

    def __init__(self) -> None:
        self.rises: list[Rise] = []
        self.rising = False
        self._steps: list[int] = []
        self._values: list[float] = []
        self._smooth: list[float] = []
        self._highest = 0.0
        self._seen = 0  # numbers since the last rise was over, or since the start: how far back an onset may lie
        self._stale = 0  # numbers since the last new top
        self._slow_top = 0.0  # highest median of SLOW numbers in the last rise
        self._slow_stale = 0  # numbers since that was new

    def look(self, step: int, value: float | None) -> bool:
        """Take one number; whether a rise began or ended with it."""
        if value is None or not math.isfinite(value):
            return False
        kept = SLOW + PAST
        self._steps = [*self._steps, step][-kept:]
        self._values = [*self._values, float(value)][-kept:]
        self._smooth = [*self._smooth, median(self._values[-SMOOTH:])][-kept:]
        self._highest = max(self._highest, self._smooth[-1])
        self._seen += 1
        self._come_back(step)
        return self._follow(step) if self.rising else self._begin(step)

    @property
    def noise(self) -> float:
        """Relative deviation of a single number from the curve, of late."""
        return self._noise_in(self._values[-NOISE - 1 :])

    def _noise_in(self, values: Sequence[float]) -> float:
        """Told by the median absolute deviation of neighbours' differences: trends and jumps are left out of it."""
        differences = [self._times(after, before) for before, after in pairwise(values)]
        if len(differences) < 2:
            return math.inf
        middle = median(differences)
        deviation = median(abs(difference - middle) for difference in differences)
        measured, count = 1.4826 * deviation / math.sqrt(2), len(differences)
        # few differences tell little, so they count more
        return math.sqrt((count * measured**2 + FEW * USUAL**2) / (count + FEW)) * (1 + MORE / count)

    def _times(self, high: float, low: float) -> float:
        """Logarithm of high over low, so that noise counts in proportion; what is near zero is not stretched."""
        floor = max(FLOOR * self._highest, NOTHING)
        return math.log((max(high, 0.0) + floor) / (max(low, 0.0) + floor))

    @property
    def level(self) -> float | None:
        """Where the curve is now: the median of the last numbers."""
        return self._smooth[-1] if self._smooth else None

    def _begin(self, step: int) -> bool:
        if len(self._values) < LEAST:
            return False
        quick = self._quick()
        first = self._slow() if quick is None else quick
        if first is None:
            return False
        count = SLOW if quick is None else SMOOTH
        before = median(self._values[max(0, first - count) : first] or self._values[:1])
        peak, top = self._top(first)
        self.rises.append(Rise(self._steps[first], step, before, peak, top))
        self.rising, self._stale = True, 0
        self._slow_top, self._slow_stale = median(self._values[-SLOW:]), 0
        return True

    def _quick(self) -> int | None:
        """Position of the onset, if the last few numbers tell of a rise."""
        window = self._smooth[-min(self._seen, REACH) :]
        low, now = min(window), self._smooth[-1]
        if not _is_large(low, now) or self._times(now, low) < IN_NOISE * self.noise:
            return None
        return self._onset(len(self._smooth) - len(window) + window.index(low))

    def _slow(self) -> int | None:
        """Position of the onset, if the last numbers are high against the noise of the many before them."""
        values = self._values[-min(self._seen, SLOW + PAST) :]
        past, last = values[:-SLOW], values[-SLOW:]
        if len(past) < SLOW:
            return None
        low, now = median(past), median(last)
        if not _is_large(low, now):
            return None
        wander = 1.4826 * median(abs(self._times(value, low)) for value in past)  # differences tell little of it
        noise = max(wander, self._noise_in(past))
        if self._times(now, low) < IN_NOISE * (noise * MEDIAN * math.sqrt(1 / len(past) + 1 / len(last))):
            return None
        # single numbers may fall back all along: the onset best parts those near the old level from those near the new
        half, best, score = 0.5 * self._times(now, low), (0, 0), 0
        for place in reversed(range(1, len(values))):
            score += 1 if self._times(values[place], low) > half else -1
            best = max(best, (score, place))
        return len(self._values) - len(values) + best[1]

    def _onset(self, trough: int) -> int:
        """One after the last number that was still at the level of the trough."""
        low, high = self._smooth[trough], self._smooth[-1]
        noise = min(self.noise, 0.5 * self._times(high, low))
        start = max(0, trough - SMOOTH // 2)
        still = [
            i
            for i in range(start, len(self._values))
            if self._values[i] <= low + (high - low) / 10 or self._times(self._values[i], low) <= noise
        ]
        last = still[-1] if still else start
        return min(last + 1, len(self._values) - 1)

    def _top(self, first: int) -> tuple[int, float]:
        """The highest median of three neighbours from position `first` on, and the step in its middle."""
        middles = range(max(first, 1), len(self._values) - 1)
        tops = [(median(self._values[i - 1 : i + 2]), -i) for i in middles]
        top, place = max(tops, default=(self._values[-1], 1 - len(self._values)))
        return self._steps[-place], top

    def _follow(self, step: int) -> bool:
        rise = self.rises[-1]
        peak, top = self._top(len(self._values) - 2)
        if top > rise.top:
            rise, self._stale = replace(rise, peak=peak, top=top), 0
        else:
            self._stale += 1
        slow = median(self._values[-SLOW:])
        self._slow_stale = 0 if slow > self._slow_top else self._slow_stale + 1
        self._slow_top = max(slow, self._slow_top)
        since = [value for at, value in zip(self._steps, self._values, strict=True) if at >= rise.onset]
        noise = max(self.noise, self._noise_in(since))  # the rise may have brought some of its own
        stale, high, now = self._stale, rise.top, self._smooth[-1]
        if self._times(high, rise.before) < IN_NOISE * noise:  # too noisy by now for the quick test, and for its end
            stale, high, now = self._slow_stale, self._slow_top, slow
            noise *= MEDIAN * math.sqrt(2 / SLOW)
        # a trailing median lags behind: while new tops come, it is lower though nothing falls
        far = stale > SMOOTH // 2 and high - now >= FALL_SHARE * (high - rise.before)
        fallen = far and self._times(high, now) >= FALL_IN_NOISE * noise
        settled = not fallen and stale >= REACH
        if fallen or settled:
            rise = replace(rise, over=step, settled=settled)
            self.rising, self._seen = False, 1
        self.rises[-1] = rise
        return fallen or settled

    def _come_back(self, step: int) -> None:
        """Note when the last rise is all but undone."""
        if self.rises and self.rises[-1].back is None and not self.rising:
            rise = self.rises[-1]
            if self._smooth[-1] <= rise.before + rise.amplitude / 4:
                self.rises[-1] = replace(rise, back=step)

    def state_dict(self) -> dict[str, Any]:
        """What it needs to go on, as JSON can hold it: of the rises the last ones, or it would grow with the run."""
        state = {name.lstrip("_"): value for name, value in vars(self).items()}
        return state | {"rises": [asdict(rise) for rise in self.rises[-KEPT_RISES:]]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        whole = {"slow_top": 0.0, "slow_stale": 0, **state}  # states of before the slow test have neither
        for name in vars(self):
            setattr(self, name, whole[name.lstrip("_")])
        self.rises = [Rise(**rise) for rise in state["rises"]]


def _is_large(low: float, now: float) -> bool:
    """Whether the level rose by enough to matter. Asked first: the noise takes a hundred logarithms to measure."""
    return now - low >= max(IN_LEVEL * low, TINY)


def find_rises(steps: Sequence[int], values: Sequence[float | None]) -> list[Rise]:
    """The rises of a whole curve."""
    detector = RiseDetector()
    for step, value in zip(steps, values, strict=True):
        detector.look(step, value)
    return detector.rises


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
        rise, level = self._detector.rises[-1], self._detector.level or 0.0
        return PhaseChange(step, self.phase, risen(rise) if self._detector.rising else sunk(rise, level))

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
