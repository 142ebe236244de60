"""Generates household games, as many as are asked for.

A game is drawn from its kind, size, split and number alone: a room layout from the split's pool, objects lying
where such objects usually lie, a task that can be done there, and the walkthrough, which is played to the end
before the game is handed out.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from isentrope.core.errors import TaskError
from isentrope.worlds.household import chores, rooms
from isentrope.worlds.household import chores as things
from isentrope.worlds.household.engine import Engine
from isentrope.worlds.household.game import Game, Goal, Receptacle, Thing, name_things
from isentrope.worlds.household.rooms import SIZES, Layout, layouts

SPLITS = ("train", "seen", "unseen")
APPLIANCE = {"clean": "sinkbasin", "heat": "microwave", "cool": "fridge"}
SENTENCES = {
    "pick": ("put a {o} in {r}.", "put some {o} on {r}."),
    "look": ("look at {o} under the {r}.", "examine the {o} with the {r}."),
    "clean": ("put a clean {o} in {r}.", "clean some {o} and put it in {r}."),
    "heat": ("put a hot {o} in {r}.", "heat some {o} and put it in {r}."),
    "cool": ("put a cool {o} in {r}.", "cool some {o} and put it in {r}."),
    "two": ("put two {o} in {r}.", "find two {o} and put them in {r}."),
}
_OBJECTS_IN = {"small": (8, 14), "medium": (16, 26)}  # full rooms have as many as real ones
_OF_A_TYPE = {"small": 2, "medium": 3}  # most objects of one type, besides the task's own
_SHARED = 0.16  # share of the receptacles in full rooms that stand at another one's location


@dataclass
class _Draft:
    """A game being drawn: the type of each object and the receptacle it lies in."""

    layout: Layout
    goal: Goal
    placed: list[tuple[str, int]]


def generate(kind: str, split: str, index: int, size: str = "full") -> Game:
    """Game number `index` of a split. The same arguments always give the same game."""
    if kind not in SENTENCES or split not in SPLITS or size not in SIZES:
        raise TaskError(
            f"no game of kind {kind!r}, split {split!r} and size {size!r}: kinds are {', '.join(SENTENCES)}, "
            f"splits {', '.join(SPLITS)}, sizes {', '.join(SIZES)}"
        )
    rng = random.Random(f"household {size} {split} {kind} {index}")
    draft = _draw(kind, split, size, rng)
    game = _build(draft, f"generated/{size}/{split}/{kind}/{index}", size, rng)
    engine = Engine(game)
    if engine.won or any(engine.attempt(command) is None for command in game.walkthrough) or not engine.won:
        raise TaskError(f"the generated game {game.name} is not solved by its own walkthrough; please report this")
    return game


def _draw(kind: str, split: str, size: str, rng: random.Random) -> _Draft:
    weights = chores.TASK_ROOMS[kind]
    while True:
        room = rng.choices(list(weights), list(weights.values()))[0]
        layout = rng.choice(layouts(room, size, "unseen" if split == "unseen" else "train"))
        goals = _possible_goals(kind, layout)
        if goals:
            goal = rng.choice(goals)
            return _Draft(layout, goal, _place_all(layout, goal, size, rng))


def _possible_goals(kind: str, layout: Layout) -> list[Goal]:
    """The kind's tasks that this layout allows: a place to bring it to, and another where it can lie before."""
    present = set(layout.key)
    if kind == "look":
        pairs = [(thing, chores.LAMP) for thing in chores.LOOK_AT.split()]
    else:
        table = chores.TASK_PLACES[kind, layout.room]
        pairs = [(thing, place) for thing, places in table.items() for place in places.split() if place in present]
    return [
        Goal(kind, thing, place)
        for thing, place in pairs
        if thing in rooms.OBJECTS[layout.room] and present & (rooms.lies_in(layout.room, thing).keys() - {place})
    ]


