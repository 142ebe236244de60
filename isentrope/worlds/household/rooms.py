"""Tables of rooms: the furniture of each kind of room, where objects lie, and the layouts drawn from them.

Counted over the rooms of the official games: shares and averages, no room of theirs is reproduced. In the
short strings, "fridge 25 countertop 24" means that 25 in a hundred lie in fridges.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple


class Furniture(NamedTuple):
    """How often a type of receptacle is found in a kind of room."""

    share: float  # of the rooms that have any
    least: int
    usual: int
    most: int
    openable: float = 0.0  # share of them that can be opened and closed


# The numbers of each receptacle type are those of `Furniture`, in this order.
_FURNITURE = {
    "kitchen": """
cabinet 1.0 2 13 27 0.81; coffeemachine 1.0 1 1 1; countertop 1.0 1 2 4; fridge 1.0 1 1 1 1.0; garbagecan 1.0 1 1 1;
microwave 1.0 1 1 1 1.0; sinkbasin 1.0 1 1 1; stoveburner 1.0 4 4 6; toaster 1.0 1 1 1; drawer 0.96 1 4 27 0.83;
diningtable 0.54 1 1 3; shelf 0.18 3 3 3; sidetable 0.11 1 1 1; safe 0.04 1 1 1 1.0""",
    "living room": """
garbagecan 1.0 1 1 1; sofa 1.0 1 1 2; armchair 0.93 1 1 3; coffeetable 0.82 1 1 2; drawer 0.79 1 4 21 0.96;
sidetable 0.79 1 2 5; diningtable 0.5 1 1 2; tvstand 0.43 1 1 2; shelf 0.39 1 6 14; dresser 0.36 1 1 2;
cabinet 0.14 1 4 8 0.94; ottoman 0.14 1 1 1; safe 0.07 1 1 1 1.0; desk 0.04 1 1 1""",
    "bedroom": """
bed 1.0 1 1 2; garbagecan 1.0 1 1 1; drawer 0.96 2 5 17 0.8; desk 0.68 1 1 2; shelf 0.68 1 5 14; sidetable 0.64 1 1 2;
dresser 0.46 1 1 2; laundryhamper 0.29 1 1 1; armchair 0.21 1 1 3; safe 0.18 1 1 1 0.79; cabinet 0.14 1 3 4 1.0;
diningtable 0.14 1 1 1; countertop 0.04 1 1 1""",
    "bathroom": """
garbagecan 1.0 1 1 1; handtowelholder 1.0 1 1 4; sinkbasin 1.0 1 1 2; toilet 1.0 1 1 1; toiletpaperhanger 1.0 1 1 1;
towelholder 1.0 1 1 2; countertop 0.86 1 1 2; bathtubbasin 0.68 1 1 1; drawer 0.54 1 4 8 0.87; cabinet 0.5 2 4 9 0.98;
shelf 0.25 1 2 4; cart 0.07 1 1 1; dresser 0.07 1 1 1; sidetable 0.07 1 1 1""",
}

# Each object type: how many a room has on average, and where they lie (parts of a hundred).
_OBJECTS = {
    "kitchen": """
