"""Causes that lie in credit: advantages that do not follow what episodes were worth, and rewards that reach no turn."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from isentrope.core.errors import RunError
from isentrope.core.text import count, percent
from isentrope.core.types import Episode
from isentrope.diagnosis.causes.suspect import suspect
from isentrope.diagnosis.facts import Facts
from isentrope.diagnosis.remedies import Finding

FOLLOWS = 0.3  # estimators of this package, methods included, have 0.6 to 1 in the runs that were looked at
LEAST = 24  # episodes beyond one a group from which a correlation is told
FAINT = 0.01  # of the last reward, in the middle of an episode


def advantages(facts: Facts) -> Finding | None:
    """Within a group, who earned more must have the higher advantage, whatever the estimator."""
    if facts.fine or facts.steps < 3:
        return None
    own, groups = compared(facts)
    free = len(own) - groups
    if free < LEAST or not own[:, 0].any():
        return None
    r = float(np.corrcoef(own[:, 0], own[:, 1])[0, 1])
    upper = math.tanh(math.atanh(max(-0.999999, min(0.999999, r))) + 1.96 / math.sqrt(free - 3))
    if not upper < FOLLOWS:
        return None
    kind = facts.course.setting("learn.advantage.kind")
    claim = f"Advantages do not follow the returns: within the groups of the stored steps ({len(own)} episodes) an "
    claim += f"episode's advantage and its return have a correlation of {r:.2f} (1: who earned more has the higher one)"
    claim += f"; learn.advantage is {kind}." if kind else "."
    remedy: tuple[str, ...] = ("learn.advantage=grpo, or another of this package's",)
    remedy += ("a look at the estimator: to which episode does each number belong?",) if ":" in str(kind) else ()
    remedy += ("no methods, which change advantages",) if facts.course.methods else ()
    return suspect("advantages", 0.94, claim, {"correlation": r, "upper": upper, "episodes": len(own)}, remedy)


def compared(facts: Facts) -> tuple[NDArray[np.float64], int]:
    """Mean advantage and return of the stored episodes that were learnt from, each in deviations of its group; and how
    many groups that are. Groups in which all earned the same tell nothing."""
    rows: list[NDArray[np.float64]] = []
    for step, episodes in facts.stored:
        try:
            means = facts.course.advantages(step, episodes)
        except RunError:
            continue
        rows += [pair for members in _groups(episodes) if (pair := _standard(episodes, members, means)) is not None]
    return (np.concatenate(rows) if rows else np.zeros((0, 2))), len(rows)


def _groups(episodes: list[Episode]) -> list[list[int]]:
    found: dict[int, list[int]] = {}
    for place, episode in enumerate(episodes):
        found.setdefault(episode.group, []).append(place)
    return list(found.values())


def _standard(episodes: list[Episode], members: list[int], means: dict[int, float]) -> NDArray[np.float64] | None:
    pairs = np.array([(means[place], episodes[place].ret) for place in members if place in means])
    if len(pairs) < 2 or np.ptp(pairs[:, 1]) < 1e-9:
        return None
    spread = pairs.std(axis=0)
    return (pairs - pairs.mean(axis=0)) / np.where(spread > 1e-12, spread, 1.0)


def discount(facts: Facts) -> Finding | None:
    """A discount by which the reward at the end of an episode is gone before it reaches the middle. Its unit is the
    estimator's: a token for gae, a turn for gigpo."""
    kind, factor = facts.course.setting("learn.advantage.kind"), facts.course.amount("learn.advantage.discount")
    if facts.fine or facts.steps < 6 or factor is None or not 0 <= factor < 1:
        return None
    unit = "token" if kind == "gae" else "turn"
    within = kind == "gae" and facts.course.setting("learn.advantage.credit") == "token"  # each turn has the return
    length = facts.mean("response/tokens" if within else f"episode/{unit}s")
    if not length or factor ** (length / 2) >= FAINT:
        return None
    reach = 1 / (1 - factor)
    claim = (
        f"The reward at the end does not reach what led to it: learn.advantage.discount is {factor:g} a {unit}, which "
    )
    claim += f"reaches some {count(round(reach), unit)} back, and {'a turn' if within else 'an episode'} has "
    claim += f"{length:.0f}. In its middle {percent(factor ** (length / 2))} of the reward are left."
    remedy = ("learn.advantage.discount=1",)
    return suspect("discount", 0.9 if facts.sick else 0.7, claim, {"discount": factor, "length": length}, remedy)