def _place_all(layout: Layout, goal: Goal, size: str, rng: random.Random) -> list[tuple[str, int]]:
    counts = _how_many(layout.room, goal, size, rng)
    placed: list[tuple[str, int]] = []
    for thing, count in counts.items():
        avoid = goal.place_type if thing == goal.object_type else ""
        weights = _place_weights(layout, thing, avoid)
        if weights:
            places = list(weights)
            placed += [(thing, place) for place in rng.choices(places, list(weights.values()), k=count)]
    return placed


def _how_many(room: str, goal: Goal, size: str, rng: random.Random) -> dict[str, int]:
    table = rooms.OBJECTS[room]
    counts = {goal.object_type: rng.choice((2, 2, 3) if goal.kind == "two" else (1, 1, 2))}
    if goal.kind == "look":
        counts[chores.LAMP] = 1
    if size == "full":
        for thing, (mean, _) in table.items():
            if thing not in counts:
                counts[thing] = int(mean) + (rng.random() < mean % 1) + rng.choice((-1, 0, 0, 1)) * (mean >= 1)
        return counts
    total = rng.randint(*_OBJECTS_IN[size])
    weights = {thing: mean for thing, (mean, _) in table.items() if thing not in counts}
    while weights and sum(counts.values()) < total:
        thing = rng.choices(list(weights), list(weights.values()))[0]
        counts[thing] = counts.get(thing, 0) + 1
        if counts[thing] == _OF_A_TYPE[size] or thing == chores.LAMP:
            del weights[thing]
    return counts


def _place_weights(layout: Layout, thing: str, avoid: str) -> dict[int, float]:
    """How likely the thing is to lie in each receptacle. The share of a type is shared among those of the type."""
    usual = rooms.lies_in(layout.room, thing)
    types = layout.key
    return {
        index: usual[place] / rooms.FURNITURE[layout.room][place].share / types.count(place)
        for index, place in enumerate(types)
        if place in usual and place != avoid
    }


def _build(draft: _Draft, name: str, size: str, rng: random.Random) -> Game:
    """Give everything ids, names and locations, and write down the way to the goal."""
    taken: set[str] = set()
    furniture_ids = [_new_id(place, taken, rng) for place, _ in draft.layout.receptacles]
    object_ids = [_new_id(thing, taken, rng) for thing, _ in draft.placed]
    names = name_things(taken)
    spots = _spots(len(furniture_ids), size, rng)
    locations = sorted(set(spots))
    order = sorted(range(len(furniture_ids)), key=furniture_ids.__getitem__)
    receptacles = tuple(
        Receptacle(
            id=furniture_ids[index],
            name=names[furniture_ids[index]],
            type=draft.layout.receptacles[index][0],
            location=locations.index(spots[index]),
            openable=draft.layout.receptacles[index][1],
        )
        for index in order
    )
    position = {index: rank for rank, index in enumerate(order)}
    lying = sorted(zip(object_ids, draft.placed, strict=True))
    where = [position[place] for _, (_, place) in lying]
    fits = things.fitting_pairs() | {(draft.layout.receptacles[place][0], thing) for thing, place in draft.placed}
    game = Game(
        name=name,
        task=rng.choice(SENTENCES[draft.goal.kind]).format(o=draft.goal.object_type, r=draft.goal.place_type),
        goal=draft.goal,
        objects=tuple(_thing(key, names[key], thing) for key, (thing, _) in lying),
        receptacles=receptacles,
        locations=tuple(locations),
        start=locations.index(spots[-1]),
        inside=frozenset(enumerate(where)),
        object_at=frozenset((index, receptacles[place].location) for index, place in enumerate(where)),
        nested=frozenset(),
        fits=_fits_here(fits, draft),
    )
    return replace(game, walkthrough=tuple(_walkthrough(game, rng)))


def _fits_here(fits: frozenset[tuple[str, str]], draft: _Draft) -> frozenset[tuple[str, str]]:
    """Only what can come up in this game: the problem file stays short."""
    places, kinds = set(draft.layout.key), {thing for thing, _ in draft.placed}
    return frozenset((place, thing) for place, thing in fits if place in places and thing in kinds)


