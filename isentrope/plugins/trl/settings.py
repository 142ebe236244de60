"""Settings of TRL by our names, where both mean the same: what the doctor and tables know of a run of TRL."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from isentrope.config.text import as_table
from isentrope.methods.registry import Listed
from isentrope.plugins.trl.checks import CLIPPED

if TYPE_CHECKING:
    from isentrope.plugins.trl.looking import WatchedGRPOTrainer

_AGGREGATIONS = {"grpo": "episode", "dapo": "token", "dr_grpo": "constant"}


def settings_of(trainer: WatchedGRPOTrainer, listed: Sequence[Listed], tags: Sequence[str]) -> dict[str, Any]:
    """As tables within each other, of plain values."""
    args: Any = trainer.args
    every, window = args.steps_per_generation * trainer.num_iterations, args.gradient_accumulation_steps
    rollouts = max(1, window // every)  # that a step of ours has
    rows = args.per_device_train_batch_size * trainer.accelerator.num_processes * args.steps_per_generation * rollouts
    learn: dict[str, Any] = {
        "lr": float(args.learning_rate), "kl": float(trainer.beta), "kl_estimator": "k3",
        "grad_clip": float(args.max_grad_norm or 0), "epochs": trainer.num_iterations,
        "mini_batches": max(1, args.steps_per_generation // window), "advantage": {"kind": "grpo"},
        "warmup": _warmup(args, trainer.state.max_steps),
    }  # fmt: skip
    if trainer.loss_type in CLIPPED:
        learn["loss"] = {"clip_low": float(trainer.epsilon_low), "clip_high": float(trainer.epsilon_high)}
    if trainer.loss_type in _AGGREGATIONS:
        learn["aggregation"] = _AGGREGATIONS[trainer.loss_type]
    settings: dict[str, Any] = {
        "run": {"steps": math.ceil(trainer.state.max_steps * window / (every * rollouts)), "seed": int(args.seed)},
        "rollout": {
            "groups": rows // trainer.num_generations, "group_size": trainer.num_generations,
            "temperature": float(trainer.temperature),
        },
        "learn": learn,
    }  # fmt: skip
    adapters: Any = getattr(trainer.model, "peft_config", None)
    if isinstance(adapters, Mapping):
        ranks = [getattr(one, "r", 0) for one in cast("Mapping[str, Any]", adapters).values()]
        settings["policy"] = {"lora_rank": max(ranks, default=0)}
    if listed:
        methods = trainer.methods
        settings["methods"] = [method.name for method in methods]
        settings["method"] = {method.name: _plain(as_table(method.options)) for method in methods}
        settings["agent"] = {"action_tags": list(tags)}
    return settings


def _warmup(args: Any, updates: int) -> float:
    """As a share of all updates."""
    steps = float(args.get_warmup_steps(max(updates, 1)))
    return min(1.0, steps / max(updates, 1))


def _plain(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: list(cast("Any", value)) if isinstance(value, tuple) else value for key, value in table.items()}
