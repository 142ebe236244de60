"""A player who does not care about the task: it follows whims of its own, one after the other.

Its games teach how the house works: to read what is there, to look for a thing where it has not looked yet, to carry,
heat, clean and put away. What it wants is put together at random: a thing, a place, something to be done. Each may be
picked up from the words of the task, three times in ten and without regard to the others, so tasks are not carried out
but by accident. Now and then it does something at random, also something impossible.
"""

from __future__ import annotations

import random

from isentrope.tasks.contract import Instance, Move, View
from isentrope.tasks.household.expert import HouseholdExpert
from isentrope.tasks.household.game import Goal
from isentrope.tasks.household.generate import APPLIANCE
from isentrope.tasks.household.random_player import RandomPlayer
from isentrope.tasks.household.reading import type_of
from isentrope.tasks.household.rooms import OBJECTS, lies_in

_AIMLESS = 0.15  # share of turns without any purpose
_TIRED = 0.06  # chance per turn to want something else
_ECHO = 0.3  # chance that a part of a whim is a word of the task
_LAMPS = ("desklamp", "floorlamp")


class Wanderer(HouseholdExpert):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._whims = random.Random(f"household wanderer {seed}")
        self._aimless = RandomPlayer(seed)

    def start(self, view: View, instance: Instance) -> None:
        super().start(view, instance)
        self._aimless.start(view, instance)
        self._task = self._goal
        self._goal = self._whim()

    def act(self, view: View) -> Move:
        self._read(view.text)
        failed = self._last != "" and view.text.startswith("Nothing")
        done = self._last.startswith(("move ", "use ")) or len(self._searched) == len(self._places)
        if failed or done or self._whims.random() < _TIRED:
            self._goal, self._placed, self._target_place = self._whim(), [], ""
        if failed or self._whims.random() < _AIMLESS:
            move = self._aimless.act(view)
        else:
            move = self._hold(view) if self._held else self._find(self._goal.object_type, view)
        self._last = move.action
        return move

    def _whim(self) -> Goal:
        """Something to want: what is in hand, something seen before, or something that such a room may have."""
        kinds = sorted({type_of(place) for place in self._places})
        usual = sorted(
            thing for room in OBJECTS for thing in OBJECTS[room] if any(k in kinds for k in lies_in(room, thing))
        )
        seen = sorted({type_of(thing) for thing in self._seen} - set(_LAMPS))
        wanted = self._whims.choice(seen if seen and self._whims.random() < 0.6 else usual or ["mug"])
        possible = ["pick", "pick", "two", "look", *(k for k, place in APPLIANCE.items() if place in kinds)]
        wanted = self._echo(self._task.object_type, wanted)
        kind = self._echo(self._task.kind, self._whims.choice(possible))
        if kind == "look":
            place = self._whims.choice(_LAMPS)
        else:
            own = self._whims.choice(kinds or ["shelf"])
            place = self._echo(self._task.place_type, own) if self._task.place_type in kinds else own
        return Goal(kind, type_of(self._held) if self._held else wanted, place)

    def _echo(self, told: str, own: str) -> str:
        return told if self._whims.random() < _ECHO else own
