"""Scripted expert that does not know where things are.

It reads the observation, looks where such things usually lie (in a random order that depends on its seed),
and says in a few words what it has read and what it does next.
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

_SENTENCES = (
    ("two", r"(?:put|find) two (\w+) (?:in|and put them in) (\w+)"),
    ("clean", r"clean some (\w+) and put it in (\w+)"),
    ("heat", r"heat some (\w+) and put it in (\w+)"),
    ("cool", r"cool some (\w+) and put it in (\w+)"),
    ("clean", r"put a clean (\w+) in (\w+)"),
    ("heat", r"put a hot (\w+) in (\w+)"),
    ("cool", r"put a cool (\w+) in (\w+)"),
    ("pick", r"put (?:a|some) (\w+) (?:in|on) (\w+)"),
    ("look", r"look at (\w+) under the (\w+)"),
    ("look", r"examine the (\w+) with the (\w+)"),
)
_GOALS = tuple((kind, re.compile(pattern + r"\.?\s*$")) for kind, pattern in _SENTENCES)
_NAMED = re.compile(r"\ba ([a-z]+ \d+)")


def read_task(sentence: str) -> Goal:
    """The goal that a task sentence states."""
    for kind, pattern in _GOALS:
        match = pattern.search(sentence)
        if match:
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


_STATE = {"clean": "clean", "heat": "hot", "cool": "cool"}
_RARELY = 0.5  # weight of a receptacle in which such a thing was never found


class HouseholdExpert:
    """Plays one episode at a time; `start` forgets everything but the random state."""

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
        """Look for a thing of the wanted type, and take it."""
        need = f"I need one more {wanted}." if self._placed else f"I need a {wanted}."
        known = [thing for thing in self._seen if type_of(thing) == wanted and thing not in self._placed]
        here = [thing for thing in known if self._seen[thing] == self._at]
        if here:
            return Move(f"I see {here[0]}. I take it.", f"take {here[0]} from {self._at}")
        if known:
            place = self._seen[known[0]]
            return self._go(place, f"{need} I saw {known[0]} at {place}.", view)
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
            return self._to_lamp(view)
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

    def _to_lamp(self, view: View) -> Move:
        lamp, first = self._goal.place_type, f"I hold {self._held}. "
        known = [thing for thing in self._seen if type_of(thing) == lamp]
        for thing in known:
            if self._seen[thing] == self._at:
                return Move(f"{first}I see {thing}. I use it.", f"use {thing}")
        if known:
            place = self._seen[known[0]]
            return self._go(place, f"{first}I saw {known[0]} at {place}.", view)
        return self._search(lamp, f"{first}I need a {lamp}.", view)

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
