"""The first edition's claims, read from `rules.json`. Nothing here changes any more.

`book.json` has the digests of these rules with their dates. They hashed the source as it stood then, so they stay as
history and are not computed again; what guards the first edition now is a test that recomputes every effect, interval
and verdict of docs/claims/first-edition.json from the kept runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from isentrope.papers import measures
from isentrope.papers import measures as eruptions
from isentrope.papers.measures import curve_of, mean, over
from isentrope.papers.record import Claim, Fitness, Ground, Measure, Number, Part, Select
from isentrope.study.read import StudyRun

RULES = Path(__file__).with_name("rules.json")
BOOK = Path(__file__).with_name("book.json")


def room(successes: Sequence[float]) -> str | None:
    level = fmean(successes)
    return (
        None
        if 0.05 <= level <= 0.95
        else f"the runs compared with are at success {level:.2f}: no room outside of 0.05 to 0.95"
    )


def enough_erupt(amplitudes: Sequence[float]) -> str | None:
    share = fmean(value > 0 for value in amplitudes)
    return None if share >= 0.5 else f"only {share:.0%} of the runs without the method erupted; half of them must"


def has_room(run: StudyRun) -> str | None:
    start = mean(curve_of(run, "valid_ratio").between(1, 3).values)
    if start is None or start <= 0.9:
        return None
    return "actions are valid from the start (more than 0.9): nothing is left to surge"


def erupted_in_words(run: StudyRun) -> str | None:
    tokens = over(run, "response/tokens")
    if tokens is None or tokens >= 40:
        return eruptions.erupted(run)
    return "responses of fewer than 40 tokens are too short for a sentence to stand twice"


FITNESS: dict[str, Fitness] = {
    "has_room": has_room,
    "erupted": eruptions.erupted,
    "erupted_in_words": erupted_in_words,
}
GROUND: dict[str, Ground] = {"room": room, "enough_erupt": enough_erupt}


@cache
def first_edition() -> tuple[Claim, ...]:
    table = json.loads(RULES.read_text(encoding="utf-8"))
    return tuple(_claim(entry) for entry in table["claims"])


def _claim(entry: Mapping[str, Any]) -> Claim:
    told: dict[str, Any] = {**entry, "parts": tuple(_part(part) for part in entry["parts"])}
    return Claim(**told)


def _part(entry: Mapping[str, Any]) -> Part:
    told = dict(entry)
    fit, ground = told.pop("fit", None), told.pop("ground", None)
    told["runs"] = _select(told["runs"])
    told["against"] = tuple(_select(one) for one in told.get("against", ()))
    told["measure"] = _measure(told["measure"])
    return Part(**told, fit=FITNESS[fit] if fit else None, ground=GROUND[ground] if ground else None)


def _select(entry: Mapping[str, Any]) -> Select:
    told = dict(entry)
    if not isinstance(told["algorithm"], str):
        told["algorithm"] = tuple(told["algorithm"])
    return Select(**told)


def _measure(entry: Mapping[str, Any]) -> Measure:
    function: Number = getattr(measures, entry["function"], None) or getattr(eruptions, entry["function"])
    return Measure(function, entry["words"], tuple(entry["keys"]), tuple(entry.get("options", {}).items()))
