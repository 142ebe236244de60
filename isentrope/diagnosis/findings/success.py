"""Findings about success: whether and when a run learnt its task, as far as its episodes can tell."""

from __future__ import annotations

from isentrope.agent.response_format import VERDICTS
from isentrope.core.text import percent
from isentrope.diagnosis.causes import chain
from isentrope.diagnosis.evidence import BLIND, Outcome
from isentrope.diagnosis.facts import Facts
from isentrope.diagnosis.remedies import Finding, slower
from isentrope.runs.curves import ENOUGH, Curve

MOST = 0.8  # "most of it": this share of the gain
FLAT = 0.03  # success that moves by less is flat
MANY = 10  # steps after which it is odd that nothing was learnt


def success_findings(facts: Facts) -> list[Finding]:
    train, course, outcome = facts.success, facts.course, facts.outcome
    found: list[Finding] = []
    if len(train) and len(train) < ENOUGH:
        evidence = {"first": train.values[0], "last": train.values[-1]}
        claim = f"{len(train)} training steps are too few to tell whether success changes."
        found.append(Finding("success/short", claim, "note", evidence, (train.steps[-1],)))
    elif len(train) and outcome is None:
        claim = (
            f"On training games success went from {percent(train.start)} to {percent(train.end)}; of how many episodes "
        )
        claim += "is not recorded, so nobody can tell what is chance."
        evidence = {"start": train.start, "end": train.end}
        found.append(Finding("success/unsure", claim, "note", evidence, (train.steps[-1],)))
    elif outcome is not None:
        found.append(_course_of(facts, outcome))
    for split in course.splits:
        found += _evaluated(facts, split, course.curve(f"eval/{split}/success"))
    return found


def _course_of(facts: Facts, outcome: Outcome) -> Finding:
    train, start, end, best = facts.success, outcome.start, outcome.end, outcome.best
    evidence = {
        "start": start.value, "end": end.value, "best": best.value, "episodes": float(start.episodes),
        "effective": start.effective, "would_show": outcome.least,
    }  # fmt: skip
    last, from_to = train.steps[-1], f"from {percent(start.value)} to {percent(end.value)}"
    careful = (slower(facts.course),) if not facts.stands else ()
    if outcome.kind == "lost":
        claim = f"On training games success rose from {percent(start.value)} to {percent(best.value)} around step "
        claim += f"{outcome.best_step} and fell to {percent(end.value)} in the end."
        remedy = (f"a checkpoint from around step {outcome.best_step}", *careful)
        return Finding("success/fell", claim, "bad", evidence, (outcome.best_step, last), remedy)
    if outcome.kind == "fell":
        return Finding("success/fell", f"On training games success fell {from_to}.", "bad", evidence, (last,), careful)
    if outcome.kind == "rose":
        most = train.reached(start.value + MOST * (end.value - start.value))
        when = f", most of it by step {most}" if most < last else ""
        claim = f"On training games success rose {from_to}{when}{_dip(train, outcome)}."
        return Finding("success/rose", claim, "good", evidence | {"most_by": most}, (most,))
    if outcome.kind == "solved":
        claim = f"Nothing is left to learn: on training games success was {percent(start.value)} from the start and is "
        claim += f"{percent(end.value)}."
        return Finding("success/solved", claim, "note", evidence, (), ("harder tasks: little is left to learn here",))
    played = f"{percent(start.value)} of {start.episodes} episodes at the start, {percent(end.value)} of "
    played += f"{end.episodes} at the end"
    small = f"a difference under {100 * outcome.least:.0f} points" if outcome.least < 0.9 else "hardly any difference"
    shows = f"{small} would {'not show' if outcome.least < 0.9 else 'show'}"
    if start.effective < 0.75 * start.episodes:
        shows += (
            f": episodes of one game are alike, so {start.episodes} tell as much as {start.effective:.0f} of different "
        )
        shows += "games"
    if outcome.kind == "flat":
        claim = f"On training games success did not rise: {played}{_dip(train, outcome)} ({shows})."
        return Finding("success/stalled", claim, "warning", evidence, (last,))
    claim = f"There are too few episodes to tell whether success on training games changes: {played}; {shows}."
    return Finding("success/unsure", claim, "note", evidence, (last,))


