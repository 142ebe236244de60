"""Where entropy rose: in which part of the responses, and whether in a few of them alone."""

from __future__ import annotations

from statistics import fmean

from isentrope.instruments.diagnosis_data import Course
from isentrope.instruments.rises import Rise
from isentrope.instruments.wording import percent

AROUND = 2  # steps before and after the peak
LEAST = 0.1  # a part with a smaller share of the rise is not mentioned
PARTS = {"other": "tags, stray text and thoughts that were never closed", "think": "thoughts", "action": "actions"}


def where(course: Course, rise: Rise, evidence: dict[str, float]) -> list[str]:
    """What each part adds to the entropy of a whole response, before the eruption and at its peak: its tokens times
    their mean entropy. A part that fell has no share in the rise. Nothing where a run did not measure it."""
    before, peak = _sums(course, rise.onset - 1 - 2 * AROUND, rise.onset - 1), _sums(course, *_around(rise))
    grown = {part: max(0.0, peak[part] - before[part]) for part in PARTS if part in before and part in peak}
    total = sum(grown.values())
    if len(grown) < len(PARTS) or total <= 0:
        return []
    shares = {part: grown[part] / total for part in PARTS}
    evidence |= {f"rise/{part}": share for part, share in shares.items()}
    told = sorted((part for part in PARTS if shares[part] >= LEAST), key=lambda part: -shares[part])
    said = [f"{percent(shares[part])} of the rise was in {PARTS[part]}" for part in told[:1]]
    said += [f"{percent(shares[part])} in {PARTS[part]}" for part in told[1:]]
    return [f"about {', '.join(said)}"]


def in_few(course: Course, rise: Rise, evidence: dict[str, float]) -> list[str]:
    """Whether most of it was in a few responses: then it is noise in them, and the policy is no more open elsewhere."""
    curve = course.curve("entropy/concentration")
    before, peak = curve.before(rise.onset).values, curve.between(*_around(rise)).values
    if not before or not peak or fmean(peak) - fmean(before) < LEAST:
        return []
    evidence |= {"concentration/before": fmean(before), "concentration/peak": fmean(peak)}
    return [
        f"at the peak {percent(fmean(peak))} of all entropy was in one response of 20 ({percent(fmean(before))} before)"
    ]


def _around(rise: Rise) -> tuple[int, int]:
    """The first and last step of the peak, none of which lies before the onset."""
    return max(rise.onset, rise.peak - AROUND), rise.peak + AROUND


def _sums(course: Course, first: int, last: int) -> dict[str, float]:
    """Nats of a response by part; empty if anything was not measured."""

    def mean(key: str) -> float | None:
        values = course.curve(key).between(first, last).values
        return fmean(values) if values else None

    whole, thought, action = (mean(f"response/{key}") for key in ("tokens", "think_tokens", "action_tokens"))
    entropies = {part: mean(f"entropy/{part}") for part in PARTS}
    if whole is None or thought is None or action is None:
        return {}
    tokens = {"think": thought, "action": action, "other": max(0.0, whole - thought - action)}
    return {part: tokens[part] * entropy for part, entropy in entropies.items() if entropy is not None}
