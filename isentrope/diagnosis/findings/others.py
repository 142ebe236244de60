"""Findings about lengths, warm-up, stored episodes, the state of the run, alarms and lost episodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, cast

from isentrope.core.errors import RunError
from isentrope.core.text import count, listed, nats, percent, sentence, steps_listed
from isentrope.core.types import FAILURES
from isentrope.diagnosis.alarms import Alarm
from isentrope.diagnosis.facts import Facts
from isentrope.diagnosis.remedies import Finding, in_the_doctors_words, slower, to_shorten, to_widen
from isentrope.runs.curves import ENOUGH, Curve
from isentrope.runs.folder import Run

LONGER, SHORTER = 1.5, 0.6  # responses that change their length by so much are worth a word
SAME = 1.2  # responses that grew by less have hardly grown
COMMON = 0.5  # share of the run's steps at which both outcomes must be known


def length_findings(course: Run) -> list[Finding]:
    """Responses that grow or shrink, and responses that grow only where the task is not solved.

    Where losses are averaged within a response, a token of a long one weighs less. Of responses that fail alike the
    tokens of long ones are then discouraged less (docs/claims/seal.md).
    """
    whole = course.curve("response/tokens")
    # Over the steps that have both, if those are enough to tell: else a run that solved something in its beginning
    # alone, or that was resumed from metrics without these numbers, would be told with a start and an end that are not
    # of the same steps.
    solved, failed = (course.curve(f"response/outcome/{outcome}") for outcome in ("solved", "failed"))
    both = set(solved.steps) & set(failed.steps)
    if len(both) < COMMON * len(whole):
        both = set[int]()
    solved, failed = solved.at(both), failed.at(both)
    if _changed(failed) and failed.end > failed.start and solved.end < SAME * solved.start:
        claim = (
            f"Where the task was not solved, responses went from {failed.start:.0f} tokens to {failed.end:.0f}; where "
            f"it was, from {solved.start:.0f} to {solved.end:.0f}."
        )
        evidence = {"failed/start": failed.start, "failed/end": failed.end}
        evidence |= {"solved/start": solved.start, "solved/end": solved.end}
        remedy = to_shorten(course, where_lost=True)
        return [Finding("length/failed", claim, "warning", evidence, (failed.steps[-1],), remedy)]
    if not _changed(whole):
        return []
    claim = f"Responses went from {whole.start:.0f} tokens to {whole.end:.0f}."
    evidence = {"start": whole.start, "end": whole.end}
    remedy = to_shorten(course, where_lost=False) if whole.end > whole.start else ()
    return [Finding("length", claim, "note", evidence, (whole.steps[-1],), remedy)]


def _changed(length: Curve) -> bool:
    """By more than its noise, and by enough to be worth a word."""
    if len(length) < 2 * ENOUGH or length.start <= 0:
        return False
    times = length.end / length.start
    return not SHORTER < times < LONGER and abs(length.end - length.start) > length.margin


RISEN = 1.5  # a loss that ends so many times above its lowest is rising again
MOST = 0.9
LOSS = "The loss of the imitated tokens"


def imitation_findings(course: Run) -> list[Finding]:
    """What happened in a warm-up: imitation of an expert (sft) or of the policy's own successes (rft)."""
    loss = course.curve("sft/loss", "sft")
    found = [*_loss(course, loss)] if len(loss) >= ENOUGH else []
    solved = course.curve("rft/solved", "sft")
    if len(solved):
        share = solved.values[-1]
        severity = "bad" if share == 0 else "note"
        claim = f"Of the policy's own games {percent(share)} were solved and imitated."
        remedy = ("isentrope sft, which imitates an expert", "easier tasks") if share == 0 else ()
        found.append(Finding("imitation/own", claim, severity, {"solved": share}, (), remedy))
    for split in course.splits:
        found += _evaluated(course, split, course.curve(f"eval/{split}/success"))
    return found