peppershaker 2.08 cabinet 33 countertop 31 diningtable 16 drawer 15 shelf 4 sidetable 2;
apple 2.0 fridge 25 countertop 24 diningtable 15 garbagecan 13 microwave 13 sinkbasin 9 sidetable 2;
tomato 1.99 fridge 33 countertop 30 diningtable 19 garbagecan 9 sinkbasin 7 sidetable 2;
saltshaker 1.97 cabinet 31 countertop 31 diningtable 17 drawer 15 shelf 3 sidetable 2;
egg 1.97 fridge 25 countertop 24 sinkbasin 13 garbagecan 13 microwave 12 diningtable 11;
bowl 1.96 cabinet 35 fridge 21 countertop 21 diningtable 15 sinkbasin 3 microwave 3 shelf 2;
dishsponge 1.96 countertop 26 cabinet 24 drawer 21 diningtable 12 sinkbasin 7 garbagecan 5 shelf 3;
cup 1.96 cabinet 23 fridge 21 countertop 21 diningtable 14 sinkbasin 10 microwave 7 shelf 2 sidetable 2;
spoon 1.94 countertop 38 drawer 28 diningtable 21 sinkbasin 11 sidetable 2;
potato 1.93 countertop 29 fridge 27 diningtable 16 sinkbasin 11 microwave 10 garbagecan 7;
soapbottle 1.93 countertop 32 cabinet 31 diningtable 20 garbagecan 11 shelf 3;
fork 1.91 countertop 44 diningtable 23 drawer 23 sinkbasin 9;
spatula 1.91 countertop 45 diningtable 24 drawer 21 sinkbasin 9;
mug 1.86 countertop 28 coffeemachine 17 cabinet 16 fridge 14 diningtable 10 microwave 7 sinkbasin 6 shelf 2;
knife 1.85 countertop 50 diningtable 24 drawer 20 sinkbasin 5;
butterknife 1.79 countertop 60 diningtable 25 drawer 8 sinkbasin 6;
lettuce 1.77 countertop 42 diningtable 27 fridge 24 sinkbasin 5;
plate 1.74 cabinet 40 countertop 30 diningtable 15 fridge 10 sinkbasin 2 shelf 2;
bread 1.59 countertop 56 diningtable 30 fridge 13;
pot 1.54 stoveburner 74 countertop 14 fridge 4 diningtable 4 cabinet 3;
pan 1.35 stoveburner 53 countertop 32 cabinet 7 fridge 4 diningtable 4;
kettle 0.86 stoveburner 42 countertop 26 cabinet 24 diningtable 7 sinkbasin 2;
winebottle 0.8 countertop 37 cabinet 25 diningtable 24 garbagecan 9 shelf 3 fridge 2;
ladle 0.64 countertop 42 cabinet 25 drawer 17 diningtable 14 sinkbasin 2;
glassbottle 0.54 cabinet 32 countertop 28 diningtable 11 sinkbasin 9 garbagecan 7 fridge 7 shelf 4;
vase 0.47 countertop 33 cabinet 33 shelf 32 diningtable 2; houseplant 0.43 countertop 80 diningtable 20;
papertowelroll 0.38 countertop 55 garbagecan 17 diningtable 15 shelf 11 sidetable 2;
statue 0.33 countertop 55 shelf 42 diningtable 4; cellphone 0.29 countertop 48 drawer 36 diningtable 12 shelf 5;
creditcard 0.27 countertop 46 drawer 34 shelf 20; book 0.16 countertop 64 cabinet 15 diningtable 12 drawer 6 shelf 4;
pen 0.13 countertop 40 diningtable 35 drawer 20 garbagecan 5;
spraybottle 0.12 cabinet 33 countertop 33 diningtable 22 garbagecan 12;
pencil 0.12 drawer 40 countertop 30 diningtable 20 garbagecan 9; sink 0.11 countertop 100""",
    "living room": """
statue 2.21 coffeetable 25 shelf 20 diningtable 20 sidetable 19 tvstand 8 dresser 8;
creditcard 2.15 sofa 19 coffeetable 14 armchair 13 drawer 13 sidetable 11 diningtable 9 tvstand 7 dresser 7 shelf 6;
remotecontrol 1.94 coffeetable 23 sofa 19 sidetable 13 diningtable 11 dresser 9 armchair 8 tvstand 8 drawer 4 shelf 3;
keychain 1.63 coffeetable 19 sidetable 17 drawer 16 sofa 12 armchair 8 tvstand 7 diningtable 7 dresser 6 shelf 5;
vase 1.48 shelf 36 coffeetable 19 diningtable 14 sidetable 11 dresser 10 tvstand 6 cabinet 2;
laptop 1.43 sofa 27 coffeetable 24 diningtable 21 dresser 9 sidetable 7 armchair 5 tvstand 5 ottoman 2;
newspaper 1.22 sofa 20 coffeetable 17 diningtable 16 sidetable 14 shelf 11 dresser 9 armchair 7 tvstand 3 drawer 2;
box 1.2 diningtable 25 sofa 25 coffeetable 22 sidetable 8 cabinet 6 dresser 4 shelf 4 armchair 3 tvstand 3;
pillow 1.14 sofa 78 armchair 22;
watch 1.08 coffeetable 25 drawer 21 sidetable 19 dresser 11 diningtable 10 tvstand 10 shelf 4;
tissuebox 0.75 coffeetable 34 sidetable 19 diningtable 19 shelf 11 tvstand 7 dresser 3 drawer 3 cabinet 3 garbagecan 2;
television 0.7 tvstand 45 dresser 43 coffeetable 9 sidetable 3;
houseplant 0.65 sidetable 52 coffeetable 26 dresser 11 diningtable 6 tvstand 5;
plate 0.59 diningtable 50 coffeetable 23 shelf 13 sidetable 11 tvstand 2;
book 0.47 coffeetable 29 dresser 24 sofa 16 armchair 11 sidetable 9 diningtable 9 drawer 2;
cellphone 0.46 dresser 20 sidetable 16 coffeetable 15 sofa 13 drawer 12 diningtable 8 armchair 7 ottoman 3 shelf 3
    tvstand 2;
