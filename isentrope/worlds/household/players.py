"""Players that do not solve the task; their games teach the pocket model to read and how the house works."""

from __future__ import annotations

import random

from isentrope.worlds.contract import Instance, Move, View
from isentrope.worlds.household.expert import HouseholdExpert, things_listed, type_of
from isentrope.worlds.household.game import Goal
from isentrope.worlds.household.generate import APPLIANCE
from isentrope.worlds.household.rooms import OBJECTS, lies_in

_WEIGHTS = {
    "take": 3.0, "open": 6.0, "move": 2.0, "clean": 4.0, "heat": 4.0, "cool": 4.0, "use": 2.0,
    "slice": 2.0, "close": 0.3, "examine": 0.4, "look": 0.2, "inventory": 0.2, "help": 0.0,
}  # fmt: skip
_GOING = 4.0  # all `go to` commands together
_IMPOSSIBLE = 0.07  # share of turns with a command that is not admissible
_TYPES = sorted({thing for table in OBJECTS.values() for thing in table})


class RandomPlayer:
    """Has no goal: it wanders about, touches things and says truthfully what it sees.

    At every turn it is curious about some type of thing, says whether one is in view, and does something at random, now
    and then something that is not possible. Plays one episode at a time; `start` forgets all but the random state.
    """

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
        if self._rng.random() < _IMPOSSIBLE:  # a well-formed command about things of this house
            place, thing = self._rng.choice(self._places or ["shelf 1"]), f"{self._rng.choice(_TYPES)} 1"
            commands = (f"open {place}", f"take {thing} from {place}", f"move {thing} to {place}", f"examine {thing}")
            command = self._rng.choice(commands)
            return f"use {place}" if command in admissible else command
        going = sum(1 for command in admissible if command.startswith("go to "))
        weights = [self._weight(command, going, found) for command in admissible]
        return self._rng.choices(admissible, weights)[0]

    def _weight(self, command: str, going: int, found: list[str]) -> float:
        if command.startswith("go to "):
            return _GOING / going
        weight = _WEIGHTS.get(command.split(" ")[0], 0.1)
        return weight * 4 if any(f" {thing} " in f"{command} " for thing in found) else weight


_AIMLESS = 0.15  # share of turns without any purpose
_TIRED = 0.06  # chance per turn to want something else
_ECHO = 0.3  # chance that a part of a whim is a word of the task
_LAMPS = ("desklamp", "floorlamp")


class Wanderer(HouseholdExpert):
    """Follows aims of its own, one after the other, and does not care about the task.

    Its games teach to look for a thing where it has not looked yet, to carry, heat, clean and put away. An aim is put
    together at random: a thing, a place, something to be done. Each may be picked up from the words of the task, three
    times in ten and without regard to the others, so tasks are carried out only by accident. Now and then it does
    something at random, also something impossible.
    """

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
