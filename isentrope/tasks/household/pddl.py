"""Household games in the official format: a PDDL problem, wrapped in a `game.tw-pddl` JSON file."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping

from isentrope.errors import TaskError
from isentrope.tasks.household.game import Game, Goal, Receptacle, Thing, name_things

_FACT = re.compile(r"\(\s*([\w-]+)((?:\s+[\w.@-]+)*)\s*\)")
_COMMENT = re.compile(r";[^\n]*")
_GOAL_TYPE = re.compile(r"\(\s*(objecttype|receptacletype)\s+\?(\w+)\s+([\w-]+)\s*\)")

# States that no official game starts in, and this engine has no place for.
_NEVER_AT_START = ("opened", "holds", "holdsany", "isclean", "ishot", "issliced", "istoggled", "ison")

Facts = Mapping[str, list[tuple[str, ...]]]


def read_problem(problem: str, task: str, name: str = "", walkthrough: tuple[str, ...] = ()) -> Game:
    """Parse a PDDL problem. PDDL knows no upper case, so everything is lower-cased."""
    text = _COMMENT.sub("", problem.lower())
    begin, end = text.find("(:init"), text.find("(:goal")
    if begin < 0 or end < begin:
        raise TaskError(f"game {name!r}: the PDDL problem needs an (:init ...) part followed by a (:goal ...) part")
    facts: defaultdict[str, list[tuple[str, ...]]] = defaultdict(list)
    for match in _FACT.finditer(text, begin + len("(:init"), end):
        facts[match[1]].append(tuple(match[2].split()))
    odd = [predicate for predicate in _NEVER_AT_START if predicate in facts]
    if odd:
        raise TaskError(f"game {name!r}: {odd[0]} at the start is not supported; no official game has it")
    try:
        return _assemble(facts, read_goal(text[end:]), task, name, walkthrough)
    except (KeyError, IndexError, ValueError) as error:
        raise TaskError(f"game {name!r}: the PDDL problem contradicts itself ({error!r}); download it again") from error


def read_goal(text: str) -> Goal:
    """Recognise which of the six goals a (:goal ...) part states."""
    types = {variable: (what, value.removesuffix("type")) for what, variable, value in _GOAL_TYPE.findall(text)}
    objects = [value for variable, (what, value) in types.items() if what == "objecttype" and variable != "ot"]
    places = [value for what, value in types.values() if what == "receptacletype"]
    if "istoggled" in text:
        places = [value for variable, (what, value) in types.items() if what == "objecttype" and variable == "ot"]
        kind = "look"
    elif "isclean" in text:
        kind = "clean"
    elif "ishot" in text:
        kind = "heat"
    elif "iscool" in text:
        kind = "cool"
    else:
        kind = "two" if "?o2" in text else "pick"
    if not objects or not places:
        raise TaskError(f"the goal is none of the six known task types: {' '.join(text.split())[:200]}")
    return Goal(kind, objects[0], places[0])


def _assemble(facts: Facts, goal: Goal, task: str, name: str, walkthrough: tuple[str, ...]) -> Game:
    entities = {argument for rows in facts.values() for row in rows for argument in row}
    names = name_things(entities)
    object_types = {row[0]: row[1].removesuffix("type") for row in facts["objecttype"]}
    receptacle_types = {row[0]: row[1].removesuffix("type") for row in facts["receptacletype"]}
    places = {row[0]: row[1] for row in facts["receptacleatlocation"]}
    agent_at = facts["atlocation"][0][1]
    locations = sorted({agent_at, *places.values(), *(row[1] for row in facts["objectatlocation"])})
    where = {key: index for index, key in enumerate(locations)}
    has = {predicate: {row[0] for row in rows if len(row) == 1} for predicate, rows in facts.items()}
    nothing: set[str] = set()

    def true(predicate: str, key: str) -> bool:
        return key in has.get(predicate, nothing)

    object_ids = sorted(
        set(object_types)
        | {row[0] for key in ("inreceptacle", "objectatlocation") for row in facts[key]}
        | {part for row in facts["inreceptacleobject"] for part in row}
        | has.get("pickupable", nothing)
    )
    objects = tuple(
        Thing(
            id=key,
            name=names[key],
            type=object_types.get(key, ""),
            pickupable=true("pickupable", key),
            toggleable=true("toggleable", key),
            cleanable=true("cleanable", key),
            heatable=true("heatable", key),
            coolable=true("coolable", key),
            sliceable=true("sliceable", key),
            container=true("isreceptacleobject", key),
            cool=true("iscool", key),
        )
        for key in object_ids
    )
    receptacles = tuple(
        Receptacle(key, names[key], receptacle_types.get(key, ""), where[places[key]], true("openable", key))
        for key in sorted(places)
    )
    object_at = {key: index for index, key in enumerate(object_ids)}
    receptacle_at = {receptacle.id: index for index, receptacle in enumerate(receptacles)}
    return Game(
        name=name,
        task=task,
        goal=goal,
        objects=objects,
        receptacles=receptacles,
        locations=tuple(locations),
        start=where[agent_at],
        inside=frozenset((object_at[o], receptacle_at[r]) for o, r in facts["inreceptacle"]),
        object_at=frozenset((object_at[o], where[place]) for o, place in facts["objectatlocation"]),
        nested=frozenset((object_at[o], object_at[outer]) for o, outer in facts["inreceptacleobject"]),
        fits=frozenset((r.removesuffix("type"), o.removesuffix("type")) for r, o in facts["cancontain"]),
        walkthrough=walkthrough,
    )
