"""Phases and alarms of a run: from its entropy and events.jsonl, or else from the metrics `phase` and `alarm/NAME`."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from isentrope.charts.text import clipped, visible
from isentrope.watch.runs import Run

PHASES = ("descent", "eruption", "subsidence")
_MOST_TEXT = 1000
Span = tuple[int, int, str]  # first step, last step, name


def phases_of(run: Run) -> list[Span]:
    """The phases as spans that touch, the last one up to the run's last step.

    Told from the entropy curve, as the report does: the trainer notices an eruption some steps after its onset. Runs
    that recorded no change of phase are not looked through, and those that recorded no entropy have what was told.
    """
    told = _told(run)
    if told and all(name == PHASES[0] for _, _, name in told):
        return told
    dated = _dated(run)
    return dated if run.phases.eruptions or not told else told


def _dated(run: Run) -> list[Span]:
    steps, values = run.columns.between("entropy/token", run.phased, run.columns.rows)
    run.phased = run.columns.rows
    for step, value in zip(steps, values, strict=True):
        run.phases.look(step, value)
    spans = run.phases.spans()  # empty without an entropy
    starts = [*(span.first for span in spans), run.columns.last_step]
    return [(span.first, max(span.first, end), span.name) for span, end in zip(spans, starts[1:], strict=True)]


def _told(run: Run) -> list[Span]:
    """As the trainer told them at the time."""
    starts = [(int(event["step"]), str(event.get("name"))) for event in run.events if event.get("kind") == "phase"]
    if not starts:
        steps, values = run.columns.between("phase", 0, run.columns.rows)
        named = [(step, _phase(value)) for step, value in zip(steps, values, strict=True) if value is not None]
        starts = named[:1] + [b for a, b in pairwise(named) if a[1] != b[1]]
    starts = sorted((step, name) for step, name in starts if name in PHASES)
    if not starts:
        return []
    if starts[0][0] > 0 and starts[0][1] == PHASES[1]:  # only changes are recorded, and every run begins with a descent
        starts.insert(0, (0, PHASES[0]))
    ends = [*(step for step, _ in starts[1:]), max(run.columns.last_step, starts[-1][0])]
    return [(step, end, name) for (step, name), end in zip(starts, ends, strict=True)]


def alarms_of(run: Run) -> list[dict[str, Any]]:
    """The alarms and what was done about them in the order of their steps, each with its sentence."""
    alarms = [
        {
            "step": int(event["step"]),
            "name": _text(event.get("name")),
            "text": _text(event.get("text")),
            "remedy": _text(event.get("remedy")),
        }
        for event in run.events
        if event.get("kind") != "phase"  # an alarm, or what was done about one
    ]
    if not alarms:
        for key in run.columns.keys:
            if key.startswith("alarm/"):
                name = _text(key.removeprefix("alarm/"))
                steps, values = run.columns.between(key, 0, run.columns.rows)
                fired = [step for step, value in zip(steps, values, strict=True) if value]
                alarms += [{"step": step, "name": name, "text": f"Alarm: {name}", "remedy": ""} for step in fired]
    return sorted(alarms, key=lambda alarm: alarm["step"])


def _phase(value: float) -> str:
    return PHASES[int(value)] if 0 <= value < len(PHASES) else ""


def _text(value: object) -> str:
    return visible(clipped(value, _MOST_TEXT)) if isinstance(value, str) else ""
