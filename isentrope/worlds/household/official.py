"""Reads official ALFWorld games: the downloaded folders, or many games in one `games.jsonl` or `games.jsonl.zst` file.

`alfworld-download` makes `<split>/<type-Object-Container-Receptacle-scene>/<trial>/game.tw-pddl`. The splits
valid_seen and valid_unseen are called seen and unseen here, like those of the generated games.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from isentrope.core.errors import TaskError
from isentrope.worlds.files import mixed, open_text
from isentrope.worlds.household.game import PROPERTIES, Game, Goal, Receptacle, Thing, name_things

_FACT = re.compile(r"\(\s*([\w-]+)((?:\s+[\w.@-]+)*)\s*\)")
_COMMENT = re.compile(r";[^\n]*")
_GOAL_TYPE = re.compile(r"\(\s*(objecttype|receptacletype)\s+\?(\w+)\s+([\w-]+)\s*\)")

_KINDS = {"istoggled": "look", "isclean": "clean", "ishot": "heat", "iscool": "cool", "?o2": "two"}  # by their goals

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
    kind = next((kind for mark, kind in _KINDS.items() if mark in text), "pick")
    objects = [value for variable, (what, value) in types.items() if what == "objecttype" and variable != "ot"]
    lamps = [value for variable, (what, value) in types.items() if what == "objecttype" and variable == "ot"]
    places = lamps if kind == "look" else [value for what, value in types.values() if what == "receptacletype"]
    if not objects or not places:
        raise TaskError(f"the goal is none of the six known task types: {' '.join(text.split())[:200]}")
    return Goal(kind, objects[0], places[0])


def _assemble(facts: Facts, goal: Goal, task: str, name: str, walkthrough: tuple[str, ...]) -> Game:
    names = name_things({argument for rows in facts.values() for row in rows for argument in row})
    type_of = {row[0]: row[1].removesuffix("type") for row in facts["objecttype"]}
    receptacle_types = {row[0]: row[1].removesuffix("type") for row in facts["receptacletype"]}
    places = {row[0]: row[1] for row in facts["receptacleatlocation"]}
    agent_at = facts["atlocation"][0][1]
    locations = sorted({agent_at, *places.values(), *(row[1] for row in facts["objectatlocation"])})
    where = {key: index for index, key in enumerate(locations)}
    has = defaultdict(set, {fact: {row[0] for row in rows if len(row) == 1} for fact, rows in facts.items()})
    object_ids = sorted(
        set(type_of)
        | {row[0] for key in ("inreceptacle", "objectatlocation") for row in facts[key]}
        | {part for row in facts["inreceptacleobject"] for part in row}
        | has["pickupable"]
    )
    objects = tuple(
        Thing(key, names[key], type_of.get(key, ""), **{name: key in has[fact] for name, fact in PROPERTIES.items()})
        for key in object_ids
    )
    receptacles = tuple(
        Receptacle(key, names[key], receptacle_types.get(key, ""), where[places[key]], key in has["openable"])
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


_TASK = re.compile(r"Your task is to: ([^\"]*)\"")
_SPLIT_NAMES = {"valid_seen": "seen", "valid_unseen": "unseen"}
_NOT_PLAYED = ("movable", "Sliced")  # folders that the official loader leaves out too


@dataclass(frozen=True)
class Record:
    """A game as it is stored: reading the PDDL problem takes some milliseconds and waits until it is played."""

    name: str
    task: str
    problem: str
    walkthrough: tuple[str, ...]

    def game(self) -> Game:
        return read_problem(self.problem, self.task, self.name, self.walkthrough)


def official_games(path: str, kinds: tuple[str, ...]) -> dict[str, list[tuple[str, Record | Path]]]:
    """All games of these kinds below a folder or in a file: split, and (kind, game) of each."""
    root = Path(path).expanduser()
    if not root.exists():
        raise TaskError(
            f"games = {path!r}: no such folder or file; get the official games with `alfworld-download`, "
            "or leave games empty to play generated ones"
        )
    games: dict[str, dict[str, list[Record | Path]]] = {}  # split -> kind -> games
    for split, kind, game in _find_files(root) if root.is_dir() else _find_lines(root):
        if kind in kinds:
            games.setdefault(_SPLIT_NAMES.get(split, split), {}).setdefault(kind, []).append(game)
    if not games:
        raise TaskError(f"games = {path!r}: no game of the kinds {', '.join(kinds)} found there")
    return {split: mixed(by_kind) for split, by_kind in games.items()}


def read_file(path: Path) -> Record:
    """One game.tw-pddl file. Its task sentence stands in the text grammar."""
    data = _file_object(path)
    task = _TASK.search(_text(data, "grammar", str(path)))
    if task is None:
        raise TaskError(f"{path}: the grammar names no task; it should hold 'Your task is to: ...'")
    return _record("/".join(path.parts[-4:-1]), task[1], data, str(path))


def read_line(line: str, where: str) -> tuple[str, Record]:
    """One line of a games.jsonl file: its split and its game."""
    data = _json_object(line, where)
    record = _record(str(data.get("game", where)), _text(data, "task", where), data, where)
    return str(data.get("split", "train")), record


def _record(name: str, task: str, data: dict[str, Any], where: str) -> Record:
    steps = data.get("walkthrough")
    walkthrough = tuple(map(str, cast("list[Any]", steps))) if isinstance(steps, list) else ()
    return Record(name, task, _text(data, "pddl_problem", where), walkthrough)


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a text file, which may be compressed (.zst)."""
    try:
        with open_text(path) as file:
            yield from file
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"could not read {path}: {error}") from error


def _find_files(root: Path) -> Iterator[tuple[str, str, Path]]:
    """Game files below a folder of splits, or below one split's own folder."""
    for path in sorted(root.resolve().glob("**/game.tw-pddl")):
        if any(word in path.parent.parent.name for word in _NOT_PLAYED):
            continue
        data = _file_object(path)
        if data.get("solvable", True):
            kind = _kind_of(_text(data, "pddl_problem", str(path)), str(path))
            yield path.parent.parent.parent.name, kind, path


def _find_lines(path: Path) -> Iterator[tuple[str, str, Record]]:
    for number, line in enumerate(read_lines(path), start=1):
        if line.strip():
            where = f"{path.name}, line {number}"
            split, record = read_line(line, where)
            yield split, _kind_of(record.problem, where), record


def _kind_of(problem: str, where: str) -> str:
    """The kind of task, from the goal alone: it stands at the end and is quickly read."""
    begin = problem.rfind("(:goal")
    if begin < 0:
        raise TaskError(f"{where}: no (:goal ...) found; a PDDL problem is expected")
    return read_goal(problem[begin:].lower()).kind


def _file_object(path: Path) -> dict[str, Any]:
    try:
        return _json_object(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"could not read the game {path}: {error}") from error


def _json_object(text: str, where: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except ValueError as error:
        raise TaskError(f"{where}: not valid JSON ({error})") from error
    if not isinstance(data, dict):
        raise TaskError(f"{where}: a JSON object is expected, found {type(data).__name__}")
    return cast("dict[str, Any]", data)


def _text(data: dict[str, Any], key: str, where: str) -> str:
    value = data.get(key)
    if not isinstance(value, str):
        raise TaskError(f"{where}: the field {key!r} should be text, found {type(value).__name__}")
    return value
