"""Whether a claim can be tested on given runs at all: the premises of its parts, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from isentrope.claims.inference import one_arm, two_arms
from isentrope.claims.record import BOTH, CONTROL, POOLED, TREATED, Premise, PremiseFinding, Select
from isentrope.claims.select import Placed, cells_with, pooled, samples
from isentrope.core.stats import Interval

CLEAR = 0.95  # level of the interval that shows a difference to be clear of 0
LEVEL = 0.9  # of that which decides a border: each side is wrong in one case of twenty
Arms = Mapping[str, Sequence[Placed]]  # the runs of a part: treated, control


def check(premise: Premise, arms: Arms, here: Sequence[Placed]) -> PremiseFinding:
    """`here`: all usable runs of the setting. Where several arms are asked, each of them must meet the premise."""
    groups = _groups(premise, arms, here)
    if premise.clear:
        return _clear(premise, groups[0], here)
    found = [_beyond(premise, group, here) for group in groups]
    return next(one for met in (False, None, True) for one in found if one.met is met)


def _beyond(premise: Premise, group: Sequence[Placed], here: Sequence[Placed]) -> PremiseFinding:
    """Whether the mean over a group lies on the right side of the border."""
    numbers = samples(premise.measure, group)
    base = samples(premise.measure, pooled(premise.against, here)) if premise.against else []
    if not numbers or (premise.against and not any(one.value > 0 for one in base)):
        return PremiseFinding(premise.name, None, f"the runs do not tell {premise.measure.words}", premise.remedy)
    value = fmean(one.value for one in numbers)
    if premise.counted:
        return _told(premise, value, value - premise.border, None)
    if min(len(numbers), len(base) if premise.against else 2) < 2:
        return PremiseFinding(premise.name, None, f"one run tells {premise.measure.words}", premise.remedy)
    spread = premise.measure.spread
    if premise.against:  # ours over theirs is beyond the border if ours is beyond that share of theirs
        scaled = [replace(one, value=premise.border * one.value) for one in base]
        apart = two_arms(numbers, scaled, (), spread)
        return _told(premise, value / fmean(one.value for one in base), apart.value, apart.interval(LEVEL))
    found = one_arm(numbers, cells_with(premise.measure, here), spread)
    around = found.interval(LEVEL)
    shifted = Interval(around.low - premise.border, around.high - premise.border)
    return _told(premise, found.value, found.value - premise.border, shifted)


def _told(premise: Premise, value: float, beyond: float, around: Interval | None) -> PremiseFinding:
    """`beyond`: by how much the number exceeds the border, with its interval."""
    low, high = (beyond, beyond) if around is None else (around.low, around.high)
    low, high = (low, high) if premise.upwards else (-high, -low)
    met = True if low >= 0 else False if high < 0 else None
    wanted = f"{'at least' if premise.upwards else 'at most'} {premise.border:g}"
    what = premise.measure.words + (f", over that of {premise.against.words()}" if premise.against else "")
    half = "" if around is None or premise.against else f" ± {(around.high - around.low) / 2:.2g}"
    state = "" if met is not None else ", which is not clear"
    return PremiseFinding(premise.name, met, f"{what}: {value:.3g}{half}, {wanted} is needed{state}", premise.remedy)


def _clear(premise: Premise, group: Sequence[Placed], here: Sequence[Placed]) -> PremiseFinding:
    assert premise.against is not None
    ours, theirs = (samples(premise.measure, runs) for runs in (group, pooled(premise.against, here)))
    if min(len(ours), len(theirs)) < 2:
        told = f"too few runs to compare {premise.measure.words} with {premise.against.words()}"
        return PremiseFinding(premise.name, None, told, premise.remedy)
    names = {one.name for one in (*group, *pooled(premise.against, here))}
    cells = cells_with(premise.measure, [one for one in here if one.name not in names])
    found = two_arms(ours, theirs, cells, premise.measure.spread)
    around = found.interval(CLEAR)
    told = f"{premise.measure.words}, less that of {premise.against.words()}: {found.value:+.3g}"
    told += f" [{around.low:+.3g}, {around.high:+.3g}], which must leave out 0"
    return PremiseFinding(premise.name, around.low > 0 or around.high < 0, told, premise.remedy)


def _groups(premise: Premise, arms: Arms, here: Sequence[Placed]) -> list[Sequence[Placed]]:
    if isinstance(premise.runs, Select):
        return [pooled(premise.runs, here)]
    if premise.runs == POOLED:
        return [[*arms[TREATED], *arms[CONTROL]]]
    wanted = {TREATED: (TREATED,), CONTROL: (CONTROL,), BOTH: (TREATED, CONTROL)}[premise.runs]
    return [arms[name] for name in wanted]
