"""Generates household games, as many as are asked for.

A game is drawn from its kind, size, split and number alone: a room layout from the split's pool, objects lying
where such objects usually lie, a task that can be done there, and the walkthrough, which is played to the end
before the game is handed out.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
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
    solved = engine.won
    walkthrough = tuple(command for command in _way(game, rng) if engine.attempt(command) is not None)
    if solved or not engine.won:
        raise TaskError(f"the generated game {game.name} is not solved by its own walkthrough; please report this")
    return replace(game, walkthrough=walkthrough)


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
    """Give everything ids, names and locations."""
    taken: set[str] = set()
    furniture_ids = [_new_id(place, taken, rng) for place in layout.key]
    object_ids = [_new_id(thing, taken, rng) for thing, _ in placed]
    names = name_things(taken)
    spots = _spots(len(furniture_ids), size, rng)
    locations = sorted(set(spots))
    receptacles = tuple(
        Receptacle(key, names[key], kind, locations.index(spot), openable)
        for key, (kind, openable), spot in sorted(zip(furniture_ids, layout.receptacles, spots[:-1], strict=True))
    )
    position = {receptacle.id: index for index, receptacle in enumerate(receptacles)}
    lying = sorted(zip(object_ids, placed, strict=True))
    where = [position[furniture_ids[place]] for _, (_, place) in lying]
    kinds = {thing for thing, _ in placed}
    able = {kind: {name: kind in having for name, having in chores.ABLE.items()} for kind in kinds}
    fits = chores.FITTING | {(layout.key[place], thing) for thing, place in placed}
    return Game(
        name=name,
        task=rng.choice(SENTENCES[goal.kind]).format(o=goal.object_type, r=goal.place_type),
        goal=goal,
        objects=tuple(Thing(key, names[key], kind, kind not in chores.FIXED, **able[kind]) for key, (kind, _) in lying),
        receptacles=receptacles,
        locations=tuple(locations),
        start=locations.index(spots[-1]),
        inside=frozenset(enumerate(where)),
        object_at=frozenset((index, receptacles[place].location) for index, place in enumerate(where)),
        nested=frozenset(),
        # only what can come up in this game: the problem file stays short
        fits=frozenset((place, thing) for place, thing in fits if place in layout.key and thing in kinds),
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
    spots = [f"loc_bar_{cell // 41 - 20}_bar_{cell % 41 - 20}_bar_{cell % 4}_bar_60" for cell in grid]
    spots = [spot.replace("-", "_minus_") for spot in spots]
    if size == "full":
        for index in range(1, count):
            if rng.random() < _SHARED / 2:  # two stand at each shared location
                spots[index] = spots[index - 1]
    return spots


def _way(game: Game, rng: random.Random) -> Iterator[str]:
    """The shortest way for one who knows where everything is. What is not possible is to be left out: going where one
    is already, and opening what is open or has no door."""
    place_of = {thing: game.receptacles[place].name for thing, place in game.inside}
    targets = [index for index, thing in enumerate(game.objects) if thing.type == game.goal.object_type]
    if game.kind == "look":
        yield from _at(place_of[targets[0]], f"take {game.objects[targets[0]].name} from")
        lamp = next(index for index, thing in enumerate(game.objects) if thing.type == chores.LAMP)
        yield f"go to {place_of[lamp]}"
        yield f"use {game.objects[lamp].name}"
        return
    goal = rng.choice([receptacle.name for receptacle in game.receptacles if receptacle.type == game.goal.place_type])
    for target in targets[: 2 if game.kind == "two" else 1]:
        name = game.objects[target].name
        yield from _at(place_of[target], f"take {name} from")
        if game.kind in APPLIANCE:
            place = next(receptacle.name for receptacle in game.receptacles if receptacle.type == APPLIANCE[game.kind])
            yield f"go to {place}"
            yield f"{game.kind} {name} with {place}"
        yield from _at(goal, f"move {name} to")


def _at(place: str, command: str) -> tuple[str, ...]:
    return f"go to {place}", f"open {place}", f"{command} {place}"
