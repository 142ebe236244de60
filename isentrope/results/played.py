"""The settings of an evaluation that a record keeps."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from isentrope.config.schema import RunConfig
from isentrope.config.text import as_table
from isentrope.core.types import RolloutPlan
from isentrope.results.rows import SAME_TEST


def played_settings(config: RunConfig, plan: RolloutPlan, episodes: int) -> dict[str, Any]:
    """Those that tables compare, by their full names; what was really played, whatever the recipe says."""
    played = {"agent.order": plan.order, "eval.temperature": plan.temperature, "eval.episodes": episodes}
    told = {key: value for key, value in _leaves(config) if key in SAME_TEST}
    told |= {"engine.kind": config.engine.kind, "methods": list(config.methods), **played}
    plain: dict[str, Any] = json.loads(json.dumps(told, default=str, sort_keys=True))
    return plain


def digest(config: RunConfig, settings: Mapping[str, Any], all_games: bool) -> str:
    """Of all that decides what is measured, but for the model: not of where it runs or how it was trained."""
    run, task = config.run, config.task
    told = {key: value for key, value in settings.items() if key != "methods"}
    told |= {"run.seed": run.seed, "run.dtype": run.dtype, "run.weights": run.weights}
    told |= {"eval.splits": list(config.eval.splits), "eval.games": "all" if all_games else config.eval.games}
    told |= {"task.success_reward": task.success_reward, "task.invalid_reward": task.invalid_reward}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _leaves(config: RunConfig) -> Iterator[tuple[str, Any]]:
    for section, table in as_table(config).items():
        if isinstance(table, dict) and section != "method":
            yield from ((f"{section}.{key}", value) for key, value in table.items())  # type: ignore[union-attr]
