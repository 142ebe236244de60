"""Causes that lie in what the policy reads: observations that are cut, or that answer another action.

Both are told by the stored episodes alone, without knowing the world. Texts have many lengths, so that few are exactly
as long as the longest; and what a world says of an action names what the action named, at once and not a turn later.
"""

from __future__ import annotations

from isentrope.core.text import percent
from isentrope.diagnosis.causes.suspect import suspect
from isentrope.diagnosis.facts import Facts
from isentrope.diagnosis.remedies import Finding

CUT = 0.3  # of the different observations that are as long as the longest
TEXTS = 15  # different observations from which that is told
KNOWN = 0.4  # share of valid actions below which a policy does not know what it can do
LATE, EARLY = 0.3, 2.0  # share of what actions name that comes a turn late, and times as much as at once
ACTIONS = 50  # from which that is told


def observations_cut(facts: Facts) -> Finding | None:
    if facts.fine:
        return None
    seen = facts.played
    if seen.observations < TEXTS or seen.at_longest < CUT or seen.longest < 8:
        return None
    claim = (
        f"The policy does not see what it needs: observations are cut. {percent(seen.at_longest)} of the "
        f"{seen.observations} different ones in the stored episodes have exactly {seen.longest} characters, and "
        "none has "
        "more."
    )
    if len(facts.valid):
        claim += f" {percent(facts.valid.start)} of the turns at the start were valid actions."
    remedy = (
        f"a look at where the world, or what lies between it and the trainer, cuts texts at {seen.longest} characters",
        "isentrope play, which shows what is read",
    )
    evidence = {"share": seen.at_longest, "characters": seen.longest, "texts": seen.observations}
    lost = (len(facts.valid) and facts.valid.start < KNOWN) or facts.wins < 0.02 * facts.episodes
    return suspect(
        "observations_cut", 0.96 if lost else 0.6, claim, evidence, remedy
    )  # a world may cut for good reason


def observations_late(facts: Facts) -> Finding | None:
    if facts.fine:
        return None
    now, late, actions = facts.played.answers
    if actions < ACTIONS or late < LATE or late < EARLY * now:
        return None
    claim = (
        "Observations do not belong to the actions before them: the world lags one turn behind. Of what an "
        "action names "
        f"the observation after it has {percent(now)}, and the one a turn later {percent(late)} (of {actions} actions)."
    )
    remedy = (
        "a look at which observation the world returns from a step: it has to be the one after the action",
        "isentrope play, which shows what is read",
    )
    evidence = {"now": now, "late": late, "actions": actions}
    return suspect("observations_late", 0.96, claim, evidence, remedy)
