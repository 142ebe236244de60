"""One household game: what is in the house at the start, and what has to be done.

A game is plain data. `official.py` reads it from the official format, `export.py` writes it, `generate.py`
makes new ones, `engine.py` plays it. Things are referred to by their position in `objects`, `receptacles` and
`locations`; objects and receptacles are kept in id order, because that is the order in which they are listed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

KINDS = ("pick", "look", "clean", "heat", "cool", "two")

# What the id of a thing says about its name: "Sink_bar_..._bar_SinkBasin" is a sinkbasin.
SEPARATOR = "_bar_"


@dataclass(frozen=True)
class Thing:
    """An object: something that lies in or on a receptacle."""

    id: str
    name: str  # as the text calls it, e.g. "apple 1"
    type: str  # lower case, e.g. "apple"
    pickupable: bool = False
    toggleable: bool = False
    cleanable: bool = False
    heatable: bool = False
    coolable: bool = False
    sliceable: bool = False
    container: bool = False  # a bowl or a box: examined, it always looks normal and shows what is in it
    cool: bool = False  # cool already at the start


@dataclass(frozen=True)
class Receptacle:
    """A piece of furniture or an appliance: it stays where it is."""

    id: str
    name: str
    type: str
    location: int
    openable: bool = False


@dataclass(frozen=True)
class Goal:
    """What has to hold for the game to be won."""

    kind: str  # one of KINDS
    object_type: str
    place_type: str  # the receptacle's type, or the lamp's type in a look task


@dataclass(frozen=True)
class Game:
    name: str
    task: str  # the sentence after "Your task is to: "
    goal: Goal
    objects: tuple[Thing, ...]
    receptacles: tuple[Receptacle, ...]
    locations: tuple[str, ...]
    start: int  # the location the player starts at
    inside: frozenset[tuple[int, int]]  # (object, receptacle); an object may be in several receptacles
    object_at: frozenset[tuple[int, int]]  # (object, location); need not be where its receptacle is
    nested: frozenset[tuple[int, int]]  # (object, container object)
    fits: frozenset[tuple[str, str]]  # (receptacle type, object type)
    walkthrough: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        return self.goal.kind


def name_things(ids: Iterable[str]) -> dict[str, str]:
    """Names for all ids of a game: in sorted order, the first of a kind gets the highest number."""
    bases = {key: key.split(SEPARATOR, 1)[0] for key in sorted(ids)}
    bases |= {key: base + "basin" for key, base in bases.items() if SEPARATOR in key and "basin" in key}
    left = Counter(base for key, base in bases.items() if SEPARATOR in key)
    names: dict[str, str] = {}
    for key, base in bases.items():
        placed = SEPARATOR in key  # else the number is left out, the blank before it is not
        names[key] = f"{base} {left[base] if placed else ''}"
        left[base] -= placed
    return names


# What the official format calls the properties of a thing.
_SAME = ("pickupable", "toggleable", "cleanable", "heatable", "coolable", "sliceable")
PROPERTIES = {**{name: name for name in _SAME}, "container": "isreceptacleobject", "cool": "iscool"}
KNIVES = ("knife", "butterknife")
TREATMENTS = {  # the property that a thing needs, and the receptacles for it
    "clean": ("cleanable", ("sink", "sinkbasin")),
    "heat": ("heatable", ("microwave",)),
    "cool": ("coolable", ("fridge",)),
}


class Tables:
    """What the engine would otherwise search for at every step. Made once, shared by all plays of the game."""

    def __init__(self, game: Game) -> None:
        self.game = game
        things, furniture = game.objects, game.receptacles
        self.object_named = {thing.name: index for index, thing in enumerate(things)}
        self.receptacle_named = {receptacle.name: index for index, receptacle in enumerate(furniture)}
        self.object_names = [thing.name for thing in things]
        self.receptacle_names = [receptacle.name for receptacle in furniture]
        self.location_of = [receptacle.location for receptacle in furniture]
        self.openable = [receptacle.openable for receptacle in furniture]
        self.receptacles_at: list[list[int]] = [[] for _ in game.locations]
        for index, receptacle in enumerate(furniture):
            self.receptacles_at[receptacle.location].append(index)
        self.go_commands = [
            sorted(f"go to {receptacle.name}" for receptacle in furniture if receptacle.location != location)
            for location in range(len(game.locations))
        ]
        self.toggleable = [index for index, thing in enumerate(things) if thing.toggleable]
        self.pickupable = {index for index, thing in enumerate(things) if thing.pickupable}
        self.sliceable = {index for index, thing in enumerate(things) if thing.sliceable}
        self.knives = {index for index, thing in enumerate(things) if thing.type in KNIVES}
        self.treatments = {  # verb: (things, receptacles)
            verb: (
                {index for index, thing in enumerate(things) if getattr(thing, able)},
                {index for index, receptacle in enumerate(furniture) if receptacle.type in places},
            )
            for verb, (able, places) in TREATMENTS.items()
        }
        self.contained: dict[int, list[int]] = {}  # in a bowl or box, in id order; it never changes
        for inner, outer in sorted(game.nested):
            if inner != outer:  # nothing contains itself in the text
                self.contained.setdefault(outer, []).append(inner)
        self.goal_objects = {index for index, thing in enumerate(things) if thing.type == game.goal.object_type}
        if game.kind in self.treatments:
            self.goal_objects &= self.treatments[game.kind][0]
        self.goal_places = [i for i, receptacle in enumerate(furniture) if receptacle.type == game.goal.place_type]
        self.goal_lamps = [index for index in self.toggleable if things[index].type == game.goal.place_type]
        self.contents: list[list[int]] = [[] for _ in furniture]
        for thing, receptacle in sorted(game.inside):
            self.contents[receptacle].append(thing)
        self.lying_at: list[set[int]] = [set() for _ in game.locations]
        for thing, location in game.object_at:
            self.lying_at[location].add(thing)
        self.cool = {index for index, thing in enumerate(things) if thing.cool}
