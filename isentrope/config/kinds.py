"""The settings that only one advantage estimator, loss or engine reads: a dataclass for each of this package's.

A part from outside brings its own (`options_class`). In a recipe they stand beside `kind`, in the part's table:
`[learn.advantage]`, `[learn.loss]`, `[engine]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from isentrope.config.algorithms import GIGPO_FORMS
from isentrope.config.schema import setting
from isentrope.core.part import NoOptions


@dataclass(frozen=True)
class ComparedOptions:
    stats: str = setting(
        "episodes",
        "what a group's mean and deviation are taken over: episodes, or turns, so that long episodes count more",
        choices=("episodes", "steps"),
    )


@dataclass(frozen=True)
class GrpoOptions(ComparedOptions):
    divide_by_std: bool = setting(True, "divide by the group's standard deviation")


@dataclass(frozen=True)
class GigpoOptions(ComparedOptions):
    divide_by_std: bool = setting(
        True, "divide by the group's standard deviation: both parts; in gigpo_mixed the episode part alone"
    )
    discount: float = setting(1.0, "γ per turn", low=0, high=1)
    step_weight: float = setting(1.0, "ω, weight of the step part", low=0)
    anchor: str = setting("exact", "states are the same if equal, or if similar enough", choices=("exact", "similar"))
    anchor_similarity: float = setting(0.9, "how similar two observations must be", above=0, high=1)


@dataclass(frozen=True)
class GaeOptions:
    divide_by_std: bool = setting(True, "standardise over the batch")
    discount: float = setting(1.0, "γ per token", low=0, high=1)
    gae_lambda: float = setting(1.0, "λ", low=0, high=1)
    credit: str = setting(
        "turn",
        "turn: credit flows back over all turns; token: within a turn, each of which gets the episode's return",
        choices=("turn", "token"),
    )


@dataclass(frozen=True)
class ClipOptions:
    clip_low: float = setting(0.2, "the ratio is clipped below 1 - clip_low", above=0)
    clip_high: float = setting(0.2, "the ratio is clipped above 1 + clip_high", above=0)


@dataclass(frozen=True)
class GpuOptions:
    memory: float = setting(0.4, "share of the GPU's memory that it may take", above=0, high=1)


@dataclass(frozen=True)
class TorchOptions:
    drafts: int = setting(
        0,
        "tokens that a pass may guess ahead, from what was said before; each is kept only if it is what is drawn "
        "(0: none; on a CPU, and on a GPU where the engine is the native one)",
        low=0,
        high=64,
    )


@dataclass(frozen=True)
class NativeOptions(TorchOptions, GpuOptions):
    """Also those of auto, which becomes one of the two."""


@dataclass(frozen=True)
class ServerOptions:
    url: str = setting("http://127.0.0.1:8000/v1", "address of the server, up to and with its /v1")
    model: str = setting("", "the model's name there; empty: the first that the server lists")
    key_env: str = setting(
        "auto",
        "environment variable that holds the key; auto: OPENAI_API_KEY, for api.openai.com and this machine alone; "
        "empty: no key",
    )
    concurrency: int = setting(16, "requests at a time", low=1)
    timeout: float = setting(120.0, "seconds to wait for an answer", above=0)
    retries: int = setting(5, "times a failed request is made again", low=0)
    price_in: float = setting(0.0, "price of a million prompt tokens", low=0)
    price_out: float = setting(0.0, "price of a million sampled tokens", low=0)


@dataclass(frozen=True)
class NearOptions:
    target: float = setting(0.5, "pass rate of what is played most often", low=0, high=1)
    width: float = setting(
        0.25, "how far from the target a pass rate may be and still be played a third as often", above=0
    )
    newest: float = setting(0.5, "weight of the newest step in a pass rate; 1: it alone counts", above=0, high=1)


@dataclass(frozen=True)
class PassRateOptions(NearOptions):
    new: float = setting(0.5, "share of a step's tasks that are new, while there are some", low=0, high=1)


@dataclass(frozen=True)
class KindsOptions(NearOptions):
    weights: dict[str, Any] = setting({}, "how often each kind is played, {easy = 1, hard = 3}; empty: by pass rate")


@dataclass(frozen=True)
class ScheduleOptions:
    stages: dict[str, Any] = setting({}, "kinds that are open from a step on: {1 = ['easy'], 50 = ['easy', 'hard']}")
    first: float = setting(
        0.1, "without stages: share of the split, from its beginning, that step 1 draws from", above=0, high=1
    )
    steps: int = setting(100, "without stages: the step from which all of the split is open", low=1)


KINDS: Mapping[str, Mapping[str, type[Any]]] = {
    "learn.advantage": {
        "reinforce": ComparedOptions,
        "rloo": ComparedOptions,
        "grpo": GrpoOptions,
        **dict.fromkeys(GIGPO_FORMS, GigpoOptions),
        "gae": GaeOptions,
    },
    "task.sampler": {
        "in_turn": NoOptions,
        "pass_rate": PassRateOptions,
        "kinds": KindsOptions,
        "schedule": ScheduleOptions,
    },
    "learn.loss": {"clip": ClipOptions, "sequence": ClipOptions, "policy_gradient": NoOptions},
    "engine": {
        "auto": NativeOptions,
        "torch": TorchOptions,
        "fast": NativeOptions,
        "vllm": GpuOptions,
        "openai": ServerOptions,
    },
}
"""Path of a table -> the kinds that it may name -> their settings."""
