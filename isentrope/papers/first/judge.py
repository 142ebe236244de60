"""From the runs of studies to what is found of a claim. Pure: the same runs, in any order, give the same finding.

A part of a claim is judged in each setting by itself. A setting in which all parts hold lets the claim hold there; one
part that does not hold refutes it there. Settings that come to opposite verdicts leave the claim undecided.

The first edition's claims are read from `rules.json`. Nothing here changes any more. `book.json` has the digests of
these rules with their dates. They hashed the source as it stood then, so they stay as history and are not computed
again; what guards the first edition now is a test that recomputes every effect, interval and verdict of
docs/claims/first-edition.json from the kept runs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import NormalDist, fmean, stdev
from typing import Any

import numpy as np

from isentrope.core.stats import Interval, bootstrap, student_quantile
from isentrope.papers import measures
from isentrope.papers.measures import curve_of, erupted, mean, over
from isentrope.papers.record import Claim, Finding, Measure, Part, PartFinding, Select, Verdict, by_part
from isentrope.papers.select import Placed, cells_of, left_out, matches, no_runs, place, usable
from isentrope.study.read import StudyData, StudyRun

RULES = Path(__file__).with_name("rules.json")
BOOK = Path(__file__).with_name("book.json")


def room(successes: Sequence[float]) -> str | None:
    level = fmean(successes)
    told = f"the runs compared with are at success {level:.2f}: no room outside of 0.05 to 0.95"
    return None if 0.05 <= level <= 0.95 else told


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
        return erupted(run)
    return "responses of fewer than 40 tokens are too short for a sentence to stand twice"


FITNESS = {"has_room": has_room, "erupted": erupted, "erupted_in_words": erupted_in_words}
GROUND = {"room": room, "enough_erupt": enough_erupt}


@cache
def first_edition() -> tuple[Claim, ...]:
    table = json.loads(RULES.read_text(encoding="utf-8"))
    return tuple(Claim(**entry | {"parts": tuple(_part(part) for part in entry["parts"])}) for entry in table["claims"])


def _part(entry: Mapping[str, Any]) -> Part:
    told = dict(entry)
    fit, ground = told.pop("fit", None), told.pop("ground", None)
    told["runs"] = _select(told["runs"])
    told["against"] = tuple(_select(one) for one in told.get("against", ()))
    told["measure"] = _measure(told["measure"])
    return Part(**told, fit=FITNESS[fit] if fit else None, ground=GROUND[ground] if ground else None)


def _select(entry: Mapping[str, Any]) -> Select:
    names: Any = entry["algorithm"]
    told: dict[str, Any] = {**entry, "algorithm": names if isinstance(names, str) else tuple(names)}
    return Select(**told)


def _measure(entry: Mapping[str, Any]) -> Measure:
    keys, options = tuple(entry["keys"]), tuple(entry.get("options", {}).items())
    return Measure(getattr(measures, entry["function"]), entry["words"], keys, options)


# Intervals of a mean over seeds and of a share of runs, when they decide, and how many seeds would.
# The interval of a mean is that of studies (`isentrope/core/stats.py`): a bootstrap over seeds, never narrower than
# Student's. A claim with several parts is refuted by one of them only at a stricter level (Bonferroni), since among
# many parts one will look bad by chance; for it to hold, all parts must hold, so no correction is needed there.

MOST = 1000  # seeds; beyond that we say "more than"
USUAL = 0.95
LARGE = 200  # degrees of freedom from which Student's t is the normal's, to 1 %


def mean_interval(values: Sequence[float], level: float) -> Interval:
    """Of the mean over seeds, at least two of them: at 95 % that of the study, at other levels Student's around it."""
    found = bootstrap(values, summed_quantile(len(values) - 1))
    assert found.low is not None
    assert found.high is not None
    half = half_width(float(np.std(values, ddof=1)), len(values), level)
    if level < USUAL:
        return Interval(found.value - half, found.value + half)
    return Interval(min(found.low, found.value - half), max(found.high, found.value + half))


def half_width(deviation: float, count: int, level: float) -> float:
    return t_quantile(count - 1, level) * deviation / math.sqrt(count)


