"""What happened in a warm-up: imitation of an expert (sft) or of the policy's own successes (rft)."""

from __future__ import annotations

from isentrope.instruments.curves import ENOUGH, Curve
from isentrope.instruments.diagnosis_data import Course, Finding
from isentrope.instruments.wording import nats, percent

RISEN = 1.5  # a loss that ends so many times above its lowest is rising again
MOST = 0.9


def imitation_findings(course: Course) -> list[Finding]:
    loss = course.curve("sft/loss", "sft")
    found = [*_loss(course, loss)] if len(loss) >= ENOUGH else []
    solved = course.curve("rft/solved", "sft")
    if len(solved):
        share = solved.values[-1]
        severity = "bad" if share == 0 else "note"
        claim = f"Of the policy's own games {percent(share)} were solved and imitated."
        remedy = ("isentrope sft, which imitates an expert", "easier tasks") if share == 0 else ()
        found.append(Finding("imitation/own", claim, severity, {"solved": share}, (), remedy))
    for key in course.keys("eval/", "eval"):
        if key.endswith("/success") and key.count("/") == 2:
            found += _evaluated(course, key.split("/")[1], course.curve(key, "eval"))
    return found


def _loss(course: Course, loss: Curve) -> list[Finding]:
    start, end, lowest = loss.start, loss.end, -Curve(loss.steps, tuple(-v for v in loss.values)).best[1]
    epochs = course.curve("sft/epoch", "sft")
    passes = f" ({epochs.values[-1]:g} × the games)" if len(epochs) else ""
    evidence = {"start": start, "end": end, "lowest": lowest}
    if end > RISEN * lowest and end - lowest > loss.margin:
        claim = (
            f"The loss of the imitated tokens was {nats(lowest)} nats at its lowest and ends at {nats(end)}{passes}."
        )
        return [Finding("imitation/rising", claim, "bad", evidence, (loss.steps[-1],), ("a smaller sft.lr",))]
    if start - end <= max(loss.margin, 0.1 * start):
        claim = f"The loss of the imitated tokens hardly fell: {nats(start)} nats at the start, {nats(end)} at the end"
        claim += f"{passes}."
        remedy = ("a larger sft.lr", "more sft.epochs")
        return [Finding("imitation/stalled", claim, "warning", evidence, (loss.steps[-1],), remedy)]
    falling = Curve(loss.steps, tuple(-value for value in loss.values))
    most = falling.reached(-(start - MOST * (start - end)))
    when = f", most of it by step {most}" if most < loss.steps[-1] else ""
    claim = f"The loss of the imitated tokens fell from {nats(start)} to {nats(end)} nats{when}{passes}."
    return [Finding("imitation/learnt", claim, "good", evidence | {"most_by": most}, (most,))]


def _evaluated(course: Course, split: str, success: Curve) -> list[Finding]:
    if not len(success):
        return []
    last, step = success.values[-1], success.steps[-1]
    valid = course.curve(f"eval/{split}/valid_ratio", "eval")
    shares = f", and {percent(valid.values[-1])} of its actions are valid" if len(valid) else ""
    claim = f"Afterwards it solves {percent(last)} of the {split} games{shares}."
    if last == 0:
        remedy = ("more sft.games or sft.epochs: who solves nothing finds nothing to learn from in training",)
        return [Finding(f"evaluation/{split}", claim, "bad", {"success": last}, (step,), remedy)]
    return [Finding(f"evaluation/{split}", claim, "good", {"success": last}, (step,))]
