"""Fingerprint of each decision rule, so that a change shows in review.

It is taken over the rule's texts and numbers, and over what its functions compute on made-up runs (`battery.py`), to
nine digits: code may be moved and rewritten as long as it computes the same. How findings become verdicts is shared by
all rules and has a fingerprint of its own.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, fields, is_dataclass, replace
from types import FunctionType
from typing import Any, cast

from isentrope.claims.battery import battery
from isentrope.claims.judge import find
from isentrope.claims.measures import converged_success, log_mean
from isentrope.claims.record import BOTH, CONTROL, Claim, Measure, Part, Premise, Select
from isentrope.claims.select import place

DECISION = "decision"
DIGITS = 9


def digest_of(claim: Claim) -> str:
    return _short(_plain(claim))


def digest_of_decision() -> str:
    """Over the findings of rules that try every way to a verdict."""
    placed = place(battery())
    return _short([_plain(asdict(found)) for claim in _trials() for found in find(claim, placed)])


def _trials() -> tuple[Claim, ...]:
    success = Measure(converged_success, "success", (), alike=(0.05, 0.95), by_kind=True)
    entropy = Measure(log_mean, "entropy", (), (("key", "entropy/token"), ("begin", 0.0), ("end", 0.5)))
    bare, other = Select("grpo"), Select("grpo", "epo")
    met = Premise("met", BOTH, success, 0.1, "more")
    unmet = Premise("unmet", CONTROL, success, 0.1, "less", upwards=False)
    clear = Premise("clear", other, entropy, 0.0, "more", against=bare, clear=True)
    ratio = Premise("ratio", other, success, 0.5, "more", against=bare)
    up = Part("up", other, success, 0.0, 0.02, (bare,), premises=(met, ratio), means=("above", "below"))
    down = Part("down", Select("grpo", "seal"), entropy, 0.0, -0.1, (bare,), upwards=False, premises=(clear,))
    alone = Part("alone", Select(("grpo", "gigpo")), entropy, 0.0, -0.1, upwards=False)
    shares = Part("shares", bare, Measure(_higher, "above", ()), 0.5, 0.5, shares=True)
    barred = Part("barred", other, success, 0.0, 0.02, (bare,), premises=(unmet,))
    missing = Part("missing", Select("ppo"), success, 0.0, 0.02, (bare,))
    refuted = Part("refuted", bare, success, 0.0, 0.05, (other,), means=("above", "below"))
    parts = {"two": (up, down), "one": (alone,), "shares": (shares,), "barred": (up, barred), "missing": (up, missing)}
    parts |= {"refuted": (refuted,), "three": (up, refuted, alone), "few": (replace(up, premises=()),)}
    return tuple(Claim(name, "", "", several, 50, "") for name, several in parts.items())


def _higher(run: Any) -> float:
    return float((converged_success(run) or 0.0) > 0.82)


def _plain(value: Any) -> Any:
    """What JSON can hold. A measure is told by what it says of the made-up runs, and so is a condition on runs."""
    if isinstance(value, float):
        return f"{value:.{DIGITS}g}"
    if isinstance(value, Measure):
        told = {one.name: getattr(value, one.name) for one in fields(value) if one.name != "function"}
        return _plain(told | {"computes": [value(run) for study in battery() for run in study.runs]})
    if isinstance(value, FunctionType):
        return [_plain(value(run)) for study in battery() for run in study.runs]
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in cast("dict[Any, Any]", value).items()}
    if isinstance(value, tuple | list):
        return [_plain(one) for one in cast("tuple[Any, ...]", value)]
    return value


def _short(plain: Any) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:16]