def _loss(course: Run, loss: Curve) -> list[Finding]:
    start, end, lowest = loss.start, loss.end, -(-loss).best[1]
    epochs = course.curve("sft/epoch", "sft")
    passes = f" ({epochs.values[-1]:g} × the games)" if len(epochs) else ""
    evidence = {"start": start, "end": end, "lowest": lowest}
    if end > RISEN * lowest and end - lowest > loss.margin:
        told = f"was {nats(lowest)} nats at its lowest and ends at {nats(end)}{passes}"
        remedy = ("a smaller sft.lr",)
        return [Finding("imitation/rising", f"{LOSS} {told}.", "bad", evidence, (loss.steps[-1],), remedy)]
    if start - end <= max(loss.margin, 0.1 * start):
        told = f"hardly fell: {nats(start)} nats at the start, {nats(end)} at the end{passes}"
        remedy = ("a larger sft.lr", "more sft.epochs")
        return [Finding("imitation/stalled", f"{LOSS} {told}.", "warning", evidence, (loss.steps[-1],), remedy)]
    most = (-loss).reached(-(start - MOST * (start - end)))
    when = f", most of it by step {most}" if most < loss.steps[-1] else ""
    told = f"fell from {nats(start)} to {nats(end)} nats{when}{passes}"
    return [Finding("imitation/learnt", f"{LOSS} {told}.", "good", evidence | {"most_by": most}, (most,))]


def _evaluated(course: Run, split: str, success: Curve) -> list[Finding]:
    if not len(success):
        return []
    last, step = success.values[-1], success.steps[-1]
    valid = course.curve(f"eval/{split}/valid_ratio", "eval")
    shares = f", and {percent(valid.values[-1])} of its actions are valid" if len(valid) else ""
    claim = f"Afterwards it solves {percent(last)} of the {split} games{shares}."
    more = ("more sft.games or sft.epochs: who solves nothing finds nothing to learn from in training",)
    severity, remedy = ("good", ()) if last else ("bad", more)
    return [Finding(f"evaluation/{split}", claim, severity, {"success": last}, (step,), remedy)]


REPEATED = 0.25  # share of the turns that say what the turn before said
LONGEST = 60  # characters of an action that are quoted


def episode_findings(course: Run) -> list[Finding]:
    """Actions that are given again and again. The action quoted is the model's: show it as text that is not trusted."""
    step = max((file.step for file in course.episode_files if file.split is None), default=0)
    try:
        episodes = course.episodes(step)
    except RunError:  # none is stored, or they cannot be read: the numbers can be told without them
        return []
    again: Counter[str] = Counter()
    turns = 0
    for episode in episodes:
        turns += max(0, len(episode.turns) - 1)
        for before, turn in pairwise(episode.turns):
            if turn.action is not None and turn.action == before.action:
                again[turn.action] += 1
    share = sum(again.values()) / turns if turns else 0.0
    if share < REPEATED:
        return []
    action, times = again.most_common(1)[0]
    quoted = " ".join(action.split())
    quoted = quoted if len(quoted) <= LONGEST else quoted[: LONGEST - 1] + "…"
    claim = (
        f"In the episodes of step {step}, {percent(share)} of the actions repeat the one before, "
        f'most often "{quoted}" ({times} times).'
    )
    evidence = {"share": share, "turns": float(turns)}
    remedy = ("entropy_bonus or higher_temperature: they help to get away from an action that changes nothing",)
    return [Finding("episodes/repeated", claim, "warning", evidence, (step,), remedy)]


LOST = 0.05  # share of lost episodes from which it is more than a note


def state_findings(course: Run) -> list[Finding]:
    """Whether the run came to its end, goes on, was cut off, or broke."""
    last = course.last_step
    if not course.records:
        return [Finding("state/empty", "The folder has no numbers yet.", "note")]
    bad = _not_finite(course)
    planned = course.amount("run.steps") if course.kind == "train" else None
    found: list[Finding] = []
    if course.alive:
        claim = f"The run is going on; it has done step {last}{f' of {planned:.0f}' if planned else ''}."
        found.append(Finding("state/running", claim, "note", {}, (last,)))
    elif planned and last < planned:
        paused = [str(event.get("text")) for event in course.events if _says(event, "pause") and event["step"] == last]
        end = "broke off" if bad and bad[0] >= last else "ended early"
        claim = paused[-1] if paused else f"The run {end}: {last} of {planned:.0f} steps are there."
        remedy = () if bad and bad[0] >= last else ("--resume, to go on from its last checkpoint",)
        found.append(Finding("state/short", claim, "warning", {"steps": last, "planned": planned}, (last,), remedy))
    if bad:
        step, keys = bad
        claim = f"At step {step} these were not finite numbers: {listed(keys[:4])}."
        remedy = (slower(course), "run.dtype=float32")
        found.append(Finding("state/not_finite", claim, "bad", {"keys": len(keys)}, (step,), remedy))
    return found


def switch_findings(course: Run) -> list[Finding]:
    """Methods that an alarm switched on, in the run's own words."""
    said = [event for event in course.events if _says(event, "switch")]
    return [Finding("switched", str(event.get("text")), "note", {}, (int(event["step"]),)) for event in said]


