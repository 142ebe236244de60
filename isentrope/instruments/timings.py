"""What the clock says of a step: seconds by stage, where the time of the rollout went, tokens per second.

The stages of a step follow each other, so their seconds sum to those of the step. With rollout.ahead the episodes are
played while the step before is learnt from: then the stage `rollout` is the time that the loop waited for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from isentrope.instruments.means import Metrics
from isentrope.types import Episode

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