def _thing(key: str, name: str, kind: str) -> Thing:
    return Thing(
        id=key,
        name=name,
        type=kind,
        pickupable=kind not in things.FIXED,
        toggleable=kind == chores.LAMP,
        cleanable=kind in things.CLEANABLE,
        heatable=kind in things.HEATABLE,
        coolable=kind in things.COOLABLE,
        sliceable=kind in things.SLICEABLE,
        container=kind in things.CONTAINERS,
    )


def _new_id(kind: str, taken: set[str], rng: random.Random) -> str:
    """An id in the official style: the type and made-up coordinates."""
    base = kind.removesuffix("basin")
    while True:
        parts = (_coordinate(rng.randint(low, 400)) for low in (-400, 0, -400))
        key = "_bar_".join((base, *parts)) + (f"_bar_{kind}" if kind != base else "")
        if key not in taken:
            taken.add(key)
            return key


def _coordinate(hundredths: int) -> str:
    sign = "_minus_" if hundredths < 0 else "_plus_"
    return f"{sign}{abs(hundredths) // 100:02d}_dot_{abs(hundredths) % 100:02d}"


def _spots(count: int, size: str, rng: random.Random) -> list[str]:
    """A location for each receptacle, and one more, the last, to start from. In full rooms some are shared."""
    grid = rng.sample(range(41 * 41), count + 1)
    spots = [f"loc_bar_{_whole(cell // 41 - 20)}_bar_{_whole(cell % 41 - 20)}_bar_{cell % 4}_bar_60" for cell in grid]
    if size == "full":
        for index in range(1, count):
            if rng.random() < _SHARED / 2:  # two stand at each shared location
                spots[index] = spots[index - 1]
    return spots


def _whole(number: int) -> str:
    return f"_minus_{-number}" if number < 0 else str(number)


def _walkthrough(game: Game, rng: random.Random) -> list[str]:
    """The shortest way for one who knows where everything is."""
    place_of = dict(game.inside)
    targets = [index for index, thing in enumerate(game.objects) if thing.type == game.goal.object_type]
    walk = _Walk(game)
    if game.kind == "look":
        lamp = next(index for index, thing in enumerate(game.objects) if thing.type == chores.LAMP)
        walk.take(targets[0], place_of[targets[0]])
        walk.go(place_of[lamp])
        walk.commands.append(f"use {game.objects[lamp].name}")
        return walk.commands
    goals = [index for index, receptacle in enumerate(game.receptacles) if receptacle.type == game.goal.place_type]
    goal = rng.choice(goals)
    for target in targets[: 2 if game.kind == "two" else 1]:
        walk.take(target, place_of[target])
        if game.kind in APPLIANCE:
            walk.treat(target, game.kind)
        walk.put(target, goal)
    return walk.commands


class _Walk:
    """Writes down commands and remembers where they lead and which doors they opened."""

    def __init__(self, game: Game) -> None:
        self.commands: list[str] = []
        self._game = game
        self._location = game.start
        self._opened: set[int] = set()

    def go(self, place: int) -> None:
        receptacle = self._game.receptacles[place]
        if receptacle.location != self._location:
            self.commands.append(f"go to {receptacle.name}")
            self._location = receptacle.location

    def take(self, thing: int, place: int) -> None:
        self._reach(place)
        self.commands.append(f"take {self._game.objects[thing].name} from {self._game.receptacles[place].name}")

    def put(self, thing: int, place: int) -> None:
        self._reach(place)
        self.commands.append(f"move {self._game.objects[thing].name} to {self._game.receptacles[place].name}")

    def treat(self, thing: int, kind: str) -> None:
        places = enumerate(self._game.receptacles)
        place = next(index for index, receptacle in places if receptacle.type == APPLIANCE[kind])
        self.go(place)
        self.commands.append(f"{kind} {self._game.objects[thing].name} with {self._game.receptacles[place].name}")

    def _reach(self, place: int) -> None:
        self.go(place)
        if self._game.receptacles[place].openable and place not in self._opened:
            self.commands.append(f"open {self._game.receptacles[place].name}")
            self._opened.add(place)
