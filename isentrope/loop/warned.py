"""Warnings of a run: said when they are given, and kept in events.jsonl for whoever asks later what went wrong.

    warned = Warned("rate_low", text, remedy)
    progress.say(warned.line(step)); log.write_events([warned.event(step)])

What begins badly is found before the first step, in the settings, in those of the run that the model came from and in
how many turns an expert needs, or in the first steps.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from isentrope.config.schema import RunConfig
from isentrope.config.text import as_table
from isentrope.config.validate import is_remote
from isentrope.core.text import count, listed
from isentrope.core.types import Episode
from isentrope.runs.log import Record
from isentrope.runs.taught import otherwise_taught, teacher_of
from isentrope.worlds.contract import Expert, World
from isentrope.worlds.pool.open import Placement, choose_placement

KIND = "warning"  # of their events


@dataclass(frozen=True)
class Warned:
    name: str  # as the doctor's causes are called, where it is one
    text: str
    remedy: str
    numbers: Mapping[str, float] = field(default_factory=dict[str, float])

    def line(self, step: int = 0) -> str:
        """As it is printed; before the first step without a number."""
        return f"{f'step {step}: ' if step else ''}{self.text}; try {self.remedy}"

    def event(self, step: int) -> Record:
        told = {"step": step, "kind": KIND, "name": self.name, "text": self.text, "remedy": self.remedy}
        return told | {key: float(value) for key, value in self.numbers.items()}


def other_form(config: RunConfig) -> Warned | None:
    """The run asks for another form of prompts or answers than its model was taught."""
    differing = otherwise_taught(as_table(config), teacher_of(config.policy.model))
    if not differing:
        return None
    text = f"the form differs from the one that policy.model = {config.policy.model} was taught: {listed(differing)}"
    return Warned("form", text, "the settings that it was taught with, or a warm-up with those of this run")


GAMES, SECONDS, FEW = 32, 0.3, 8  # games that an expert plays at most, for so long; after so many it may be clear
MOST = 0.9  # share of the games that a policy should have time for, in twice the expert's turns
LONG = 4  # times the limit of turns: an expert that has not won by then is not counted


def short_games(config: RunConfig, world: World) -> Warned | None:
    """Most games need more turns than task.max_turns gives, as far as the world's expert shows it."""
    limit = config.task.max_turns
    needed = sorted(turns_needed(config, world))
    more = [turns for turns in needed if turns > limit]
    if len(needed) < FEW or 2 * len(more) <= len(needed):
        return None
    usual = median(needed)
    text = (
        f"task.max_turns = {limit} is too few for most games: the world's expert needs more in {len(more)} of "
        f"{len(needed)} training games, {usual:.0f} turns in the middle one and {max(needed)} at most"
    )
    numbers = {"games": len(needed), "more": len(more), "limit": limit, "middle": usual}
    return Warned("turn_limit", text, f"--set task.max_turns={2 * needed[int(MOST * len(needed))]}", numbers)


def turns_needed(config: RunConfig, world: World) -> list[int]:
    """Turns in which the world's expert wins training games, those that it wins. Only of a world that is played in this
    thread: others may take a server, a process or a sandbox to play at all."""
    needed: list[int] = []
    with suppress(Exception):  # a task that breaks is told where it is played
        task = config.task
        if is_remote(task.where) or choose_placement(task.where, task.workers, world) != Placement():
            return []
        size, until = world.size("train"), time.monotonic() + SECONDS
        for index in range(GAMES if size is None else min(GAMES, size)):
            expert = world.expert(index)
            if expert is None or time.monotonic() > until:
                break
            if turns := _played(world, expert, index, LONG * task.max_turns, until):
                needed.append(turns)
            if len(needed) == FEW and max(needed) <= task.max_turns:
                break
    return needed


def _played(world: World, expert: Expert, index: int, most: int, until: float) -> int:
    """Turns to a win; 0: it was not won, or not in time."""
    task, instance = world.open(), world.instance("train", index)
    try:
        view = task.start(instance)
        expert.start(view, instance)
        for turn in range(1, most + 1):
            step = task.step(expert.act(view).action)
            if step.terminated or step.truncated or time.monotonic() > until:
                return turn if step.success else 0
            view = step.view
        return 0
    finally:
        task.close()


class Repeats:
    """Looks at the first steps of a run: whether they play the same few games."""

    FIRST, LAST, GROUPS, SHARE = 3, 5, 12, 0.15  # steps, least groups, and different games in them

    def __init__(self) -> None:
        self._step = self._groups = 0
        self._games: set[tuple[str, int]] = set()

    def look(self, step: int, episodes: Sequence[Episode]) -> Warned | None:
        """Once at most."""
        if step != self._step + 1 or step > self.LAST:
            return None  # it has looked or spoken, or saw no beginning
        self._step = step
        self._groups += len({episode.group for episode in episodes})
        self._games |= {(episode.split, episode.index) for episode in episodes}
        games, groups = len(self._games), self._groups
        if step < self.FIRST or groups < self.GROUPS or games > self.SHARE * groups:
            return None
        self._step = self.LAST
        text = f"training plays the same games again and again: {count(games, 'different game')} in the {groups} groups"
        text += f" of its first {step} steps"
        remedy = "a task.sampler that plays more of them, or more games in the training split"
        return Warned("same_games", text, remedy, {"games": games, "groups": groups})

    def state_dict(self) -> dict[str, Any]:
        return {"step": self._step, "groups": self._groups, "games": sorted(map(list, self._games))}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._step, self._groups = state["step"], state["groups"]
        self._games = {(str(split), int(index)) for split, index in state["games"]}
