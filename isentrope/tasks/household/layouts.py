"""Room layouts: which receptacles a room has. Two pools, so that there are rooms never seen in training."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache

from isentrope.tasks.household.rooms import FURNITURE, Furniture

SIZES = ("small", "medium", "full")
POOL = {"train": 40, "unseen": 20}  # layouts of each kind of room; `seen` games use the train pool

# Without these some kind of task could not be played in the room.
_NEEDED = {
    "kitchen": ("fridge", "microwave", "sinkbasin", "countertop"),
    "living room": ("sofa", "sidetable", "coffeetable"),
    "bedroom": ("bed", "desk", "drawer"),
    "bathroom": ("sinkbasin", "toilet", "countertop"),
}


@dataclass(frozen=True)
class Size:
    receptacles: tuple[int, int]  # least and most in a room
    of_a_type: int  # most receptacles of one type


_MOST = 54  # receptacles in the largest real room
_LIMITS = {"small": Size((5, 9), 2), "medium": Size((10, 16), 4)}


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
    """The layouts of a pool: all different, and no layout is in both pools."""
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
        _fill(counts, table, _LIMITS[size], rng)
    receptacles = [
        (place, rng.random() < table[place].openable) for place, count in counts.items() for _ in range(count)
    ]
    return Layout(room, tuple(sorted(receptacles)))


def _count(furniture: Furniture, rng: random.Random) -> int:
    """Half of the rooms have at most the usual number; far more than that is rare."""
    if rng.random() < 0.5:
        return rng.randint(furniture.least, furniture.usual)
    return furniture.usual + round((furniture.most - furniture.usual) * rng.random() ** 3)


def _fill(counts: dict[str, int], table: dict[str, Furniture], limit: Size, rng: random.Random) -> None:
    """Add receptacles, the common ones more often, until the room has its size."""
    wanted = rng.randint(*limit.receptacles)
    while sum(counts.values()) < wanted:
        weights = {
            place: furniture.share * furniture.usual**0.5
            for place, furniture in table.items()
            if counts.get(place, 0) < min(limit.of_a_type, furniture.most)
        }
        place = rng.choices(list(weights), list(weights.values()))[0]
        counts[place] = counts.get(place, 0) + 1
