"""Scripted players: the expert, and two that do not solve the task.

The games of those two teach the pocket model to read and how the house works. None of them knows where things are.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from functools import cache

from isentrope.core.errors import TaskError
from isentrope.worlds.contract import Instance, Move, View
from isentrope.worlds.household.game import Goal
from isentrope.worlds.household.generate import APPLIANCE
from isentrope.worlds.household.rooms import FURNITURE, OBJECTS, lies_in

_STATE = {"clean": "clean", "heat": "hot", "cool": "cool"}
_SENTENCES = (
    ("two", r"(?:put|find) two (\w+) (?:in|and put them in) (\w+)"),
    *((kind, rf"{kind} some (\w+) and put it in (\w+)") for kind in _STATE),
    *((kind, rf"put a {state} (\w+) in (\w+)") for kind, state in _STATE.items()),
    ("pick", r"put (?:a|some) (\w+) (?:in|on) (\w+)"),
    ("look", r"look at (\w+) under the (\w+)"),
    ("look", r"examine the (\w+) with the (\w+)"),
)
_GOALS = tuple((kind, re.compile(pattern + r"\.?\s*$")) for kind, pattern in _SENTENCES)
_NAMED = re.compile(r"\ba ([a-z]+ \d+)")


def read_task(sentence: str) -> Goal:
    """The goal that a task sentence states."""
    for kind, pattern in _GOALS:
        if match := pattern.search(sentence):
            return Goal(kind, match[1], match[2])
    raise TaskError(f"the task sentence is not one of this world's: {sentence!r}")


def things_listed(text: str) -> list[str]:
    """The names in a "you see a pen 1, a mug 2, and a book 1" part, in the order of the text."""
    _, found, listed = text.rpartition("you see ")
    return _NAMED.findall(listed) if found else []


def type_of(name: str) -> str:
    """The type of a named thing: "apple" for "apple 2"."""
    return name.rpartition(" ")[0]


def place_described(text: str) -> str:
    """The receptacle that an answer to go to, open or examine describes, or ""."""
    match = re.search(r"(?:On the|The) ([a-z]+ \d+)(?:, you see| is open| is closed)", text)
    return match[1] if match else ""


_RARELY = 0.5  # weight of a receptacle in which such a thing was never found


class HouseholdExpert:
    """Reads the observation, looks where such things usually lie (in a random order that depends on its seed), and says
    in a few words what it has read and what it does next. One episode at a time: `start` forgets everything but the
    random state.
    """

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(f"household expert {seed}")

    def start(self, view: View, instance: Instance) -> None:
        self._goal: Goal = read_task(view.goal)
        self._places = things_listed(view.text)
        self._luck = {place: self._rng.uniform(0.5, 1.5) for place in self._places}
        self._seen: dict[str, str] = {}  # where each thing was last seen
        self._searched: set[str] = set()
        self._closed: set[str] = set()
        self._at = ""  # the receptacle last gone to or examined
        self._held = ""
        self._treated = False
        self._placed: list[str] = []
        self._target_place = ""
        self._last = ""

    def act(self, view: View) -> Move:
        self._read(view.text)
        move = self._hold(view) if self._held else self._find(self._goal.object_type, view)
        self._last = move.action
        return move

    def _read(self, text: str) -> None:
        """Update what is known from the answer to the last command."""
        if self._last.startswith("go to ") and text.startswith("Nothing"):
            self._searched.add(self._last[6:])  # cannot be reached: do not try for ever
        place = place_described(text)
        if place:
            self._at = place
            for thing in [thing for thing, where in self._seen.items() if where == place]:
                del self._seen[thing]
            self._seen.update(dict.fromkeys(things_listed(text), place))
            if text.endswith("is closed."):
                self._closed.add(place)
            else:
                self._closed.discard(place)
                self._searched.add(place)
        elif text.startswith("You pick up the "):
            self._held = text[16:].partition(" from ")[0]
            self._seen.pop(self._held, None)
            self._treated = False
        elif text.startswith("You move the "):
            self._placed.append(self._held)
            self._held = ""
        elif self._last.split(" ")[0] in APPLIANCE and not text.startswith("Nothing"):
            self._treated = True

    def _find(self, wanted: str, view: View) -> Move:
        """Look for a thing of the wanted type to take it or, with another one in hand, to use it."""
        holding = f"I hold {self._held}." if self._held else ""
        need = f"{holding} I need {'one more' if self._placed else 'a'} {wanted}.".lstrip()
        known = [thing for thing in self._seen if type_of(thing) == wanted and thing not in self._placed]
        for thing in known:
            if self._seen[thing] == self._at:
                if holding:
                    return Move(f"{holding} I see {thing}. I use it.", f"use {thing}")
                return Move(f"I see {thing}. I take it.", f"take {thing} from {self._at}")
        if known:
            place = self._seen[known[0]]
            return self._go(place, f"{holding or need} I saw {known[0]} at {place}.", view)
        return self._search(wanted, need, view)

    def _search(self, wanted: str, need: str, view: View) -> Move:
        if self._at in self._closed and self._at not in self._searched:
            return Move(f"{need} The {self._at} is closed. I open it.", f"open {self._at}")
        left = [place for place in self._places if place not in self._searched]
        if not left:  # something was overlooked or moved: once more from the beginning
            self._searched.clear()
            left = list(self._places)
        counts = Counter(map(type_of, self._places))
        chances = {name: _chance(wanted, type_of(name), counts[type_of(name)]) * self._luck[name] for name in left}
        place = max(left, key=chances.__getitem__)
        report = f" I see no {wanted} here." if self._last else ""
        return Move(f"{need}{report} Next I check {place}.", self._way(place, view))

    def _hold(self, view: View) -> Move:
        """The object is in hand: look at it under the lamp, or treat it and bring it to its place."""
        kind = self._goal.kind
        if kind == "look":
            return self._find(self._goal.place_type, view)
        if kind in APPLIANCE and not self._treated:
            place = self._nearest(APPLIANCE[kind])
            first = f"I hold {self._held}. It must be {_STATE[kind]}."
            if place == self._at:
                return Move(f"{first} I {kind} it with {place}.", f"{kind} {self._held} with {place}")
            return self._go(place, first, view)
        if not self._target_place:
            self._target_place = self._nearest(self._goal.place_type)
        place = self._target_place
        first = f"I hold the {_STATE[kind]} {self._held}." if kind in APPLIANCE else f"I hold {self._held}."
        if place != self._at:
            return self._go(place, first, view)
        if place in self._closed:
            return Move(f"{first} The {place} is closed. I open it.", f"open {place}")
        return Move(f"{first} I put it in {place}.", f"move {self._held} to {place}")

    def _nearest(self, kind: str) -> str:
        """Where the player is, else any receptacle of that kind."""
        places = [place for place in self._places if type_of(place) == kind]
        if not places:  # the task asks for a place that the room does not list
            return f"{kind} 1"
        return self._at if self._at in places else self._rng.choice(places)

    def _go(self, place: str, first: str, view: View) -> Move:
        return Move(f"{first} I go to {place}.", self._way(place, view))

    def _way(self, place: str, view: View) -> str:
        """Two receptacles may stand at the same spot: then there is nowhere to go, only to look."""
        here = view.admissible is not None and f"go to {place}" not in view.admissible
        return f"examine {place}" if here else f"go to {place}"


@cache
def _chance(wanted: str, place_type: str, count: int) -> float:
    """How likely a thing lies in one of `count` receptacles of a type, for each turn it takes to look there."""
    rooms = [room for room in OBJECTS if wanted in OBJECTS[room]]
    weight = max((lies_in(room, wanted).get(place_type, 0.0) for room in rooms), default=0.0)
    doors = max((table[place_type].openable for table in FURNITURE.values() if place_type in table), default=0.0)
    return max(weight, _RARELY) / count / (1 + doors)


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
