"""Measures time: of the parts of a rollout, and of the stages of a step.

Parts of a rollout:
    engine   the engine works                    (tasks wait for it: `tasks_idle`, the part in which none is played)
    tasks    the engine has nothing to do and waits for tasks
    host     everything between: prompts, parsing, records

The stages of a step follow each other, so their seconds sum to those of the step. With rollout.ahead the episodes are
played while the step before is learnt from: then the stage `rollout` is the time that the loop waited for them.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager

from isentrope.core.types import Episode

Metrics = dict[str, float]
PARTS = ("engine", "tasks", "host", "tasks_idle")  # of a rollout; the last is a part of the first


class Clock:
    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, *stages: str) -> Generator[None]:
        """The time within counts for these stages."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - begin
            for stage in stages:
                self.seconds[stage] = self.seconds.get(stage, 0.0) + spent

    def split(self, stage: str, parts: Mapping[str, float]) -> None:
        """Count parts of a stage as stages of their own."""
        for part, seconds in parts.items():
            self.seconds[stage] -= seconds
            self.seconds[part] = self.seconds.get(part, 0.0) + seconds

    def take(self) -> dict[str, float]:
        """Seconds by stage since this was called last."""
        taken, self.seconds = self.seconds, {}
        if "play" in taken:
            taken["host"] = max(0.0, taken["play"] - taken.get("engine", 0.0) - taken.get("tasks", 0.0))
        return taken


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
