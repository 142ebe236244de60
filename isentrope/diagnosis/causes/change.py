"""What changed when: a fall within a step or two that the policy's own movement does not explain.

A policy that is ruined shows it: single steps move it far, its entropy changes, actions become invalid. Where success
falls at one step, and stays down, while nothing of that is to be seen at that step, the world, its reward or what
samples has changed and not the policy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean, median

from isentrope.core.stats import Share, difference_of, share_from
from isentrope.core.text import listed, nats, percent
from isentrope.diagnosis.causes.suspect import suspect
from isentrope.diagnosis.facts import Facts
from isentrope.diagnosis.played import Played
from isentrope.diagnosis.remedies import Finding
from isentrope.runs.curves import Curve

NEAR = 3  # steps on either side that are compared
FALL = 0.2  # of success, to be called one
SHARP, FLAT = 0.8, 0.25  # of the fall: between two steps and the two before them; what is left to fall after three
LEVEL = 0.999  # of the interval of a fall: there are many steps at which one may be seen
STEP, DRIFT = 5e-3, 0.03  # nats a token that explain a fall: within a step (kl/old), from before to after (kl/k3)
OPENER = 1.5  # times the entropy
FEWER = 0.15  # of the turns that are valid actions
USED = 10  # times that a kind of action was tried


@dataclass(frozen=True)
class Break:
    step: int  # the first after it
    before: Share
    after: Share
    moved: float  # nats a token that the policy moved at most in a step, around it


def break_of(facts: Facts) -> Break | None:
    """The sharpest fall of success that the policy does not explain."""
    success, found = facts.success, list[tuple[float, Break]]()
    if facts.outcome is None or not facts.groups:
        return None
    for place in range(NEAR, len(success) - NEAR + 1):
        before, after = success.values[:place][-NEAR:], success.values[place:]
        if fmean(before) - fmean(after) < FALL or max(after) >= median(before):
            continue
        first, rest = _share(facts, before), _share(facts, after)
        fall = first.value - rest.value
        edge = fmean(before[-2:]) - fmean(after[:2])
        if difference_of(rest, first).interval.sign >= 0 or edge < SHARP * fall:
            continue  # a slope, or chance
        if fmean(after[:NEAR]) - rest.value > FLAT * fall:
            continue
        if (moved := _unexplained(facts, success.steps[place])) is not None:
            found.append((edge, Break(success.steps[place], first, rest, moved)))
    return max(found, key=lambda pair: pair[0])[1] if found else None


def _share(facts: Facts, values: tuple[float, ...]) -> Share:
    steps = len(values)
    episodes = facts.groups * facts.size * steps
    return share_from(fmean(values), facts.groups * steps, episodes, facts.groups * steps, LEVEL)


def _unexplained(facts: Facts, step: int) -> float | None:
    """What the policy moved by around a step; None where that explains a fall."""
    curves = facts.course.curve
    moved = max(curves("kl/old").between(step - 2, step + 1).values, default=0.0)
    away = _around(curves("kl/k3"), step, lambda before, after: after - before)
    opener = _around(
        curves("entropy/token"), step, lambda before, after: max(after, before) / max(1e-9, min(after, before))
    )
    fewer = _around(facts.valid, step, lambda before, after: before - after)
    hotter = _around(curves("temperature/mean"), step, lambda before, after: abs(after - before))
    explained = moved > STEP or (away or 0.0) > DRIFT or (opener or 1.0) > OPENER or (hotter or 0.0) > 0.05
    if explained or (fewer is not None and fewer > FEWER and not refusals(facts, step)):
        return None
    return moved


def _around(curve: Curve, step: int, compare: Callable[[float, float], float]) -> float | None:
    before, after = curve.before(step, NEAR).values, curve.between(step, step + NEAR - 1).values
    return compare(median(before), median(after)) if before and after else None


def refusals(facts: Facts, step: int) -> dict[str, tuple[float, float]]:
    """Kinds of actions that were accepted before a step and are not from it on: shares before and after."""
    found: dict[str, tuple[float, float]] = {}
    for key in facts.course.keys("accepted/", facts.course.of_kind("train")):
        curve = facts.course.curve(key)
        before, after = curve.before(step, 2 * NEAR).values, curve.between(step, curve.steps[-1]).values
        if len(before) > 1 and len(after) > 1 and fmean(before) - fmean(after) >= 0.5 and max(after) < min(before):
            found[key.removeprefix("accepted/")] = fmean(before), fmean(after)
    return found


def world_changed(facts: Facts) -> Finding | None:
    """A fall of success that is not the policy's."""
    if facts.fine or (fall := break_of(facts)) is None:
        return None
    step, entropy = fall.step, _around(facts.entropy, fall.step, lambda before, after: after - before)
    claim = (
        f"The task changed at step {step}, not the policy: within a step success fell from "
        f"{percent(fall.before.value)} "
        f"to {percent(fall.after.value)} and stayed there, while no step around it moves the policy by more than "
        f"{nats(fall.moved)} nats a token (kl/old)"
    )
    claim += f" and its entropy changes by {nats(abs(entropy))}" if entropy is not None else ""
    strange, after = refused_kinds(facts.played), facts.course.episode_files
    evidence = {"before": fall.before.value, "after": fall.after.value, "moved": fall.moved}
    if told := refusals(facts, step):
        said = [f"{verb} from {percent(was)} to {percent(now)}" for verb, (was, now) in told.items()]
        claim += f". From then on the world refuses actions that it took before: {listed(said)} of them are accepted."
    elif strange and any(file.step >= step for file in after):
        claim += f". From then on the world refuses actions: {_refused(facts.played, strange)}."
    elif fall.after.value < 0.01 and facts.played.said and any(file.step >= step for file in after):
        kinds = [verb for verb, times in facts.played.said.items() if times >= USED]
        claim += (
            f". Every kind of action is still accepted ({listed(kinds)}), and not one game counts as solved: the world "
        )
        claim += "does not notice any more that a goal is reached, or pays nothing for it."
    elif fall.after.value < 0.01:
        claim += ". Not one game counts as solved since, as if the world did not notice it any more."
    else:
        claim += "."
    remedy = (
        f"a look at what of the world, its server or its reward was changed at step {step}",
        "isentrope check-task, which has an expert play the task",
        f"a new run from a checkpoint before step {step}",
    )
    return suspect("world_changed", 0.95, claim, evidence, remedy, step)


