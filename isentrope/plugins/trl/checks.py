"""What the plug-in can carry: which versions of TRL, which of its settings, which methods."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence
from typing import Any

from isentrope.core.errors import ConfigError, TrainError
from isentrope.core.method import Method

TESTED = ("1.16.0",)
EXTENSION_POINTS = (
    "_generate", "_calculate_rewards", "_generate_and_score_completions", "_get_per_token_logps_and_entropies",
    "_prepare_inputs", "_compute_loss", "_save_checkpoint", "_load_optimizer_and_scheduler",
)  # fmt: skip
CLIPPED = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo")
"""TRL's losses in which `epsilon_high` is how far above 1 a ratio is clipped."""


def check_version(version: str, trainer: type[Any]) -> None:
    """A version that was not tested may do; one without the extension points cannot."""
    absent = [name for name in EXTENSION_POINTS if not callable(getattr(trainer, name, None))]
    scoring = getattr(trainer, "_get_per_token_logps_and_entropies", None)
    if scoring is not None and "compute_entropy" not in inspect.signature(scoring).parameters:
        absent.append("_get_per_token_logps_and_entropies(compute_entropy=...)")
    tested = ", ".join(TESTED)
    if absent:
        raise ConfigError(
            f"TRL {version}: its GRPOTrainer has no {', '.join(absent)}, which the methods need; tested with "
            f"{tested}: pip install 'trl=={tested.rpartition('.')[0]}.*'"
        )
    if version not in TESTED:
        warnings.warn(
            f"TRL {version} was not tested with isentrope.plugins.trl (tested: {tested}). Its extension points are "
            "there, so the run goes on; compare a short run of it with one of a tested version",
            stacklevel=4,
        )


def refuse_sampling(methods: Sequence[Method]) -> None:
    """TRL samples by itself, so a method cannot change how."""
    instead = {"higher_temperature": "; set GRPOConfig(temperature=...)", "no_think": "; ask for it in the prompt"}
    said = [
        f"method {method.name}: it changes how responses are sampled (its hook `{hook}`), and TRL samples by itself"
        f"{instead.get(method.name, '; train with isentrope train, or leave it out')}"
        for method in methods
        for hook in _sampling_hooks(method)[:1]
    ]
    if said:
        raise ConfigError("\n".join(said))


def _sampling_hooks(method: Method) -> list[str]:
    kind = type(method)
    changed = [name for name in ("plan", "evaluation") if getattr(kind, name) is not getattr(Method, name)]
    return changed + (["orders"] if method.orders else [])


def refuse_settings(args: Any) -> None:
    """Settings of TRL under which the methods would compute something else than they say."""
    window, rollout = args.gradient_accumulation_steps, args.steps_per_generation
    if rollout % window:
        raise ConfigError(
            f"steps_per_generation = {rollout} with gradient_accumulation_steps = {window}: an update would mix "
            "several rollouts; make steps_per_generation a multiple of gradient_accumulation_steps (TRL's default: "
            "the same)"
        )
    if args.fp16:
        raise ConfigError("fp16 = True scales the loss, and what the methods add with it; use bf16 or float32")


def check_masks(completions: Sequence[Sequence[int]], masks: Sequence[Sequence[int]] | None) -> None:
    """Masks that are cut: TRL would fill them up with ones, and count the environment's tokens as the model's."""
    if masks is None:
        return
    if len(masks) != len(completions):
        raise TrainError(f"env_mask has {len(masks)} rows for {len(completions)} completions: expected one for each")
    for row, (ids, mask) in enumerate(zip(completions, masks, strict=True)):
        if len(mask) != len(ids):
            raise TrainError(
                f"completion {row} has {len(ids)} tokens and a mask of {len(mask)}: expected 1 (the model's token) or "
                "0 (the environment's) for each; look at env_mask of the rollout_func"
            )
        if not set(mask) <= {0, 1}:
            raise TrainError(f"the mask of completion {row} has {sorted(set(mask) - {0, 1})[0]!r}: expected 0 and 1")
