"""Generates household games, as many as are asked for.

A game is drawn from its kind, size, split and number alone: a room layout from the split's pool, objects lying
where such objects usually lie, a task that can be done there, and the walkthrough, which is played to the end
before the game is handed out.
"""

from __future__ import annotations

import random
from dataclasses import replace

from isentrope.core.errors import TaskError
from isentrope.worlds.household import chores, rooms
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


def generate(kind: str, split: str, index: int, size: str = "full") -> Game:
    """Game number `index` of a split. The same arguments always give the same game."""
    if kind not in SENTENCES or split not in SPLITS or size not in SIZES:
        raise TaskError(
            f"no game of kind {kind!r}, split {split!r} and size {size!r}: kinds are {', '.join(SENTENCES)}, "
            f"splits {', '.join(SPLITS)}, sizes {', '.join(SIZES)}"
        )
    rng = random.Random(f"household {size} {split} {kind} {index}")
    weights = chores.TASK_ROOMS[kind]
    while True:
        room = rng.choices(list(weights), list(weights.values()))[0]
        layout = rng.choice(layouts(room, size, "unseen" if split == "unseen" else "train"))
        goals = _possible_goals(kind, layout)
        if goals:
            break
    goal = rng.choice(goals)
    placed = _place_all(layout, goal, size, rng)
    game = _build(layout, goal, placed, f"generated/{size}/{split}/{kind}/{index}", size, rng)
    engine = Engine(game)
    if engine.won or any(engine.attempt(command) is None for command in game.walkthrough) or not engine.won:
        raise TaskError(f"the generated game {game.name} is not solved by its own walkthrough; please report this")
    return game


def _possible_goals(kind: str, layout: Layout) -> list[Goal]:
    """The kind's tasks that this layout allows: a place to bring it to, and another where it can lie before."""
    present = set(layout.key)
    if kind == "look":
        pairs = [(thing, chores.LAMP) for thing in chores.LOOK_AT.split()]
    else:
        pairs = [(thing, place) for thing, place in chores.TASK_PLACES[kind, layout.room] if place in present]
    return [
        Goal(kind, thing, place)
        for thing, place in pairs
        if thing in rooms.OBJECTS[layout.room] and present & (rooms.lies_in(layout.room, thing).keys() - {place})
    ]


def _place_all(layout: Layout, goal: Goal, size: str, rng: random.Random) -> list[tuple[str, int]]:
    """The type of each object, and the number of the receptacle that it lies in."""
    types, furniture = layout.key, rooms.FURNITURE[layout.room]
    placed: list[tuple[str, int]] = []
    for thing, count in _how_many(layout.room, goal, size, rng).items():
        usual = rooms.lies_in(layout.room, thing)
        avoid = goal.place_type if thing == goal.object_type else ""
        weights = {  # the share of a type of receptacle is shared among those of the type
            index: usual[place] / furniture[place].share / types.count(place)
            for index, place in enumerate(types)
            if place in usual and place != avoid
        }
        if weights:
            placed += [(thing, place) for place in rng.choices(list(weights), list(weights.values()), k=count)]
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


def _build(layout: Layout, goal: Goal, placed: list[tuple[str, int]], name: str, size: str, rng: random.Random) -> Game:
    """Give everything ids, names and locations, and write down the way to the goal."""
    taken: set[str] = set()
    furniture_ids = [_new_id(place, taken, rng) for place in layout.key]
    object_ids = [_new_id(thing, taken, rng) for thing, _ in placed]
    names = name_things(taken)
    spots = _spots(len(furniture_ids), size, rng)
    locations = sorted(set(spots))
    order = sorted(range(len(furniture_ids)), key=furniture_ids.__getitem__)
    receptacles = tuple(
        Receptacle(
            id=furniture_ids[index],
            name=names[furniture_ids[index]],
            type=layout.receptacles[index][0],
            location=locations.index(spots[index]),
            openable=layout.receptacles[index][1],
        )
        for index in order
    )
    position = {index: rank for rank, index in enumerate(order)}
    lying = sorted(zip(object_ids, placed, strict=True))
    where = [position[place] for _, (_, place) in lying]
    kinds = {thing for thing, _ in placed}
    fits = chores.FITTING | {(layout.key[place], thing) for thing, place in placed}
    game = Game(
        name=name,
        task=rng.choice(SENTENCES[goal.kind]).format(o=goal.object_type, r=goal.place_type),
        goal=goal,
        objects=tuple(_thing(key, names[key], thing) for key, (thing, _) in lying),
        receptacles=receptacles,
        locations=tuple(locations),
        start=locations.index(spots[-1]),
        inside=frozenset(enumerate(where)),
        object_at=frozenset((index, receptacles[place].location) for index, place in enumerate(where)),
        nested=frozenset(),
        # only what can come up in this game: the problem file stays short
        fits=frozenset((place, thing) for place, thing in fits if place in layout.key and thing in kinds),
    )
    return replace(game, walkthrough=tuple(_walkthrough(game, rng)))


def _thing(key: str, name: str, kind: str) -> Thing:
    return Thing(
        id=key,
        name=name,
        type=kind,
        pickupable=kind not in chores.FIXED,
        toggleable=kind == chores.LAMP,
        cleanable=kind in chores.CLEANABLE,
        heatable=kind in chores.HEATABLE,
        coolable=kind in chores.COOLABLE,
        sliceable=kind in chores.SLICEABLE,
        container=kind in chores.CONTAINERS,
    )


def _new_id(kind: str, taken: set[str], rng: random.Random) -> str:
    """An id in the official style: the type and made-up coordinates."""
    base = kind.removesuffix("basin")
    while True:
        key = base
        for low in (-400, 0, -400):
            hundredths = rng.randint(low, 400)
            sign = "_minus_" if hundredths < 0 else "_plus_"
            key += f"_bar_{sign}{abs(hundredths) // 100:02d}_dot_{abs(hundredths) % 100:02d}"
        key += f"_bar_{kind}" if kind != base else ""
        if key not in taken:
            taken.add(key)
            return key


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
        walk.do("take", targets[0], "from", place_of[targets[0]])
        walk.go(place_of[lamp])
        walk.commands.append(f"use {game.objects[lamp].name}")
        return walk.commands
    goals = [index for index, receptacle in enumerate(game.receptacles) if receptacle.type == game.goal.place_type]
    goal = rng.choice(goals)
    for target in targets[: 2 if game.kind == "two" else 1]:
        walk.do("take", target, "from", place_of[target])
        if game.kind in APPLIANCE:
            types = [receptacle.type for receptacle in game.receptacles]
            walk.do(game.kind, target, "with", types.index(APPLIANCE[game.kind]))
        walk.do("move", target, "to", goal)
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

    def do(self, verb: str, thing: int, preposition: str, place: int) -> None:
        self.go(place)
        receptacle = self._game.receptacles[place]
        if receptacle.openable and place not in self._opened and verb not in APPLIANCE:
            self.commands.append(f"open {receptacle.name}")
            self._opened.add(place)
        self.commands.append(f"{verb} {self._game.objects[thing].name} {preposition} {receptacle.name}")
