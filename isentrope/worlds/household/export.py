"""Writes a game in the official format, so that the official engine can play it too.

A `game.tw-pddl` file also holds the world's PDDL domain and its text grammar, the same for every game. They
are not part of this package: they are taken from an installed `alfworld`.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from isentrope.core.errors import TaskError
from isentrope.core.needs import install_command
from isentrope.worlds.household.game import PROPERTIES, Game, Goal

# Types that the domain names: they have to be declared even where the game has nothing of the kind.
_OBJECT_TYPES = {"knife", "butterknife", "sink"}
_RECEPTACLE_TYPES = {"sinkbasin", "microwave", "fridge"}
_TREATED = {"clean": ("cleanable", "isclean"), "heat": ("heatable", "ishot"), "cool": ("coolable", "iscool")}


@dataclass(frozen=True)
class Language:
    """The domain and the grammar that every official game file repeats."""

    domain: str
    grammar: str

    @classmethod
    def installed(cls) -> Language:
        """From the installed alfworld package, without importing it."""
        spec = importlib.util.find_spec("alfworld")
        if spec is None or spec.origin is None:
            raise TaskError(f"writing official game files needs alfworld: {install_command('alfworld')}")
        folder = Path(spec.origin).parent / "data"
        return cls((folder / "alfred.pddl").read_text("utf-8"), (folder / "alfred.twl2").read_text("utf-8"))


def game_data(game: Game, language: Language) -> dict[str, object]:
    """The content of the game's game.tw-pddl file."""
    return {
        "pddl_domain": language.domain,
        "grammar": language.grammar.replace("UNKNOWN GOAL.", game.task),
        "pddl_problem": write_problem(game),
        "walkthrough": list(game.walkthrough),
        "solvable": True,
    }


def write_game_file(game: Game, path: Path, language: Language | None = None) -> None:
    data = game_data(game, language or Language.installed())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data), encoding="utf-8")


def write_problem(game: Game) -> str:
    """The game as a PDDL problem."""
    facts = "\n".join(f"    ({fact})" for fact in _facts(game))
    declared = "\n".join(f"    {line}" for line in _declarations(game))
    return (
        f"(define (problem household)\n(:domain alfred)\n(:objects\n{declared}\n)\n"
        f"(:init\n{facts}\n)\n(:goal\n    {_goal(game.goal)}\n))\n"
    )


def _declarations(game: Game) -> Iterator[str]:
    object_types = _OBJECT_TYPES | {thing.type for thing in game.objects if thing.type} | {o for _, o in game.fits}
    receptacle_types = _RECEPTACLE_TYPES | {r.type for r in game.receptacles} | {r for r, _ in game.fits}
    object_types.add(game.goal.object_type)
    (object_types if game.kind == "look" else receptacle_types).add(game.goal.place_type)
    yield "agent1 - agent"
    yield from (f"{name}type - otype" for name in sorted(object_types))
    yield from (f"{name}type - rtype" for name in sorted(receptacle_types - object_types))
    yield from (f"{thing.id} - object" for thing in game.objects)
    yield from (f"{receptacle.id} - receptacle" for receptacle in game.receptacles)
    yield from (f"{location} - location" for location in game.locations)


def _facts(game: Game) -> Iterator[str]:
    things, furniture, locations = game.objects, game.receptacles, game.locations
    for receptacle in furniture:
        yield f"receptacletype {receptacle.id} {receptacle.type}type"
        yield f"receptacleatlocation {receptacle.id} {locations[receptacle.location]}"
        if receptacle.openable:
            yield f"openable {receptacle.id}"
    for thing in things:
        if thing.type:
            yield f"objecttype {thing.id} {thing.type}type"
        yield from (f"{name} {thing.id}" for attribute, name in PROPERTIES.items() if getattr(thing, attribute))
    yield from (f"cancontain {place}type {thing}type" for place, thing in sorted(game.fits))
    yield f"atlocation agent1 {locations[game.start]}"
    yield from _pairs("inreceptacle", ((things[o].id, furniture[r].id) for o, r in game.inside))
    yield from _pairs("inreceptacleobject", ((things[o].id, things[outer].id) for o, outer in game.nested))
    yield from _pairs("objectatlocation", ((things[o].id, locations[place]) for o, place in game.object_at))


def _pairs(predicate: str, pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    return (f"{predicate} {first} {second}" for first, second in sorted(pairs))


def _goal(goal: Goal) -> str:
    thing, place = f"{goal.object_type}type", f"{goal.place_type}type"
    if goal.kind == "look":
        lamp = (
            f"(objecttype ?ot {place}) (toggleable ?ot) (istoggled ?ot) "
            "(receptacleatlocation ?r ?l) (atlocation ?a ?l) (inreceptacle ?ot ?r)"
        )
        return (
            f"(and (exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and {lamp})) "
            f"(exists (?o - object ?a - agent) (and (objecttype ?o {thing}) (holds ?a ?o))))"
        )
    put = f"(objecttype ?o {thing}) (receptacletype ?r {place}) (inreceptacle ?o ?r)"
    if goal.kind == "two":
        first, second = put.replace("?o", "?o1"), put.replace("?o", "?o2")
        inner = f"(and {first} (exists (?o2 - object) (and (not (= ?o1 ?o2)) {second})))"
        return f"(and (exists (?r - receptacle) (exists (?o1 - object) {inner})))"
    extra = "".join(f" ({predicate} ?o)" for predicate in _TREATED.get(goal.kind, ()))
    return f"(and (exists (?r - receptacle) (exists (?o - object) (and {put}{extra}))))"