def refused_kinds(seen: Played) -> list[str]:
    """Kinds of actions of which none is accepted, though the world lists some of them as possible. What is listed is
    hardly ever refused in a world that agrees with itself."""
    return [
        verb
        for verb, times in seen.said.items()
        if times >= USED and not seen.accepted.get(verb) and seen.refused.get(verb, 0) >= 5
    ]


def _refused(seen: Played, kinds: list[str]) -> str:
    return listed(
        [
            f"of {seen.said[verb]} that begin with {verb} none was accepted, {seen.listed[verb]} of them being "
            "listed as "
            "possible by the world itself"
            for verb in kinds
        ]
    )


def world_contradicts(facts: Facts) -> Finding | None:
    """A world that refuses what it lists itself."""
    if facts.fine:
        return None
    strange = refused_kinds(facts.played)
    if not strange or world_changed(facts) is not None:
        return None
    claim = f"The world refuses actions that it lists as possible: {_refused(facts.played, strange)}."
    remedy = (
        "isentrope check-task, which has an expert play the task",
        "a look at the world's own log of what it refuses",
    )
    refused = float(sum(facts.played.refused[verb] for verb in strange))
    return suspect("world_refuses", 0.94, claim, {"refused": refused, "kinds": float(len(strange))}, remedy)
