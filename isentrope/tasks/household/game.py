"""One household game: what is in the house at the start, and what has to be done.

A game is plain data. `pddl.py` reads it from and writes it to the official format, `generate.py` makes new
ones, `engine.py` plays it. Things are referred to by their position in `objects`, `receptacles` and
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
    ordered = sorted(ids)
    bases = {key: _base_name(key) for key in ordered}
    left = Counter(base for key, base in bases.items() if SEPARATOR in key)
    names: dict[str, str] = {}
    for key in ordered:
        base = bases[key]
        if SEPARATOR not in key:  # not a thing with a place; the number is left out, the blank before it is not
            names[key] = base + " "
            continue
        names[key] = f"{base} {left[base]}"
        left[base] -= 1
    return names


def _base_name(key: str) -> str:
    base = key.split(SEPARATOR, 1)[0]
    if SEPARATOR in key and "basin" in key:
        return base + "basin"
    return base
