"""A suspect: a cause, and how well the numbers bear it."""

from __future__ import annotations

from isentrope.diagnosis.remedies import Finding

NAMED = 0.5  # a suspect that is borne less is not named
STRENGTH = "strength"  # where the evidence of a finding says how well it is borne


def suspect(
    name: str, strength: float, claim: str, evidence: dict[str, float], remedy: tuple[str, ...], step: int | None = None
) -> Finding:
    steps = () if step is None else (step,)
    return Finding(f"cause/{name}", claim, "bad", {STRENGTH: round(min(strength, 0.99), 3)} | evidence, steps, remedy)