@cache
def summed_quantile(freedom: int) -> float:
    """The t of 95 %, to ten digits, as the study's intervals had it then.

    With t = √ν·tan θ the density is proportional to cos^(ν-1) θ on 0 to π/2, which a plain sum integrates well.
    """
    angle = np.linspace(0.0, math.pi / 2, 200_001)
    area = np.cumsum(np.cos((angle[1:] + angle[:-1]) / 2) ** (freedom - 1))
    at = float(np.interp(0.95 * float(area[-1]), area, angle[1:]))
    return math.sqrt(freedom) * math.tan(at)


def t_quantile(freedom: int, level: float) -> float:
    """The t that holds `level` of Student's distribution between -t and t; the normal's from `LARGE` freedoms on."""
    return NormalDist().inv_cdf((1 + level) / 2) if freedom >= LARGE else student_quantile(level, freedom)


def share_interval(share: float, count: float, level: float) -> Interval:
    """Wilson's interval of a share."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    centre = share + z * z / (2 * count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    scale = 1 + z * z / count
    return Interval(max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale))


def decide(part: Part, value: float, usual: Interval, strict: Interval) -> Verdict:
    """Holds: the usual interval is beyond the border and the value is at least the least that counts.

    Does not hold: the strict interval does not reach the least that counts. Else undecided.
    """
    sign = 1 if part.upwards else -1
    value, border, least = sign * value, sign * part.border, sign * part.least
    low, reach = (usual.low, strict.high) if part.upwards else (-usual.high, -strict.low)
    if reach < least:
        return Verdict.fails
    return Verdict.holds if low > border and value >= least else Verdict.open


def seeds_needed(part: Part, value: float, deviation: float, level: float, strict: float) -> int | None:
    """Seeds that would decide if value and deviation stayed as they are; None: more than `MOST`."""
    sign = 1 if part.upwards else -1
    value, border, least = sign * value, sign * part.border, sign * part.least
    holds = value >= least
    for count in range(2, MOST + 1):
        if part.shares:
            around = share_interval(abs(value), count, level if holds else strict)
            reached = around.low > border if holds else around.high < least
        else:
            half = half_width(deviation, count, level if holds else strict)
            reached = half < (value - border if holds else least - value)
        if reached:
            return count
    return None


Unit = tuple[str, int]  # algorithm and seed: what is paired


def find(claim: Claim, studies: Sequence[StudyData]) -> Finding:
    """The verdict on a claim: by setting, then over the settings."""
    placed = place(studies)
    concerned = [one for one in placed if any(matches(part.runs, one) for part in claim.parts)]
    settings = sorted({one.setting for one in [one for one in concerned if one.run.steps] or concerned})
    found: list[tuple[PartFinding, ...]] = []
    for setting in settings:
        here = [one for one in placed if one.setting == setting]
        found.append(tuple(_judge(claim, part, here, setting) for part in claim.parts))
    verdicts = [_of_setting(parts) for parts in found]
    every = tuple(part for parts in found for part in parts)
    if not found:
        return no_runs(claim)
    decided = {verdict for verdict in verdicts if verdict != Verdict.open}
    if len(decided) > 1:
        said = "; ".join(f"{one}: {verdict}" for one, verdict in zip(settings, verdicts, strict=True))
        return Finding(claim.id, Verdict.open, f"settings disagree ({said})", every, "")
    if decided:
        verdict = decided.pop()
        deciding = [part for part in found[verdicts.index(verdict)] if part.counts and part.verdict == verdict]
        return Finding(claim.id, verdict, by_part((part.reason, part.part) for part in deciding), every)
    nearest = max(found, key=lambda parts: sum(len(part.seeds) for part in parts))
    waits = [part for part in nearest if part.counts and part.verdict == Verdict.open]
    reason, decides = (by_part((getattr(part, field), part.part) for part in waits) for field in ("reason", "decides"))
    return Finding(claim.id, Verdict.open, reason, every, decides)


def _of_setting(parts: Sequence[PartFinding]) -> Verdict:
    voices = [part.verdict for part in parts if part.counts]
    if Verdict.fails in voices:
        return Verdict.fails
    return Verdict.holds if all(voice == Verdict.holds for voice in voices) else Verdict.open


def _judge(claim: Claim, part: Part, here: Sequence[Placed], setting: str) -> PartFinding:
    treated = [one for one in here if matches(part.runs, one)]
    # of the kinds of controls that the rule names, the first that there are runs of
    kinds = [[one for one in here if matches(wanted, one)] for wanted in part.against]
    compared = next((runs for runs in kinds if runs), list[Placed]())
    notes, cells = left_out([*treated, *compared], claim), cells_of(part)
    empty = PartFinding(part.name, setting, Verdict.open, "", part.counts, notes=notes, unit=part.unit)

    def open_for(reason: str, decides: str) -> PartFinding:
        return replace(empty, reason=reason, decides=decides)

    if not treated or (part.against and not compared):
        missing = part.runs if not treated else part.against[0]
        return open_for(f"no runs of {missing.words()}", f"{claim.least_seeds} seeds of {cells}")
    treated, compared = usable(treated, claim), usable(compared, claim)
    if not treated or (part.against and not compared):
        reason = f"no finished run of at least {claim.least_steps} steps"
        return open_for(reason, f"{claim.least_seeds} such seeds of {cells}")
    if part.fit is not None:
        reasons = {one.name: part.fit(one.run) for one in treated}
        treated = [one for one in treated if reasons[one.name] is None]
        unfit = [reason for reason in reasons.values() if reason]
        if not treated:
            return open_for(unfit[0], f"{claim.least_seeds} seeds of {cells} where this is not so")
        empty = replace(empty, notes=(*notes, f"{len(unfit)} runs left out: {unfit[0]}")) if unfit else empty
    numbers, bases = _numbers(part, treated), _numbers(part, compared)
    if not numbers or (part.against and not bases):
        return open_for(f"the runs do not tell {part.measure.words}", claim.needs)
    if part.ground is not None and (why := part.ground(list(bases.values() if part.against else numbers.values()))):
        return open_for(why, "a setting where this is not so")
    effects = numbers
    if part.against:
        both = {unit: (value, bases[unit]) for unit, value in numbers.items() if unit in bases}
        effects = {unit: value - base for unit, (value, base) in both.items()}
        if part.compare == "relative":
            effects = {unit: (value - base) / base for unit, (value, base) in both.items() if base > 0}
    if len(effects) < claim.least_seeds:
        kind = "pairs of runs" if part.against else "runs that tell it"
        found = f"{len(effects)} {kind}, at least {claim.least_seeds} are needed"
        return open_for(found, f"{claim.least_seeds} seeds of {cells}")
    names, base_names = (tuple(one.name for one in runs if one.unit in effects) for runs in (treated, compared))
    return _decided(claim, part, effects, replace(empty, runs=names, controls=base_names))


def _decided(claim: Claim, part: Part, effects: Mapping[Unit, float], found: PartFinding) -> PartFinding:
    values = [effects[unit] for unit in sorted(effects)]
    value = fmean(values)
    level, strict_level = claim.confidence, 1 - (1 - claim.confidence) / max(1, claim.voices)
    usual, strict = _interval(part, values, level), _interval(part, values, strict_level)
    verdict, decides = decide(part, value, usual, strict), ""
    if verdict == Verdict.open:
        count = seeds_needed(part, value, stdev(values), level, strict_level)
        decides = f"more than {MOST} seeds"
        if count is not None:
            decides = f"about {max(count, len(values) + 1)} seeds, if effect and spread stay"
    return replace(
        found, verdict=verdict, reason=said(part, verdict, usual), value=value, interval=usual, strict=strict,
        seeds=tuple(sorted({seed for _, seed in effects})), decides=decides,
    )  # fmt: skip


def said(part: Part, verdict: Verdict, usual: Interval) -> str:
    beyond, reach = ("above", "at least") if part.upwards else ("below", "at most")
    if verdict == Verdict.holds:
        size = "" if part.border == part.least else f", the mean is {reach} {part.least:g}"
        return f"the interval lies {beyond} {part.border:g}{size}"
    if verdict == Verdict.fails:
        return f"the interval lies {'below' if part.upwards else 'above'} {part.least:g}"
    inside = usual.low <= part.border <= usual.high
    return f"the interval includes {part.border:g}" if inside else f"it may be on either side of {part.least:g}"


def _interval(part: Part, values: Sequence[float], level: float) -> Interval:
    if part.shares:
        return share_interval(fmean(values), len(values), level)
    return mean_interval(values, level)


def _numbers(part: Part, runs: Sequence[Placed]) -> dict[Unit, float]:
    """By algorithm and seed; several cells of one kind are averaged."""
    found: dict[Unit, list[float]] = {}
    for one in runs:
        value = part.measure(one.run)
        if value is not None:
            found.setdefault(one.unit, []).append(value)
    return {unit: fmean(values) for unit, values in found.items()}
