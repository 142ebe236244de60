"""What a diagnosis is made of."""

from __future__ import annotations

from dataclasses import dataclass, field

from isentrope.runs.folder import Run

SEVERITIES = ("good", "note", "warning", "bad")


@dataclass(frozen=True)
class Finding:
    name: str
    claim: str  # one or a few plain sentences, with the numbers
    severity: str  # one of SEVERITIES
    evidence: dict[str, float] = field(default_factory=dict[str, float])
    steps: tuple[int, ...] = ()  # the steps that the claim names
    remedy: tuple[str, ...] = ()  # what to try, one thing each


def slower(course: Run) -> str:
    """`a smaller learning rate`, with the one that ran if it is known."""
    lr = course.amount("learn.lr")
    return "a smaller learning rate" + (f" (learn.lr is {lr:g})" if lr else "")
