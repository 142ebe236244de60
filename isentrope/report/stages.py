"""What the clock of a run says in words: how much of the time the engine sampled, and what it waited for most."""

from __future__ import annotations

from collections.abc import Sequence

from isentrope.report.text import percent
from isentrope.runs.log import Record

LEARNING = ("score", "shape", "probe", "update")
KEEPING = ("store", "observe", "checkpoint")
REASONS = {
    "tasks": "it waited for tasks to answer: more task.workers, or quicker tasks, would shorten it",
    "host": "this machine wrote prompts, read responses and recorded turns",
    "learning": "the policy learnt, and the next episodes are played with the new weights: rollout.ahead = 1 would "
    "play them meanwhile, one update late",
    "longer": "the policy still learnt from one step when the episodes of the next were ready",
    "keeping": "episodes, metrics and checkpoints were written",
}


def idle_sentence(records: Sequence[Record]) -> str:
    """Of the steps' timings; nothing if they do not say what the engine did."""
    if not any("rollout_seconds/engine" in record for record in records):
        return ""
    stages = {name: _total(records, f"seconds/{name}") for name in ("rollout", *LEARNING, *KEEPING)}
    parts = {name: _total(records, f"rollout_seconds/{name}") for name in ("engine", "tasks", "host", "tasks_idle")}
    whole = sum(stages.values())
    playing = parts["engine"] + parts["tasks"] + parts["host"]
    beside = max(0.0, playing - stages["rollout"])  # played while something else was done
    ahead = beside > 0.01 * playing
    waits = {
        "tasks": parts["tasks"],
        "host": parts["host"],
        "longer" if ahead else "learning": max(0.0, sum(stages[name] for name in LEARNING) - beside),
        "keeping": sum(stages[name] for name in KEEPING),
    }
    if whole <= 0 or parts["engine"] <= 0:
        return ""
    name, longest = max(waits.items(), key=lambda wait: wait[1])
    told = f"The engine sampled {percent(min(1.0, parts['engine'] / whole))} of the time. "
    told += f"It was idle longest ({percent(min(1.0, longest / whole))}) while {REASONS[name]}."
    share = min(1.0, parts["tasks_idle"] / parts["engine"])
    return f"{told} For {percent(share)} of the sampling no task was being played: all waited for responses."


def _total(records: Sequence[Record], key: str) -> float:
    values = [record.get(key) for record in records]
    return sum(float(value) for value in values if isinstance(value, int | float) and 0 <= value < 1e100)