def answer_findings(facts: Facts) -> list[Finding]:
    """Valid actions that were there and were lost."""
    if not facts.valid_lost:
        return []
    valid, reason = facts.valid, facts.refused_for
    if not len(valid):  # only evaluations tell
        return _lost_in_evaluations(facts)
    why = f", most of them refused as {reason} ({VERDICTS.get(reason, 'for that reason')})" if reason else ""
    claim = f"Valid actions were lost: {percent(valid.start)} of the turns at the start, {percent(valid.end)} at the "
    claim += f"end{why}."
    remedy = ("an earlier checkpoint", *(() if facts.stands else (slower(facts.course),)))
    evidence = {"start": valid.start, "end": valid.end}
    return [Finding("answers/lost", claim, "bad", evidence, (valid.steps[-1],), remedy)]


def _lost_in_evaluations(facts: Facts) -> list[Finding]:
    first, last = facts.eval_valid_lost or (0.0, 0.0)
    claim = (
        f"Valid actions were lost: {percent(first)} of the turns of the first evaluation, {percent(last)} of the last."
    )
    remedy = ("an earlier checkpoint", *(() if facts.stands else (slower(facts.course),)))
    return [Finding("answers/lost", claim, "bad", {"start": first, "end": last}, (), remedy)]


def _dip(train: Curve, outcome: Outcome) -> str:
    """A low that neither the start nor the end shows."""
    step, depth = (-train).best
    low = min(outcome.start.value, outcome.end.value) + depth > max(0.05, min(outcome.least, BLIND))
    return f", with a low of {percent(-depth)} around step {step}" if low else ""


def _evaluated(facts: Facts, split: str, curve: Curve) -> list[Finding]:
    if not len(curve):
        return []
    first, last, step = curve.values[0], curve.values[-1], curve.steps[-1]
    evidence = {"first": first, "last": last}
    if len(curve) == 1:
        claim = f"On {split} games it solves {percent(last)} at step {step}."
        return [Finding(f"evaluation/{split}", claim, "note", evidence, (step,))]
    change = facts.evaluated.get(split, 0)
    verb = "rose" if change > 0 else "fell" if change < 0 else "went"
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
    if verb == "went" and first != last:
        claim += ", which may be chance"
        claim += f" with {facts.evaluations[split][1].games} games" if split in facts.evaluations else ""
    severity = {"rose": "good", "fell": "bad"}.get(verb, "note")
    remedy = (slower(facts.course),) if verb == "fell" and not facts.stands else ()
    return [Finding(f"evaluation/{split}", f"{claim}.", severity, evidence, tuple(steps), remedy)]


def flat_since(curve: Curve) -> int | None:
    """The first of at least three evaluations at the end that all lie close together; None: it still moves."""
    place = len(curve) - 1
    while place > 0 and abs(curve.values[place - 1] - curve.values[-1]) <= FLAT:
        place -= 1
    return curve.steps[place] if len(curve) - place >= 3 and place > 0 else None


def unexplained(facts: Facts, trouble: bool) -> list[Finding]:
    """A run that learnt nothing for no reason that shows."""
    if facts.fine or trouble or facts.outcome is None or facts.outcome.kind != "flat" or facts.steps < MANY:
        return []
    told = chain.words(facts)
    claim = f"None of the usual reasons shows in the numbers{f': {told}' if told else ''}."
    remedy = ("more steps", "larger groups (rollout.group_size)", "a look at the episodes (isentrope report)")
    return [Finding("stalled/unknown", claim, "note", {}, (), remedy)]