pen 0.4 coffeetable 34 sidetable 22 dresser 21 tvstand 6 drawer 6 garbagecan 4 diningtable 4 shelf 4;
pencil 0.33 sidetable 33 coffeetable 29 drawer 10 dresser 7 garbagecan 6 tvstand 6 shelf 5 diningtable 4;
desklamp 0.25 sidetable 91 coffeetable 9;
candle 0.22 sidetable 41 coffeetable 28 diningtable 20 tvstand 6 drawer 3 dresser 2;
bowl 0.19 diningtable 39 coffeetable 27 tvstand 19 sidetable 8 shelf 7;
wateringcan 0.13 coffeetable 53 shelf 38 sidetable 9""",
    "bedroom": """
pen 2.09 desk 28 drawer 19 shelf 16 dresser 15 sidetable 14 diningtable 6 garbagecan 2;
cellphone 2.07 bed 29 desk 17 drawer 17 dresser 10 sidetable 10 shelf 8 diningtable 3 safe 3 armchair 3;
creditcard 2.04 drawer 30 desk 18 shelf 18 sidetable 15 dresser 11 diningtable 3 armchair 3;
pencil 2.01 desk 24 drawer 18 shelf 18 sidetable 17 dresser 11 diningtable 6 garbagecan 5;
keychain 1.94 drawer 26 desk 18 shelf 16 sidetable 15 dresser 13 safe 5 diningtable 4 armchair 3;
book 1.86 bed 52 desk 19 drawer 12 dresser 5 sidetable 4 cabinet 2 diningtable 2 armchair 2 shelf 2;
cd 1.8 drawer 28 desk 21 dresser 13 sidetable 12 garbagecan 9 shelf 7 diningtable 6 cabinet 2 armchair 2;
alarmclock 1.72 desk 35 shelf 22 sidetable 19 dresser 17 diningtable 7; pillow 1.7 bed 99;
laptop 1.61 bed 74 desk 19 dresser 3 diningtable 2;
mug 0.96 desk 38 shelf 19 sidetable 14 dresser 14 diningtable 9 cabinet 4;
desklamp 0.76 desk 37 sidetable 26 dresser 23 shelf 14;
bowl 0.74 desk 45 shelf 30 dresser 13 diningtable 6 sidetable 4 countertop 2; teddybear 0.26 bed 100;
tissuebox 0.25 desk 38 drawer 25 diningtable 15 shelf 12 sidetable 9 dresser 2;
houseplant 0.23 shelf 43 desk 32 cabinet 16 dresser 9;
remotecontrol 0.21 drawer 34 desk 29 sidetable 14 countertop 8 armchair 6 diningtable 5 dresser 3;
statue 0.2 shelf 44 dresser 26 desk 25 sidetable 5;
watch 0.14 drawer 31 shelf 20 diningtable 16 desk 15 dresser 12 sidetable 6;
vase 0.12 shelf 45 dresser 35 desk 11 sidetable 9; box 0.09 desk 57 shelf 43""",
    "bathroom": """
spraybottle 2.03 countertop 32 toilet 26 cabinet 17 garbagecan 10 shelf 7 cart 4 sidetable 3 dresser 2;
toiletpaper 1.96 toilet 24 countertop 22 cabinet 12 toiletpaperhanger 12 drawer 11 garbagecan 9 shelf 5 dresser 2 cart
    2;
