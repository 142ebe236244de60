"""What a run's log does not say outright: tokens, episodes and seconds up to a step, and steps an hour.

They are added to the records as they are read, under keys of this page alone:

    axis/tokens  axis/episodes     sampled and played up to the step, that step included
    axis/seconds                   of all stages up to the step, evaluations included
    rate/steps_per_hour            at the pace of the step

Tokens and episodes of a step are those that `isentrope study` counts (study/measures.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from isentrope.analysis.success import seconds_of
from isentrope.runs.log import Record

AXIS = "axis/"
RATE = "rate/"
STEPS_PER_HOUR = f"{RATE}steps_per_hour"
MEANINGS = {STEPS_PER_HOUR: ("steps/h", "Steps an hour at the pace of the step, evaluations included.")}
_RECENT = 10  # steps
_MOST = 1e15


class Pace:
    """Counts along the records of one run, which come in the order of the log."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._tokens = self._episodes = 0.0
        self._step = 0
        self._recent: deque[float] = deque(maxlen=_RECENT)

    def forget_metrics(self) -> None:
        self._tokens = self._episodes = 0.0
        self._step = 0

    def forget_clock(self) -> None:
        self.seconds = 0.0
        self._recent.clear()

    @property
    def per_hour(self) -> float | None:
        """Steps an hour over the last steps."""
        return 3600 * len(self._recent) / sum(self._recent) if sum(self._recent) > 0 else None

    def measured(self, record: Record, config: Mapping[str, Any], thin: bool = False) -> Record:
        """A record of metrics.jsonl with what its step came to; `thin`: and those before it that are not read."""
        groups, size = (config.get(f"rollout.{name}") for name in ("groups", "group_size"))
        if record.get("kind", "train") != "train" or not isinstance(groups, int) or not isinstance(size, int):
            return record
        steps = max(1.0, _number(record["step"] - self._step)) if thin else 1.0
        self._step = record["step"]
        played = steps * size * (groups + _number(record.get("resample/dropped")))
        self._episodes += played
        self._tokens += played * _number(record.get("episode/tokens"))
        found: Record = {**record, f"{AXIS}episodes": self._episodes}
        return {**found, f"{AXIS}tokens": self._tokens} if self._tokens else found

    def timed(self, record: Record) -> Record:
        """A record of timings.jsonl, likewise."""
        spent = min(_MOST, max(0.0, _number(seconds_of(record))))
        self.seconds += spent
        found: Record = {**record, f"{AXIS}seconds": self.seconds}
        if record.get("kind", "train") == "train" and spent > 0:
            self._recent.append(spent)
            found[STEPS_PER_HOUR] = 3600 / spent
        return found


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and 0 <= value < _MOST else 0.0
