"""A player without a goal: it wanders about, touches things and says truthfully what it sees.

Its games are for learning to read. At every turn it is curious about some type of thing, says whether one is in
view, and does something at random, now and then something that is not possible.
"""

from __future__ import annotations

import random

from isentrope.tasks.contract import Instance, Move, View
from isentrope.tasks.household.reading import things_listed, type_of
from isentrope.tasks.household.rooms import OBJECTS

_WEIGHTS = {
    "take": 3.0, "open": 6.0, "move": 2.0, "clean": 4.0, "heat": 4.0, "cool": 4.0, "use": 2.0,
    "slice": 2.0, "close": 0.3, "examine": 0.4, "look": 0.2, "inventory": 0.2, "help": 0.0,
}  # fmt: skip
_GOING = 4.0  # all `go to` commands together
_IMPOSSIBLE = 0.07  # share of turns with a command that is not admissible
_TYPES = sorted({thing for table in OBJECTS.values() for thing in table})


class RandomPlayer:
    """Plays one episode at a time; `start` forgets everything but the random state."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(f"household random player {seed}")

    def start(self, view: View, instance: Instance) -> None:
        self._places = things_listed(view.text)

    def act(self, view: View) -> Move:
        in_view = [thing for thing in things_listed(view.text) if thing not in self._places]
        curious = self._rng.choice(in_view) if in_view and self._rng.random() < 0.5 else ""
        wanted = type_of(curious) if curious else self._rng.choice(_TYPES)
        found = [thing for thing in in_view if type_of(thing) == wanted]
        report = f"I see {' and '.join(found)}." if found else f"I see no {wanted} here."
        action = self._choose(view.admissible or ("look",), found)
        return Move(f"I look for a {wanted}. {report}", action)

    def _choose(self, admissible: tuple[str, ...], found: list[str]) -> str:
        if self._rng.random() < _IMPOSSIBLE:
            return self._impossible(admissible)
        going = sum(1 for command in admissible if command.startswith("go to "))
        weights = [self._weight(command, going, found) for command in admissible]
        return self._rng.choices(admissible, weights)[0]

    def _weight(self, command: str, going: int, found: list[str]) -> float:
        if command.startswith("go to "):
            return _GOING / going
        weight = _WEIGHTS.get(command.split(" ")[0], 0.1)
        return weight * 4 if any(f" {thing} " in f"{command} " for thing in found) else weight

    def _impossible(self, admissible: tuple[str, ...]) -> str:
        """A well-formed command about things of this house that cannot be done now."""
        place, thing = self._rng.choice(self._places or ["shelf 1"]), f"{self._rng.choice(_TYPES)} 1"
        commands = (f"open {place}", f"take {thing} from {place}", f"move {thing} to {place}", f"examine {thing}")
        command = self._rng.choice(commands)
        return f"use {place}" if command in admissible else command