cloth 1.95 bathtubbasin 29 cabinet 21 countertop 16 drawer 15 sinkbasin 8 shelf 5 toilet 3;
soapbar 1.94 countertop 20 toilet 16 sinkbasin 15 cabinet 12 bathtubbasin 12 drawer 11 garbagecan 7 shelf 4 sidetable 2;
candle 1.86 countertop 31 toilet 30 cabinet 14 drawer 13 shelf 7 sidetable 2 cart 2;
soapbottle 1.82 countertop 30 toilet 23 cabinet 21 shelf 9 garbagecan 9 drawer 3 dresser 2;
handtowel 1.2 handtowelholder 96 countertop 4; towel 1.14 towelholder 98 countertop 2;
dishsponge 0.49 countertop 19 drawer 19 bathtubbasin 19 sinkbasin 11 shelf 9 toilet 8 cart 6 cabinet 5 garbagecan 4;
tissuebox 0.46 countertop 35 shelf 30 drawer 20 cabinet 5 cart 4 sidetable 4 toilet 2;
sink 0.25 sinkbasin 65 countertop 35; papertowelroll 0.13 countertop 34 toilet 32 shelf 16 garbagecan 11 cart 6;
houseplant 0.04 sidetable 100""",
}


def _rows(table: str) -> list[list[str]]:
    return [row.split() for row in table.split(";")]


def _furniture(table: str) -> dict[str, Furniture]:
    return {
        place: Furniture(float(share), int(least), int(usual), int(most), *map(float, openable))
        for place, share, least, usual, most, *openable in _rows(table)
    }


def _objects(table: str) -> dict[str, tuple[float, dict[str, float]]]:
    """Object type: how many on average, and a weight for each type of receptacle."""
    return {
        thing: (float(mean), {place: float(weight) for place, weight in zip(where[::2], where[1::2], strict=True)})
        for thing, mean, *where in _rows(table)
    }


FURNITURE = {room: _furniture(table) for room, table in _FURNITURE.items()}
OBJECTS = {room: _objects(table) for room, table in _OBJECTS.items()}


def lies_in(room: str, object_type: str) -> dict[str, float]:
    """Where an object of this type is to be expected: a weight per type of receptacle."""
    return OBJECTS[room][object_type][1]


SIZES = ("small", "medium", "full")
POOL = {"train": 40, "unseen": 20}  # layouts of each kind of room; `seen` games use the train pool

# Without these some kind of task could not be played in the room.
_NEEDED = {
    "kitchen": ("fridge", "microwave", "sinkbasin", "countertop"),
    "living room": ("sofa", "sidetable", "coffeetable"),
    "bedroom": ("bed", "desk", "drawer"),
    "bathroom": ("sinkbasin", "toilet", "countertop"),
}
_MOST = 54  # receptacles in the largest real room
_LIMITS = {"small": (5, 9, 2), "medium": (10, 16, 4)}  # fewest and most receptacles of a room, most of one type


@dataclass(frozen=True)
class Layout:
    room: str
    receptacles: tuple[tuple[str, bool], ...]  # (type, can be opened), sorted

    @property
    def key(self) -> tuple[str, ...]:
        """What makes two layouts the same: the types of their receptacles."""
        return tuple(place for place, _ in self.receptacles)


@cache
def layouts(room: str, size: str, pool: str) -> tuple[Layout, ...]:
    """The layouts of a pool: all different, and none is in both pools, so some rooms are never seen in training."""
    taken = {layout.key for layout in layouts(room, size, "train")} if pool == "unseen" else set[tuple[str, ...]]()
    found: list[Layout] = []
    rng = random.Random(f"layouts {room} {size} {pool}")
    while len(found) < POOL[pool]:
        layout = _draw(room, size, rng)
        if layout.key not in taken and len(layout.key) <= _MOST:
            taken.add(layout.key)
            found.append(layout)
    return tuple(found)


def _draw(room: str, size: str, rng: random.Random) -> Layout:
    table = FURNITURE[room]
    counts = dict.fromkeys(_NEEDED[room], 1)
    if size == "full":
        for place, furniture in table.items():
            if place in counts or rng.random() < furniture.share:
                counts[place] = _count(furniture, rng)
    else:
        fewest, most, of_a_type = _LIMITS[size]
        wanted = rng.randint(fewest, most)
        while sum(counts.values()) < wanted:  # the common ones more often
            weights = {
                place: furniture.share * furniture.usual**0.5
                for place, furniture in table.items()
                if counts.get(place, 0) < min(of_a_type, furniture.most)
            }
            place = rng.choices(list(weights), list(weights.values()))[0]
            counts[place] = counts.get(place, 0) + 1
    receptacles = [
        (place, rng.random() < table[place].openable) for place, count in counts.items() for _ in range(count)
    ]
    return Layout(room, tuple(sorted(receptacles)))


def _count(furniture: Furniture, rng: random.Random) -> int:
    """Half of the rooms have at most the usual number; far more than that is rare."""
    if rng.random() < 0.5:
        return rng.randint(furniture.least, furniture.usual)
    return furniture.usual + round((furniture.most - furniture.usual) * rng.random() ** 3)
