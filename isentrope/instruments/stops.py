"""Episodes that came out as they did for a reason outside the policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from isentrope.types import Episode

# stops that say something about the task or the engine, nothing about the policy
FAILURES = ("task_error", "time_limit", "worker_died", "garbage", "engine_error")
# In an evaluation a game that the clock cut off is lost to a fault too: on a faster machine it might have been solved.
FAULTS = (*FAILURES, "clock")
CUTS = ("clock", "context_limit")  # stops that an evaluation counts, as a larger limit might have changed the outcome


def lost_to_faults(episodes: Sequence[Episode]) -> int:
    """Episodes of an evaluation that are not solved for a reason outside the policy."""
    return sum(episode.stop in FAULTS and not episode.success for episode in episodes)


def failures_by_kind(episodes: Sequence[Episode]) -> dict[str, int]:
    """How many episodes each of FAILURES ended; those that ended none are left out."""
    stops = Counter(episode.stop for episode in episodes)
    return {stop: stops[stop] for stop in FAILURES if stops[stop]}


def cut_off(episodes: Sequence[Episode]) -> dict[str, int]:
    """How many episodes each of CUTS ended; those that ended none are left out."""
    stops = Counter(episode.stop for episode in episodes)
    return {stop: stops[stop] for stop in CUTS if stops[stop]}
