"""All causes that are looked for, the best borne first."""

from __future__ import annotations

from collections.abc import Callable

from isentrope.diagnosis.causes import answers, signal, updates
from isentrope.diagnosis.causes.suspect import NAMED, STRENGTH
from isentrope.diagnosis.facts import Facts
from isentrope.diagnosis.remedies import Finding

MOST = 2  # causes that are named
BESIDE = 0.15  # a second one is named if it is borne nearly as well

CAUSES: tuple[Callable[[Facts], Finding | None], ...] = (
    answers.failures, answers.responses_cut, answers.context_cut, answers.invalid, answers.turn_limit,
    answers.impossible, answers.hot, answers.cold, signal.odd_reward, signal.equal_groups, signal.small_group,
    signal.penalty, signal.scale, signal.same_games, signal.other_games, updates.stale_sampler, updates.standing,
    updates.held, updates.drift, updates.bonus, updates.narrow_clip, updates.reused, updates.left_out,
)  # fmt: skip


def suspects(facts: Facts) -> list[Finding]:
    """Whatever the numbers speak for, the best borne first."""
    found = [finding for cause in CAUSES if (finding := cause(facts)) is not None]
    return sorted(found, key=lambda finding: -finding.evidence[STRENGTH])


def causes(facts: Facts) -> list[Finding]:
    """Those that are named."""
    found = [finding for finding in suspects(facts) if finding.evidence[STRENGTH] >= NAMED]
    if not found:
        return []
    least = found[0].evidence[STRENGTH] - BESIDE
    return [finding for finding in found if finding.evidence[STRENGTH] >= least][:MOST]
