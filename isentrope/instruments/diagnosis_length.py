"""Responses that grow or shrink, and responses that grow where the task is not solved and nowhere else.

Where losses are averaged within a response, a token of a long one weighs less. Of responses that fail alike the tokens
of long ones are then discouraged less (docs/claims/seal.md).
"""

from __future__ import annotations

from isentrope.instruments.curves import ENOUGH, Curve
from isentrope.instruments.diagnosis_data import Course, Finding
from isentrope.instruments.diagnosis_remedies import to_shorten

LONGER, SHORTER = 1.5, 0.6  # responses that change their length by so much are worth a word
SAME = 1.2  # responses that grew by less have hardly grown
COMMON = 0.5  # share of the run's steps at which both outcomes must be known


def length_findings(course: Course) -> list[Finding]:
    whole = course.curve("response/tokens")
    solved, failed = _where_both_are_known(course, len(whole))
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


def _where_both_are_known(course: Course, steps: int) -> tuple[Curve, Curve]:
    """Lengths in solved and in failed episodes over the steps that have both; empty if those are too few to tell.

    Without it a run that solved something in its beginning alone, or that was resumed from metrics without these
    numbers, would be told with a start and an end that are not of the same steps."""
    solved, failed = (course.curve(f"response/outcome/{outcome}") for outcome in ("solved", "failed"))
    both = set(solved.steps) & set(failed.steps)
    if len(both) < COMMON * steps:
        both = set[int]()
    return _at(both, solved), _at(both, failed)


def _at(steps: set[int], length: Curve) -> Curve:
    """No method of Curve beside `between`: the claims' rules are pinned to that class, to the letter."""
    kept = [(step, value) for step, value in zip(length.steps, length.values, strict=True) if step in steps]
    return Curve(tuple(step for step, _ in kept), tuple(value for _, value in kept))


def _changed(length: Curve) -> bool:
    """By more than its noise, and by enough to be worth a word."""
    if len(length) < 2 * ENOUGH or length.start <= 0:
        return False
    times = length.end / length.start
    return not SHORTER < times < LONGER and abs(length.end - length.start) > length.margin
