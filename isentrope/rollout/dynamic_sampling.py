"""Dynamic sampling (DAPO): replaces groups whose episodes all did equally well, which teach nothing.

A bounded number of attempts: what is still missing then stays missing, and the step learns from fewer groups. Every
group that was played and dropped is kept apart, so that the record shows what the policy really did.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from isentrope.config.schema import LearnSettings
from isentrope.core.types import FAILURES, Episode
from isentrope.runs.episodes import write_episodes
from isentrope.runs.layout import dropped_path, train_path

Play = Callable[[int, int], list[Episode]]
"""From (attempt, number of groups) to their episodes."""


@dataclass(frozen=True)
class Groups:
    """The groups of a step: those that teach something, and those that were played and dropped."""

    kept: list[Episode]
    dropped: list[Episode]
    metrics: dict[str, float]

    def write(self, run: Path, step: int) -> None:
        """The episodes of the step, and apart from them those that were played and dropped."""
        write_episodes(train_path(run, step), self.kept)
        if self.dropped:
            write_episodes(dropped_path(run, step), self.dropped)


def sample_groups(play: Play, groups: int, learn: LearnSettings) -> Groups:
    """Play `groups` groups; with `learn.resample`, replace equal ones. Episodes that broke say nothing about the policy
    and do not count in the comparison."""
    episodes = play(0, groups)
    if learn.resample == 0:
        return Groups(episodes, [], {})
    kept, dropped = split_equal(episodes, learn.resample_by)
    attempts = 1
    while attempts <= learn.resample and _groups(kept) < groups:
        more, equal = split_equal(play(attempts, groups - _groups(kept)), learn.resample_by)
        kept, dropped, attempts = kept + more, dropped + equal, attempts + 1
    return Groups(
        kept,
        dropped,
        {
            "resample/attempts": float(attempts),
            "resample/dropped": float(_groups(dropped)),
            "resample/missing": float(groups - _groups(kept)),
            "advantage/zero_groups": _groups(dropped) / max(1, _groups(kept) + _groups(dropped)),
        },
    )


def split_equal(episodes: Sequence[Episode], by: str) -> tuple[list[Episode], list[Episode]]:
    """(episodes of groups with different outcomes, episodes of groups with equal ones)."""
    outcomes: dict[int, set[float]] = {}
    for episode in episodes:
        group_outcomes = outcomes.setdefault(episode.group, set())
        if episode.stop not in FAILURES:
            group_outcomes.add(episode.ret if by == "return" else float(episode.success))
    return (
        [episode for episode in episodes if len(outcomes[episode.group]) > 1],
        [episode for episode in episodes if len(outcomes[episode.group]) <= 1],
    )


def _groups(episodes: Sequence[Episode]) -> int:
    return len({episode.group for episode in episodes})
