"""Findings about success: whether and when a run learnt its task, and why where it did not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median

from isentrope.agent.response_format import VERDICTS
from isentrope.core.text import listed, nats, percent
from isentrope.diagnosis.remedies import USUAL_KL, Finding, in_the_doctors_words, slower
from isentrope.runs.curves import ENOUGH, Curve
from isentrope.runs.folder import Run

LEAST = 0.05  # a change of success that is worth a word
MOST = 0.8  # "most of it": this share of the gain
FLAT = 0.03  # success that moves by less is flat
SOLVED = 0.9
MANY = 10  # steps after which it is odd that nothing was learnt
VALID = 0.05  # below this share of valid turns there is nothing to learn from
LOST = 0.5  # a policy that knew the form of an answer at the start has lost it
MOVED = 1e-3  # nats a token to the reference: below, the policy is where it began


def success_findings(course: Run) -> list[Finding]:
    train = course.curve("success/all")
    found = [_course_of(course, train)] if len(train) >= ENOUGH else []
    if len(train) and not found:
        evidence = {"first": train.values[0], "last": train.values[-1]}
        claim = f"{len(train)} training steps are too few to tell whether success changes."
        found.append(Finding("success/short", claim, "note", evidence, (train.steps[-1],)))
    for split in course.splits:
        found += _evaluated(course, split, course.curve(f"eval/{split}/success"))
    return found


def _course_of(course: Run, train: Curve) -> Finding:
    start, end, margin = train.start, train.end, max(LEAST, train.margin)
    best_step, best = train.best
    evidence = {"start": start, "end": end, "best": best, "margin": margin}
    if best - end > margin and best - end > 0.5 * (best - start):
        if best - start <= margin:
            claim = f"On training games success fell from {percent(start)} to {percent(end)}."
            return Finding("success/fell", claim, "bad", evidence, (train.steps[-1],), (slower(course),))
        claim = f"On training games success rose from {percent(start)} to {percent(best)} around step {best_step} "
        claim += f"and fell to {percent(end)} in the end."
        remedy = (f"a checkpoint from around step {best_step}", slower(course))
        return Finding("success/fell", claim, "bad", evidence, (best_step, train.steps[-1]), remedy)
    lowest_step, depth = (-train).best
    dip = f", with a low of {percent(-depth)} around step {lowest_step}"  # that neither the start nor the end shows
    dip = dip if min(start, end) + depth > 2 / 3 * margin else ""
    if end - start > margin:
        most = train.reached(start + MOST * (end - start))
        when = f", most of it by step {most}" if most < train.steps[-1] else ""
        claim = f"On training games success rose from {percent(start)} to {percent(end)}{when}{dip}."
        return Finding("success/rose", claim, "good", evidence | {"most_by": most}, (most,))
    if start >= SOLVED and end >= SOLVED:
        claim = f"On training games success was {percent(start)} from the start and is {percent(end)}."
        return Finding("success/solved", claim, "note", evidence, (), ("harder tasks: little is left to learn here",))
    claim = f"On training games success did not rise: {percent(start)} at the start, {percent(end)} at the end{dip}"
    points = f"{100 * margin:.0f} points"
    claim += f" (a difference of up to {points} may be noise)." if abs(end - start) > 0.01 else "."
    return Finding("success/stalled", claim, "warning", evidence, (train.steps[-1],))


def _evaluated(course: Run, split: str, curve: Curve) -> list[Finding]:
    if not len(curve):
        return []
    first, last, step = curve.values[0], curve.values[-1], curve.steps[-1]
    evidence = {"first": first, "last": last}
    if len(curve) == 1:
        claim = f"On {split} games it solves {percent(last)} at step {step}."
        return [Finding(f"evaluation/{split}", claim, "note", evidence, (step,))]
    games = course.curve(f"eval/{split}/games", "eval")
    margin = max(LEAST, _chance(first, last, games))
    verb = "rose" if last - first >= margin else "fell" if last - first <= -margin else "went"
    claim = f"On {split} games success {verb} from {percent(first)} (step {curve.steps[0]}) to {percent(last)} "
    claim += f"(step {step})"
    steps = [curve.steps[0], step]
    if verb == "rose":
        level, flat = first + MOST * (last - first), flat_since(curve)
        most = next(step for step, value in zip(curve.steps, curve.values, strict=True) if value >= level)
        if most < step:
            claim += f", most of it by step {most}"
            steps.append(most)
        if flat is not None:
            claim += f"; it is flat since step {flat}"
            steps.append(flat)
    severity = {"rose": "good", "fell": "bad"}.get(verb, "note")
    remedy = (slower(course),) if verb == "fell" else ()
    return [Finding(f"evaluation/{split}", f"{claim}.", severity, evidence, tuple(steps), remedy)]


def _chance(first: float, last: float, games: Curve) -> float:
    """What two shares of so many games may differ by through chance: two standard deviations."""
    if not len(games) or min(games.values) < 1:
        return 0.0
    both = min(1.0, max(0.0, (first + last) / 2))  # a damaged file may say anything
    return 2 * math.sqrt(both * (1 - both) * (1 / games.values[0] + 1 / games.values[-1]))


def flat_since(curve: Curve) -> int | None:
    """The first of at least three evaluations at the end that all lie close together; None: it still moves."""
    place = len(curve) - 1
    while place > 0 and abs(curve.values[place - 1] - curve.values[-1]) <= FLAT:
        place -= 1
    return curve.steps[place] if len(curve) - place >= 3 and place > 0 else None


def stalled_findings(course: Run, success: Sequence[Finding], known: Sequence[Finding]) -> list[Finding]:
    """What the numbers show of a run that learnt nothing; each of these is known to keep a run from learning."""
    if not any(finding.name == "success/stalled" for finding in success):
        return []
    if any(finding.name.startswith("evaluation/") and finding.severity == "good" for finding in success):
        return []
    found = [*_invalid(course), *_equal(course), *_unmoved(course), *_out_of_turns(course)]
    trouble = any(finding.severity in ("warning", "bad") for finding in known)
    if not found and not trouble and course.last_step >= MANY:
        seen = {"valid_ratio": "actions are valid", "advantage/zero_groups": "groups differ"}
        seen |= {"kl/k3": "the policy moves"}
        told = listed([words for key, words in seen.items() if len(course.curve(key))])
        claim = f"None of the usual reasons shows in the numbers{f': {told}' if told else ''}."
        remedy = ("more steps", "larger groups (rollout.group_size)", "a look at the episodes (isentrope report)")
        return [Finding("stalled/unknown", claim, "note", {}, (), remedy)]
    return found


def _invalid(course: Run) -> list[Finding]:
    valid = course.curve("valid_ratio")
    if not len(valid) or valid.end >= VALID:
        return []
    keys = course.keys("verdict/", course.of_kind("train"))
    refused = {key.removeprefix("verdict/"): course.curve(key).end for key in keys}
    most = max(refused, key=lambda reason: refused[reason]) if refused else ""
    why = f", most of them refused as {most} ({VERDICTS.get(most, 'for that reason')})" if most else ""
    longer = ["a larger agent.max_response"] if most == "too_long" else []
    claim = f"Hardly any response was a valid action: {percent(valid.end)} of the turns"
    remedy = (*longer, "a warm-up (isentrope sft, then policy.model=its folder)")
    if valid.start >= LOST:
        claim = f"Valid actions were lost: {percent(valid.start)} of the turns at the start, "
        claim += f"{percent(valid.end)} at the end"
        remedy = ("an earlier checkpoint", slower(course))
    return [Finding("stalled/invalid", f"{claim}{why}.", "bad", {"valid_ratio": valid.end} | refused, (), remedy)]


def _equal(course: Run) -> list[Finding]:
    groups = course.curve("advantage/zero_groups")
    if len(groups) < ENOUGH or fmean(groups.values) < 0.8:
        return []
    share = fmean(groups.values)
    claim = f"In {percent(share)} of the groups all episodes did equally well, so they taught nothing."
    tried = "a warm-up or easier tasks; larger groups (rollout.group_size)"
    remedy = in_the_doctors_words(course, f"{tried}; dynamic sampling (learn.resample=3, or algorithm dapo)")
    return [Finding("stalled/equal_groups", claim, "bad", {"share": share}, (), remedy)]


def _unmoved(course: Run) -> list[Finding]:
    moved = course.curve("kl/k3")
    if len(moved) < 2 * ENOUGH or median(moved.tail(5).values) >= MOVED:
        return []
    distance, weight, lr = median(moved.tail(5).values), course.amount("learn.kl"), course.amount("learn.lr")
    said = [f"learn.lr is {lr:g}"] if lr is not None else []
    remedies = ["a larger learn.lr"]
    if weight is not None and weight >= 10 * USUAL_KL:
        said.append(f"learn.kl is {weight:g}, {weight / USUAL_KL:.0f} times what most recipes have")
        remedies.insert(0, f"learn.kl={USUAL_KL:g}")
    claim = f"The policy has hardly moved: after {moved.steps[-1]} steps it is {nats(distance)} nats a token "
    claim += f"from where it began{f' ({listed(said)})' if said else ''}."
    evidence = {"kl": distance} | ({"lr": lr} if lr is not None else {}) | ({"weight": weight} if weight else {})
    return [Finding("stalled/unmoved", claim, "warning", evidence, (moved.steps[-1],), tuple(remedies))]


def _out_of_turns(course: Run) -> list[Finding]:
    cut, valid = course.curve("stop/turn_limit"), course.curve("valid_ratio")
    if not len(cut) or cut.end < 0.8 or (len(valid) and valid.end < VALID):
        return []
    turns = course.amount("task.max_turns")
    claim = f"{percent(cut.end)} of the episodes ended at the limit of {f'{turns:.0f} ' if turns else ''}turns."
    remedy = ("a larger task.max_turns, if an expert needs more", "a warm-up or easier tasks")
    return [Finding("stalled/turn_limit", claim, "warning", {"share": cut.end}, (), remedy)]
