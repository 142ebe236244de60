"""The state that a run is in, the alarms it gave, and lost episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from isentrope.instruments.alarms import Alarm
from isentrope.instruments.diagnosis_data import Course, Finding, slower
from isentrope.instruments.diagnosis_remedies import in_the_doctors_words, to_widen
from isentrope.instruments.stops import FAILURES
from isentrope.instruments.wording import count, listed, percent, steps_listed

LOST = 0.05  # share of lost episodes from which it is more than a note
TOLD_ELSEWHERE = ("eruption",)


def state_findings(course: Course) -> list[Finding]:
    """Whether the run came to its end, goes on, was cut off, or broke."""
    last = course.last_step
    if not course.records:
        return [Finding("state/empty", "The folder has no numbers yet.", "note")]
    bad = _not_finite(course)
    planned = course.amount("run.steps") if course.kind == "train" else None
    found: list[Finding] = []
    if course.running:
        of = f" of {planned:.0f}" if planned else ""
        found.append(
            Finding("state/running", f"The run is going on; it has done step {last}{of}.", "note", {}, (last,))
        )
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


def switch_findings(course: Course) -> list[Finding]:
    """Methods that an alarm switched on, in the run's own words."""
    return [
        Finding("switched", str(event.get("text")), "note", {}, (int(event["step"]),))
        for event in course.events
        if _says(event, "switch")
    ]


def _says(event: Mapping[str, Any], kind: str) -> bool:
    return event.get("kind") == kind and isinstance(event.get("text"), str)


def _not_finite(course: Course) -> tuple[int, list[str]] | None:
    """The first step with numbers that are not finite in what the policy is made of, and their keys."""
    for record in course.records:
        keys = [str(key) for key in cast("list[Any]", record.get("nonfinite") or [])]
        keys = [key for key in keys if key.startswith(("loss/", "sft/loss", "grad_norm", "entropy/", "kl/", "ratio/"))]
        if keys:
            return int(record["step"]), keys
    return None


def alarm_findings(course: Course, given: Sequence[Alarm]) -> list[Finding]:
    """One finding for each kind of alarm; alarms that only the run itself recorded are told in its words."""
    by_name: dict[str, list[Alarm]] = {}
    for alarm in given:
        by_name.setdefault(alarm.name, []).append(alarm)
    erupted = "eruption" in by_name
    found: list[Finding] = []
    for name, alarms in by_name.items():
        if name in TOLD_ELSEWHERE or (name == "likelihood_fall" and erupted):
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


def failure_findings(course: Course) -> list[Finding]:
    lost = course.curve("failures")
    total = sum(lost.values)
    if not total:
        return []
    per_step = (course.amount("rollout.groups") or 0) * (course.amount("rollout.group_size") or 0)
    share = total / (per_step * len(lost)) if per_step else 0.0
    kinds = {kind: sum(course.curve(f"failures/{kind}").values) for kind in FAILURES}
    told = listed([f"{number:.0f} {kind}" for kind, number in kinds.items() if number])
    steps = tuple(step for step, value in zip(lost.steps, lost.values, strict=True) if value)
    of = f", {percent(share)} of all" if share else ""
    claim = (
        f"{count(int(total), 'episode')} failed for reasons outside of the policy{of}{f' ({told})' if told else ''}, "
    )
    claim += f"in {count(len(steps), 'step')}, the first of them step {steps[0]}."
    remedy = ("isentrope check-task", "a larger task.step_seconds, if tasks are slow") if share >= LOST else ()
    severity = "warning" if share >= LOST else "note"
    claim = claim[0].upper() + claim[1:]
    return [Finding("failures", claim, severity, {"episodes": total, "share": share} | kinds, steps[:10], remedy)]
