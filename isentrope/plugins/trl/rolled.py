"""A rollout of TRL as the instruments keep it until it was learnt from, and what they ask of it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from isentrope.core.types import Episode, Metrics
from isentrope.models.chat.tokenizer import piece_reader
from isentrope.plugins.played import Numbers, Row

STATE = "isentrope_run.json"
EPISODE = "isentrope_episode"
"""Under this key a rollout function of ours hands on the game that a row was played in."""
KINDS, _KIND_CHARS = 40, 40
OF_PASS = {
    "kl": "kl/k3", "clip_ratio/region_mean": "clip/fraction", "clip_ratio/low_mean": "clip/low",
    "clip_ratio/high_mean": "clip/high", "policy_loss": "loss/policy",
}  # fmt: skip
OF_ROLLOUT = {
    "sampling/sampling_logp_difference/mean": "mismatch/logp_mean",
    "sampling/sampling_logp_difference/max": "mismatch/logp_max",
    "sampling/importance_sampling_ratio/mean": "mismatch/ratio_mean",
    "sampling/importance_sampling_ratio/max": "mismatch/ratio_max",
}  # fmt: skip
MODES = {"grpo": "episode", "sapo": "episode", "dr_grpo": "constant", "luspo": "constant"}  # else token


@dataclass
class Sampled:
    """What TRL's `_generate` and its reward functions gave, of this process; rewards of all."""

    prompts: Sequence[Any] = ()
    prompt_ids: Sequence[Sequence[int]] = ()
    ids: Sequence[Sequence[int]] = ()
    masks: Sequence[Sequence[int]] | None = None
    rewards: Tensor | None = None
    began: float = 0.0


@dataclass
class Rolled:
    """A rollout and what was learnt from it so far. Tensors are those of this process."""

    sampled: Sampled
    inputs: Sequence[Mapping[str, Any]]
    advantages: Tensor  # as they are learnt from
    before: Tensor  # as TRL estimated them
    learnt_B: Tensor  # bool: rows that TRL has not masked
    columns: int
    first: int  # the number of this process's first row
    size: int  # of a group
    seconds: float
    logp_BT: Tensor | None = None
    entropy_BT: Tensor | None = None
    ratio_BT: Tensor | None = None
    scored: bool = False  # whether TRL scored it before it learnt from it
    passes: int = 0
    losses: list[Tensor] = field(default_factory=list[Tensor])  # since the last update
    ratios: list[Tensor] = field(default_factory=list[Tensor])
    figures: list[Metrics] = field(default_factory=list[Metrics])  # of passes
    updates: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    metrics: Metrics = field(default_factory=dict[str, float])


@dataclass(frozen=True)
class Brought:
    """A rollout of all processes."""

    rows: list[Row]
    numbers: list[Numbers]
    reward_B: Any
    before_B: Any
    totals: list[tuple[float, ...]]  # loss of each update, mean over the processes
    ratios: Any  # least, largest, sum, sum of k3, count


def rewards_of(done: Sequence[Rolled], names: Sequence[str]) -> Metrics:
    """The mean of each reward function, where it gave any."""
    given = torch.cat([one.sampled.rewards for one in done if one.sampled.rewards is not None]).double().cpu()
    keys = [re.sub(r"[^\w.-]", "-", str(name))[:64] or "unnamed" for name in names]
    averages = cast("list[float]", torch.nanmean(given, dim=0).tolist())
    return {f"rewards/{key}": float(mean) for key, mean in zip(keys, averages, strict=True) if not math.isnan(mean)}


def last(metrics: Mapping[str, Sequence[float]], names: Mapping[str, str]) -> Metrics:
    """What TRL recorded last under its names, by ours."""
    return {ours: float(metrics[theirs][-1]) for theirs, ours in names.items() if metrics.get(theirs)}


def means(records: Sequence[Mapping[str, float]]) -> Metrics:
    keys = dict.fromkeys(key for record in records for key in record)
    return {key: float(np.mean([record[key] for record in records if key in record])) for key in keys}


def parts(rolled: Rolled) -> tuple[bool, ...]:
    """Which of the columns there are that all processes bring together."""
    columns = (rolled.logp_BT, rolled.entropy_BT, rolled.ratio_BT)
    return (*(column is not None for column in columns), bool(rolled.updates), bool(rolled.ratios))


def put(whole: Tensor | None, rows_B: Tensor, values: Tensor, rolled: Rolled) -> Tensor:
    """The values of these rows among those of the rollout; NaN where there are none yet."""
    if whole is None:
        whole = values.new_full((len(rolled.before), rolled.columns), torch.nan)
    whole[rows_B] = values
    return whole


def wide(advantages: Tensor, columns: int) -> Tensor:
    return advantages if advantages.ndim > 1 else advantages[:, None].expand(-1, columns)


def stored(prompt: Any) -> Any:
    """Of messages the last one: pictures and long conversations stay where they are."""
    return cast("list[Any]", prompt)[-1:] if isinstance(prompt, list) else prompt


def told_of(row: Mapping[str, Any]) -> tuple[str, int | None]:
    """What a row of the data set says of its task."""
    kind, index = row.get("kind"), row.get("index")
    number = index if type(index) is int and 0 <= index < 1 << 53 else None
    return (kind[:_KIND_CHARS] if isinstance(kind, str) else ""), number


def game_of(row: Mapping[str, Any]) -> Episode | None:
    game = row.get(EPISODE)
    return game if isinstance(game, Episode) else None


def read_state(checkpoint: Path) -> dict[str, Any]:
    """Empty where the checkpoint has none: of a run without instruments."""
    path = checkpoint / STATE
    if not path.is_file():
        return {}
    state: Any = json.loads(path.read_text())
    if not isinstance(state, dict):
        raise ValueError(f"{path} is no table")
    folder = cast("dict[str, Any]", state).get("folder")
    if not isinstance(folder, str) or Path(folder).name != folder:
        raise ValueError(f"{path} names no folder")
    return cast("dict[str, Any]", state)


def reader_of(tokenizer: Any) -> Callable[[int], bytes]:
    """The bytes of each token; empty ones for a tokenizer that cannot say."""
    return piece_reader(tokenizer) if hasattr(tokenizer, "backend_tokenizer") else _no_text


def _no_text(number: int) -> bytes:
    return b""
