"""Whether a claim can be tested on given runs at all: the premises of its parts, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from isentrope.claims.inference import two_arms
from isentrope.claims.record import BOTH, CONTROL, TREATED, Measure, Premise, PremiseFinding, Select
from isentrope.claims.select import Placed, cells_with, pooled, samples

LEVEL = 0.95  # of the interval that shows a difference to be clear of 0
Arms = Mapping[str, Sequence[Placed]]  # the runs of a part: treated, control


def check(premise: Premise, arms: Arms, here: Sequence[Placed]) -> PremiseFinding:
    """`here`: all usable runs of the setting. Where several arms are asked, each of them must meet the premise."""
    groups = _groups(premise, arms, here)
    if premise.clear:
        return _clear(premise, groups[0], here)
    numbers = [_mean(premise.measure, group) for group in groups]
    if premise.against is not None:
        base = _mean(premise.measure, pooled(premise.against, here))
        numbers = [None if one is None or not base else one / base for one in numbers]
    known = [one for one in numbers if one is not None]
    if not known or len(known) < len(numbers):
        return PremiseFinding(premise.name, None, f"the runs do not tell {premise.measure.words}", premise.remedy)
    worst = min(known) if premise.upwards else max(known)
    met = worst >= premise.border if premise.upwards else worst <= premise.border
    wanted = f"{'at least' if premise.upwards else 'at most'} {premise.border:g}"
    what = premise.measure.words + (f", over that of {premise.against.words()}" if premise.against else "")
    return PremiseFinding(premise.name, met, f"{what}: {worst:.3g}, {wanted} is needed", premise.remedy)


def _clear(premise: Premise, group: Sequence[Placed], here: Sequence[Placed]) -> PremiseFinding:
    assert premise.against is not None
    ours, theirs = (samples(premise.measure, runs) for runs in (group, pooled(premise.against, here)))
    if min(len(ours), len(theirs)) < 2:
        told = f"too few runs to compare {premise.measure.words} with {premise.against.words()}"
        return PremiseFinding(premise.name, None, told, premise.remedy)
    names = {one.name for one in pooled(premise.against, here)}
    found = two_arms(ours, theirs, cells_with(premise.measure, [one for one in here if one.name not in names]))
    around = found.interval(LEVEL)
    told = f"{premise.measure.words}, less that of {premise.against.words()}: {found.value:+.3g}"
    told += f" [{around.low:+.3g}, {around.high:+.3g}], which must leave out 0"
    return PremiseFinding(premise.name, around.low > 0 or around.high < 0, told, premise.remedy)


def _groups(premise: Premise, arms: Arms, here: Sequence[Placed]) -> list[Sequence[Placed]]:
    if isinstance(premise.runs, Select):
        return [pooled(premise.runs, here)]
    wanted = {TREATED: (TREATED,), CONTROL: (CONTROL,), BOTH: (TREATED, CONTROL)}[premise.runs]
    return [arms[name] for name in wanted]


def _mean(measure: Measure, runs: Sequence[Placed]) -> float | None:
    found = [value for one in runs if (value := one.number(measure)) is not None]
    return fmean(found) if found else None
