"""What the clock says of a step: seconds by stage, where the time of the rollout went, tokens per second.

The stages of a step follow each other, so their seconds sum to those of the step. With rollout.ahead the episodes are
played while the step before is learnt from: then the stage `rollout` is the time that the loop waited for them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from isentrope.core.types import Episode
from isentrope.metrics.means import Metrics

# Whether other programs keep the cores busy.
#
# Threads that compute together wait for the last of them, so one that finds no free core holds up all: small matrix
# products on a CPU become many times slower. Linux tells it, other systems do not.


CROWDED = 0.25  # seconds of waiting in a second; with free cores it is about 0.01
_TASKS = Path("/proc/self/task")


def waited(tasks: Path = _TASKS) -> float | None:
    """Seconds that the threads of this process were ready to run and had no core, all together; None: not told."""
    nanoseconds, told = 0, False
    for thread in tasks.glob("*/schedstat"):
        try:
            nanoseconds += int(thread.read_text().split()[1])  # computed, waited, slices of time
            told = True
        except (OSError, ValueError, IndexError):
            continue  # a thread that has just ended, or another kernel's form
    return nanoseconds / 1e9 if told else None


class Cores:
    """How long threads waited for a core, in seconds a second, from one look to the next."""

    def __init__(self, tasks: Path = _TASKS) -> None:
        self._tasks = tasks
        self._time, self._waited = time.perf_counter(), waited(tasks)

    def look(self) -> float | None:
        now, waits = time.perf_counter(), waited(self._tasks)
        before, self._time, since, self._waited = self._waited, now, now - self._time, waits
        if waits is None or before is None or since <= 0:
            return None
        return max(0.0, waits - before) / since  # threads that have ended take their count with them


PARTS = ("engine", "tasks", "host", "tasks_idle")  # of a rollout; the last is a part of the first


def stage_metrics(seconds: Mapping[str, float]) -> Metrics:
    return {f"seconds/{stage}": spent for stage, spent in seconds.items()}


def speed_metrics(
    parts: Mapping[str, float], stages: Mapping[str, float], played: Sequence[Episode], learnt: Sequence[Episode]
) -> Metrics:
    """From the parts of the rollout (none are known of one that was restored) and the stages of the step."""
    sampled = sum(len(turn.response_ids) for episode in played for turn in episode.turns)
    read = sum(len(turn.response_ids) + len(turn.context_ids) for episode in learnt for turn in episode.turns)
    metrics = {f"rollout_seconds/{part}": parts[part] for part in PARTS if part in parts}
    if "play" in parts:
        metrics["tokens_per_second/rollout"] = sampled / max(parts["play"], 1e-9)
    if learnt:
        metrics["tokens_per_second/update"] = read / max(stages.get("update", 0.0), 1e-9)
    return metrics
