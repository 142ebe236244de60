"""Responses that grow or shrink, and responses that grow in failed episodes alone.

Where losses are averaged within a response, a token of a long one weighs less. Of responses that fail alike the long
ones are then discouraged less, and a policy that sees no way to succeed may learn to go on talking
(docs/claims/seal.md).
"""

from __future__ import annotations

from isentrope.instruments.curves import ENOUGH, Curve
from isentrope.instruments.diagnosis_data import Course, Finding
from isentrope.instruments.diagnosis_remedies import other_weighing

LONGER, SHORTER = 1.5, 0.6  # responses that change their length by so much are worth a word
SAME = 1.2  # responses that grew by less have hardly grown
OVERLONG = "learn.overlong=0.2, if long responses bring nothing"


def length_findings(course: Course) -> list[Finding]:
    length = course.curve("response/tokens")
    solved, failed = (course.curve(f"response/outcome/{outcome}") for outcome in ("solved", "failed"))
    if _grew_where_lost(solved, failed):
        claim = (
            f"Responses of failed episodes went from {failed.start:.0f} tokens to {failed.end:.0f}, those of solved "
            f"ones from {solved.start:.0f} to {solved.end:.0f}."
        )
        evidence = {"failed/start": failed.start, "failed/end": failed.end}
        evidence |= {"solved/start": solved.start, "solved/end": solved.end}
        remedy = (*other_weighing(course), OVERLONG)
        return [Finding("length/failed", claim, "warning", evidence, (failed.steps[-1],), remedy)]
    if not _changed(length):
        return []
    claim = f"Responses went from {length.start:.0f} tokens to {length.end:.0f}."
    evidence = {"start": length.start, "end": length.end}
    remedy = (OVERLONG,) if length.end > length.start else ()
    return [Finding("length", claim, "note", evidence, (length.steps[-1],), remedy)]


def _changed(length: Curve) -> bool:
    """By more than its noise, and by enough to be worth a word."""
    if len(length) < 2 * ENOUGH or length.start <= 0:
        return False
    times = length.end / length.start
    return not SHORTER < times < LONGER and abs(length.end - length.start) > length.margin


def _grew_where_lost(solved: Curve, failed: Curve) -> bool:
    if not _changed(failed) or failed.end < failed.start:
        return False
    return len(solved) >= 2 * ENOUGH and solved.end < SAME * solved.start
