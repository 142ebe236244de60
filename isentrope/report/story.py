"""Phases, alarms and diagnosis of a run, for its report."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from isentrope.charts.chart import Flag, Shade
from isentrope.core.errors import RunError
from isentrope.diagnosis.alarms import Alarm, replay
from isentrope.diagnosis.phases import NAMES, find_phases
from isentrope.runs.folder import Run
from isentrope.runs.layout import CONFIG, METRICS

_MOST_FLAGS = 99
_NAMED = 3  # runs


@dataclass(frozen=True)
class Story:
    shades: tuple[Shade, ...] = ()  # every phase, descent too
    alarms: tuple[Alarm, ...] = ()  # and what was done about them

    @property
    def flags(self) -> tuple[Flag, ...]:
        some = self.alarms[:_MOST_FLAGS]
        return tuple(Flag(float(one.step), n, f"{one.name}. {one.text}") for n, one in enumerate(some, start=1))


def story_of(run: Run) -> Story:
    return Story(phases_of(run), alarms_of(run))


def phases_of(run: Run) -> tuple[Shade, ...]:
    """The phases as they were, with every onset where it belongs, from the entropy curve; a run that did not record it
    has them as they were told at the time."""
    records = [(int(record["step"]), record) for record in run.of_kind("train")]
    entropies = [(step, record["entropy/token"]) for step, record in records if _finite(record.get("entropy/token"))]
    if entropies:
        found = find_phases([step for step, _ in entropies], [float(value) for _, value in entropies])
        return tuple(Shade(span.first, span.last, span.name) for span in found.spans())
    told = [(step, NAMES[int(record["phase"])]) for step, record in records if record.get("phase") in (0, 1, 2)]
    last = max((step for step, _ in records), default=0)
    if not told:
        events = [event for event in run.events if event.get("kind") == "phase" and event.get("name") in NAMES]
        told = sorted((int(event["step"]), str(event["name"])) for event in events)
    starts = told[:1] + [b for a, b in pairwise(told) if a[1] != b[1]]
    ends = [step - 1 for step, _ in starts[1:]] + [last] * bool(starts)
    return tuple(Shade(a, b, name) for (a, name), b in zip(starts, ends, strict=True) if b >= a)


def alarms_of(run: Run) -> tuple[Alarm, ...]:
    """As they were said, and what was done about them; of a run that recorded no events, as they would be said now."""
    said = [] if run.events else replay(run.records)[1]
    for event in run.events:
        if event.get("kind") != "phase":
            name, text, remedy = (str(event.get(part) or "") for part in ("name", "text", "remedy"))
            said.append(Alarm(name, int(event["step"]), text, remedy))
    return tuple(sorted(said, key=lambda one: one.step))


def open_run(path: Path) -> Run:
    """A run folder, which must have something to tell."""
    run = Run.open(path, thin=True)
    if not run.records and not run.config:
        missing = f"it has neither {METRICS} nor {CONFIG}"
        below = sorted(str(log.parent) for log in path.glob(f"*/{METRICS}"))[:_NAMED]
        hint = f", such as {', '.join(below)}" if below else ""
        raise RunError(f"{run.path} is not a run folder: {missing}; give the folder of a run{hint}")
    return run


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
