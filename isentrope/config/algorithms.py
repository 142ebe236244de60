"""The base algorithms, each a set of defaults for [learn].

An algorithm is an advantage estimator (`learn.advantage`), a loss (`learn.loss`) and a few numbers. Naming one lays its
values under the recipe: what is said beside it wins, so any part can be exchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast


@dataclass(frozen=True)
class Algorithm:
    summary: str
    paper: str
    settings: dict[str, Any] = field(default_factory=dict[str, Any])


GIGPO_FORMS = ("gigpo", "gigpo_mixed")  # the kinds of learn.advantage that have a step part
_MIXED = {"advantage": {"kind": "gigpo_mixed", "discount": 0.95}}

ALGORITHMS: dict[str, Algorithm] = {
    "reinforce": Algorithm(
        "the plain policy gradient; each return is compared with the batch mean",
        "Williams 1992",
        {"advantage": {"kind": "reinforce"}, "loss": {"kind": "policy_gradient"}, "kl": 0.0},
    ),
    "rloo": Algorithm(
        "each return is compared with the mean of the rest of its group",
        "arXiv:2402.14740",
        {"advantage": {"kind": "rloo"}, "kl": 0.0},
    ),
    "grpo": Algorithm("returns are standardised within their group; clipped ratio and KL", "arXiv:2402.03300"),
    "dr_grpo": Algorithm(
        "GRPO without the two biases: no division by the deviation, a constant length",
        "arXiv:2503.20783",
        {"advantage": {"kind": "grpo", "divide_by_std": False}, "aggregation": "constant", "kl": 0.0},
    ),
    "dapo": Algorithm(
        "GRPO with a higher upper clip, no KL, equal groups played again, long responses punished",
        "arXiv:2503.14476",
        {
            "loss": {"kind": "clip", "clip_high": 0.28},
            "kl": 0.0,
            "aggregation": "token",
            "resample": 3,
            "overlong": 0.2,
        },
    ),
    "gspo": Algorithm(
        "GRPO with one ratio per response, tightly clipped",
        "arXiv:2507.18071",
        {
            "loss": {"kind": "sequence", "clip_low": 3e-4, "clip_high": 4e-4},
            "aggregation": "sequence",
            "kl": 0.0,
        },
    ),
    "gigpo": Algorithm(
        "GRPO plus a comparison of single steps taken from the same state, both normalised alike",
        "arXiv:2505.10978",
        {"advantage": {"kind": "gigpo", "discount": 0.95}},
    ),
    "gigpo_mixed": Algorithm(
        "GiGPO whose step part is never divided: a form nobody published, kept to read and repeat earlier runs",
        "none; after arXiv:2505.10978",
        _MIXED,
    ),
    "ppo": Algorithm(
        "a critic estimates values; advantages by GAE, token by token",
        "arXiv:1707.06347",
        {"advantage": {"kind": "gae"}, "kl": 0.0},
    ),
    "grpo_plus": Algorithm(
        "leave-one-out, no deviation, constant length, higher clip, cut-off episodes left out: the DeepSWE recipe",
        "DeepSWE, 2025",
        {
            "advantage": {"kind": "rloo"},
            "loss": {"kind": "clip", "clip_high": 0.28},
            "kl": 0.0,
            "aggregation": "constant",
            "mask_truncated": True,
        },
    ),
    "recommended": Algorithm(
        "what our own study favours, at present GiGPO in the mixed form that it ran, without an entropy method",
        "isentrope docs claims",
        _MIXED,
    ),
}


def with_algorithm(table: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe's table with the defaults of its algorithm under the values it gives itself."""
    learn = table.get("learn")
    if not isinstance(learn, Mapping):
        return dict(table)
    given = dict(cast("Mapping[str, Any]", learn))
    known = ALGORITHMS.get(str(given.get("algorithm")))
    return {**table, "learn": merge(known.settings, given)} if known else dict(table)


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Two tables as one, table by table; what `above` says wins. A table whose `kind` changes begins anew: its other
    settings belonged to the kind before."""
    merged: dict[str, Any] = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            mine, theirs = cast("Mapping[str, Any]", old), cast("Mapping[str, Any]", value)
            other = "kind" in theirs and "kind" in mine and mine["kind"] != theirs["kind"]
            merged[key] = dict(theirs) if other else merge(mine, theirs)
        else:
            merged[key] = value
    return merged