STANDS = (
    "adapters",
    "clipped_away",
    "tokens",
    "frozen",
    "rounded",
    "kl_high",
    "advantages_zero",
)  # and not for its rate
WARNED_AS = {  # causes that tell it
    "answers": ("cause/invalid", "cause/refused", "cause/responses_cut", "cause/form"),
    "rate_low": tuple(f"cause/{name}" for name in STANDS),
    "rate_high": ("cause/term", "cause/weight_decay", "cause/stale_sampler"),
}


def warning_findings(facts: Facts, named: Sequence[Finding]) -> list[Finding]:
    """What the run warned of while it went on, where no cause tells it. In a run that learnt it did no harm."""
    causes = {finding.name for finding in named}
    found: list[Finding] = []
    for name, event in facts.warned.items():
        if causes & {f"cause/{name}", *WARNED_AS.get(name, ())}:
            continue
        step, text, remedy = int(event["step"]), str(event.get("text", "")), str(event.get("remedy", ""))
        when = f"At step {step}" if step else "Before its first step"
        severity, tried = ("note", ()) if facts.fine else ("warning", (remedy,) if remedy else ())
        found.append(Finding(f"warning/{name}", f"{when} the run warned: {text}.", severity, {}, (step,), tried))
    return found


def _says(event: Mapping[str, Any], kind: str) -> bool:
    return event.get("kind") == kind and isinstance(event.get("text"), str)


def _not_finite(course: Run) -> tuple[int, list[str]] | None:
    """The first step with numbers that are not finite in what the policy is made of, and their keys."""
    for record in course.records:
        keys = [str(key) for key in cast("list[Any]", record.get("nonfinite") or [])]
        keys = [key for key in keys if key.startswith(("loss/", "sft/loss", "grad_norm", "entropy/", "kl/", "ratio/"))]
        if keys:
            return int(record["step"]), keys
    return None


def alarm_findings(course: Run, given: Sequence[Alarm]) -> list[Finding]:
    """One finding for each kind of alarm; alarms that only the run itself recorded are told in its words."""
    by_name: dict[str, list[Alarm]] = {}
    for alarm in given:
        by_name.setdefault(alarm.name, []).append(alarm)
    erupted = "eruption" in by_name
    found: list[Finding] = []
    for name, alarms in by_name.items():
        if name == "eruption" or (name == "likelihood_fall" and erupted):  # told elsewhere
            continue
        first, steps = alarms[0], tuple(alarm.step for alarm in alarms)
        again = f" So again at {steps_listed(steps[1:6])}{' and later' if steps[6:] else ''}." if steps[1:] else ""
        claim = f"Step {first.step}: {first.text[0].lower()}{first.text[1:]}{again}"
        remedy = to_widen(course) if name == "collapse" else in_the_doctors_words(course, first.remedy)
        found.append(Finding(f"alarm/{name}", claim, "warning", first.numbers, steps, remedy))
    for event in course.events:
        name = str(event.get("name"))
        if event.get("kind") == "alarm" and name not in by_name:
            by_name[name] = []
            step, text, remedy = int(event["step"]), str(event.get("text", "")), str(event.get("remedy", ""))
            tried = (remedy,) if remedy else ()
            found.append(Finding(f"alarm/{name}", f"Step {step}, as recorded: {text}", "warning", {}, (step,), tried))
    return found


def failure_findings(course: Run) -> list[Finding]:
    lost = course.curve("failures")
    if not (total := sum(lost.values)):
        return []
    per_step = (course.amount("rollout.groups") or 0) * (course.amount("rollout.group_size") or 0)
    share = total / (per_step * len(lost)) if per_step else 0.0
    kinds = {kind: sum(course.curve(f"failures/{kind}").values) for kind in FAILURES}
    told = listed([f"{number:.0f} {kind}" for kind, number in kinds.items() if number])
    steps = tuple(step for step, value in zip(lost.steps, lost.values, strict=True) if value)
    of = f", {percent(share)} of all" if share else ""
    claim = f"{count(int(total), 'episode')} failed for reasons outside of the policy{of}"
    claim += f"{f' ({told})' if told else ''}, in {count(len(steps), 'step')}, the first of them step {steps[0]}."
    advice = ("isentrope check-task", "a larger task.step_seconds, if tasks are slow")
    severity, remedy = ("warning", advice) if share >= LOST else ("note", ())
    evidence = {"episodes": total, "share": share} | kinds
    return [Finding("failures", sentence(claim), severity, evidence, steps[:10], remedy)]
