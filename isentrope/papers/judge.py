"""Judges a claim on the runs of studies. Pure: the same runs, in any order, give the same findings.

A claim is judged for each language model by itself, and there in each setting. In a setting:

    not testable here   a premise of a part with a voice fails, and no other part is refuted
    holds               every part with a voice holds: its interval lies beyond the border, its mean is large enough
    does not hold       one part's interval does not reach the least that counts
    undecided           anything else

A premise that is neither clearly met nor clearly not leaves its part undecided, and so do planned runs that are not
finished: looking again and again until something is decided would find more than there is.

The more settings and parts there are, the more often chance alone would decide. With K settings in which something can
be tested and V parts with a voice, a part holds by its interval at 1 - α/K, and is refuted by that at 1 - α/(K V).
Settings that come to opposite verdicts leave the claim undecided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from isentrope.core.stats import Interval, clopper_pearson
from isentrope.papers.decide import SEEDS_TOLD, decide, said, seeds_needed
from isentrope.papers.inference import Estimate, by_seed, one_arm, two_arms
from isentrope.papers.record import Arm, Claim, Finding, Part, PartFinding, Premise, PremiseFinding, Verdict, by_part
from isentrope.papers.select import Placed, cells_of, cells_with, left_out, matches, no_runs, pooled, samples, usable
from isentrope.study.read import DONE, FAILED

# -- premises: whether a claim can be tested on given runs at all


CLEAR = 0.95  # level of the interval that shows a difference to be clear of 0
LEVEL = 0.9  # of that which decides a border: each side is wrong in one case of twenty
Arms = Mapping[Arm, Sequence[Placed]]  # the runs of a part: treated, control


def check(premise: Premise, arms: Arms, here: Sequence[Placed]) -> PremiseFinding:
    """`here`: all usable runs of the setting. Where several arms are asked, each of them must meet the premise."""
    if not isinstance(premise.runs, Arm):
        groups = [pooled(premise.runs, here)]
    elif premise.runs == Arm.pooled:
        groups = [[*arms[Arm.treated], *arms[Arm.control]]]
    else:
        groups = [arms[name] for name in ((Arm.treated, Arm.control) if premise.runs == Arm.both else (premise.runs,))]
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


@dataclass(frozen=True)
class _Measured:
    """A part in a setting, before it is decided."""

    part: Part
    found: PartFinding  # with the reason, if there is nothing to decide
    estimate: Estimate | None = None
    unclear: bool = False  # a premise is neither met nor fails: the effect is shown and decides nothing

    @property
    def to_decide(self) -> bool:
        return self.estimate is not None and self.found.verdict != Verdict.untestable and not self.unclear


def find(claim: Claim, placed: Sequence[Placed]) -> tuple[Finding, ...]:
    """What is found of a claim, for each model that its runs train."""
    concerned = [one for one in placed if any(matches(part.runs, one) for part in claim.parts)]
    begun = [one for one in concerned if one.run.steps] or concerned
    if not begun:
        return (no_runs(claim),)
    return tuple(_find(claim, placed, begun, model) for model in sorted({one.model for one in begun}))


def _find(claim: Claim, placed: Sequence[Placed], begun: Sequence[Placed], model: str) -> Finding:
    settings = sorted({one.setting for one in begun if one.model == model})
    measured: list[list[_Measured]] = []
    for setting in settings:
        here = [one for one in placed if one.setting == setting and one.model == model]
        measured.append([_measure(claim, part, here, setting) for part in claim.parts])
    testable = sum(any(one.to_decide and one.part.counts for one in parts) for parts in measured)
    level = 1 - (1 - claim.confidence) / max(1, testable)
    strict = 1 - (1 - claim.confidence) / max(1, testable * claim.voices)
    found = [tuple(_decided(claim, one, level, strict) for one in parts) for parts in measured]
    return replace(_over_settings(claim, settings, found), model=model)


def _over_settings(claim: Claim, settings: Sequence[str], found: Sequence[tuple[PartFinding, ...]]) -> Finding:
    every = tuple(part for parts in found for part in parts)
    looked_at = [parts for parts in found if any(part.counts and part.runs for part in parts)]
    if looked_at and len(looked_at) < len(found):  # settings that have no run of any part with a voice say nothing
        settings, found = [parts[0].setting for parts in looked_at], looked_at
    verdicts = [of_setting(parts) for parts in found]
    decided = {verdict for verdict in verdicts if verdict in (Verdict.holds, Verdict.fails)}
    if len(decided) > 1:
        told = "; ".join(f"{one}: {verdict}" for one, verdict in zip(settings, verdicts, strict=True))
        return Finding(claim.id, Verdict.open, f"settings disagree ({told})", every, "")
    verdict = next(one for one in (*decided, Verdict.open, Verdict.untestable) if one in verdicts)
    alike = [parts for parts, one in zip(found, verdicts, strict=True) if one == verdict]
    # of settings that decide the first, else the one that has most runs
    shown = alike[0] if decided else max(alike, key=lambda parts: sum(len(part.runs) for part in parts))
    voices = [part for part in shown if part.counts and part.verdict == verdict]
    reason, decides = (by_part((getattr(part, field), part.part) for part in voices) for field in ("reason", "decides"))
    return Finding(claim.id, verdict, reason, every, "" if decided else decides)


def of_setting(parts: Sequence[PartFinding]) -> Verdict:
    voices = [part.verdict for part in parts if part.counts]
    for verdict in (Verdict.fails, Verdict.untestable):
        if verdict in voices:
            return verdict
    return Verdict.holds if all(voice == Verdict.holds for voice in voices) else Verdict.open


def _measure(claim: Claim, part: Part, here: Sequence[Placed], setting: str) -> _Measured:
    arms = _arms(part, here)
    every = [*arms[Arm.treated], *arms[Arm.control]]
    notes, cells = left_out(every, claim), cells_of(part)
    empty = PartFinding(part.name, setting, Verdict.open, "", part.counts, notes=notes, unit=part.unit)

    def nothing(reason: str, decides: str) -> _Measured:
        return _Measured(part, replace(empty, reason=reason, decides=decides))

    if lacking := _lacking(part, arms):
        return nothing(f"no runs of {lacking}", f"{claim.least_seeds} seeds of {cells}")
    waiting = sum(one.run.status not in (DONE, FAILED) for one in every)
    if waiting:  # a look before all planned seeds are done, and another after, would decide more often by chance
        return nothing(f"{waiting} planned runs are not finished", "the runs that were planned")
    arms = {name: usable(runs, claim) for name, runs in arms.items()}
    if _lacking(part, arms):
        reason = f"no finished run of at least {claim.least_steps} steps"
        return nothing(reason, f"{claim.least_seeds} such seeds of {cells}")
    all_here = usable(here, claim)
    premises = tuple(check(premise, arms, all_here) for premise in part.premises)
    shown = _estimated(claim, part, arms, all_here, replace(empty, premises=premises))
    failed = [one for one in premises if one.met is False]
    if failed:  # the effect is shown all the same, and decides nothing
        reason = "; ".join(f"premise fails ({one.name}): {one.told}" for one in failed)
        told = replace(_of_arms(shown.found, arms), verdict=Verdict.untestable, reason=reason)
        return replace(shown, found=replace(told, decides=_remedies(failed)))
    unknown = [one for one in premises if one.met is None]
    if unknown:
        told = "; ".join(f"premise ({one.name}): {one.told}" for one in unknown)
        return replace(shown, found=replace(shown.found, reason=told, decides=_remedies(unknown)), unclear=True)
    return shown


def _arms(part: Part, here: Sequence[Placed]) -> dict[Arm, list[Placed]]:
    """Treated runs, and of the kinds of controls that the rule names the first that there are runs of, with all runs
    that equal them by definition. A run is in one arm only."""
    treated = [one for one in here if matches(part.runs, one)]
    control = next((found for select in part.against if (found := pooled(select, here))), list[Placed]())
    return {Arm.treated: treated, Arm.control: [one for one in control if one not in treated]}


def _lacking(part: Part, arms: Arms) -> str:
    """The first kind of runs that a part asks for and that there are none of, in words; empty: there are all."""
    asked = [(part.runs, arms[Arm.treated]), *((select, arms[Arm.control]) for select in part.against[:1])]
    return next((select.words() for select, runs in asked if not runs), "")


def _remedies(premises: Sequence[PremiseFinding]) -> str:
    return "; ".join(dict.fromkeys(one.remedy for one in premises))


def _of_arms(found: PartFinding, arms: Arms) -> PartFinding:
    """The finding with the names of the runs in it."""
    runs, controls = (tuple(one.name for one in arms[arm]) for arm in (Arm.treated, Arm.control))
    return replace(found, runs=runs, controls=controls, seeds=_seeds(arms[Arm.treated]))


def _seeds(runs: Sequence[Placed]) -> tuple[int, ...]:
    return tuple(sorted({one.run.seed for one in runs}))


def _estimated(claim: Claim, part: Part, arms: Arms, here: Sequence[Placed], empty: PartFinding) -> _Measured:
    treated, control = arms[Arm.treated], arms[Arm.control]
    if part.fit is not None:
        unfit = [reason for one in treated if (reason := part.fit(one.run))]
        treated = [one for one in treated if part.fit(one.run) is None]
        empty = replace(empty, notes=(*empty.notes, f"{len(unfit)} runs left out: {unfit[0]}")) if unfit else empty
    treated = [one for one in treated if one.number(part.measure) is not None]
    control = [one for one in control if one.number(part.measure_of(True)) is not None]
    ours, theirs = samples(part.measure, treated), samples(part.measure_of(True), control)
    if not ours or (part.against and not theirs):
        reason = f"the runs do not tell {part.measure.words}"
        return _Measured(part, replace(empty, reason=reason, decides=claim.needs))
    fewest = min(len(_seeds(arm)) for arm in ((treated, control) if part.against else (treated,)))
    empty = _of_arms(empty, {Arm.treated: treated, Arm.control: control})
    if fewest < max(2, claim.least_seeds):
        reason = f"{fewest} seeds that tell it, at least {claim.least_seeds} are needed"
        return _Measured(part, replace(empty, reason=reason, decides=f"{claim.least_seeds} seeds of {cells_of(part)}"))
    names = {one.name for one in (*treated, *control)}
    others = cells_with(part.measure, [one for one in here if one.name not in names])
    if part.shares:
        seeds = by_seed(ours)
        estimate = Estimate(fmean(value for value, _ in seeds.values()), 0.0, len(seeds), "share of seeds")
    elif part.against:
        estimate = two_arms(ours, theirs, others, part.measure.spread)
    else:
        estimate = one_arm(ours, others, part.measure.spread)
    notes = empty.notes
    if len({one.unit[2] for one in (*ours, *theirs)}) == 1:
        notes = (*notes, "all runs begin from one start: what another would do is not in the interval")
    return _Measured(part, replace(empty, value=estimate.value, notes=notes), estimate)


def _decided(claim: Claim, one: _Measured, level: float, strict_level: float) -> PartFinding:
    part, estimate = one.part, one.estimate
    if estimate is None:
        return one.found
    seeds = len(one.found.seeds)

    def interval(at: float) -> Interval:
        return clopper_pearson(estimate.value, seeds, at) if part.shares else estimate.interval(at)

    direction = part.means[0] if estimate.value > 0 else part.means[1] if estimate.value < 0 else ""
    found = replace(
        one.found, interval=interval(claim.confidence), error=estimate.error, freedom=estimate.freedom,
        how=estimate.how, direction=direction,
    )  # fmt: skip
    if not one.to_decide:
        return found
    held, strict = interval(level), interval(strict_level)
    verdict, decides = decide(part, estimate.value, held, strict), ""
    if verdict == Verdict.holds and any(" failed: " in note for note in found.notes):
        return replace(found, reason="runs failed, and those that did not may be the lucky ones")
    if verdict == Verdict.open:
        count = seeds_needed(part, estimate, seeds, level, strict_level)
        decides = f"about {count} seeds, if effect and spread stay" if count else f"more than {SEEDS_TOLD} seeds"
    return replace(
        found, verdict=verdict, reason=said(part, verdict, held, level, strict_level), held=held, strict=strict,
        levels=(level, strict_level), decides=decides,
    )  # fmt: skip
