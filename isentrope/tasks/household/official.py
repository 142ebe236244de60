"""Official ALFWorld games: the downloaded folders, or many games in one `games.jsonl` or `games.jsonl.zst` file.

`alfworld-download` makes `<split>/<type-Object-Container-Receptacle-scene>/<trial>/game.tw-pddl`. The splits
valid_seen and valid_unseen are called seen and unseen here, like those of the generated games.
"""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from isentrope.errors import TaskError
from isentrope.tasks.household.game import Game
from isentrope.tasks.household.pddl import read_goal, read_problem

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


class OfficialGames:
    """All games below a folder or in a file, by split."""

    def __init__(self, path: str, kinds: tuple[str, ...]) -> None:
        root = Path(path).expanduser()
        if not root.exists():
            raise TaskError(
                f"games = {path!r}: no such folder or file; get the official games with `alfworld-download`, "
                "or leave games empty to play generated ones"
            )
        found = _find_files(root) if root.is_dir() else _find_lines(root)
        self._games: dict[str, list[tuple[str, Record | Path]]] = {}
        for split, kind, game in found:
            if kind in kinds:
                self._games.setdefault(_SPLIT_NAMES.get(split, split), []).append((kind, game))
        self._games = {split: _mixed(games) for split, games in self._games.items()}
        if not self._games:
            raise TaskError(f"games = {path!r}: no game of the kinds {', '.join(kinds)} found there")

    def splits(self) -> tuple[str, ...]:
        return tuple(self._games)

    def size(self, split: str) -> int:
        return len(self._games[split])

    def kind(self, split: str, index: int) -> str:
        return self._entry(split, index)[0]

    def game(self, split: str, index: int) -> Game:
        entry = self._entry(split, index)[1]
        return (read_file(entry) if isinstance(entry, Path) else entry).game()

    def _entry(self, split: str, index: int) -> tuple[str, Record | Path]:
        games = self._games[split]
        if not 0 <= index < len(games):
            raise TaskError(f"there is no official game number {index} in {split!r}: it has {len(games)} games")
        return games[index]


def _mixed(games: list[tuple[str, Record | Path]]) -> list[tuple[str, Record | Path]]:
    """Each kind spread evenly over the whole. On disk games stand by kind, and the first hundred would be of one."""
    counts = Counter(kind for kind, _ in games)
    seen: Counter[str] = Counter()
    places: list[float] = []
    for kind, _ in games:
        places.append((seen[kind] + 0.5) / counts[kind])
        seen[kind] += 1
    return [games[i] for i in sorted(range(len(games)), key=lambda i: (places[i], games[i][0]))]


def read_file(path: Path) -> Record:
    """One game.tw-pddl file. Its task sentence stands in the text grammar."""
    data = _json_object(_file_text(path), str(path))
    task = _TASK.search(_text(data, "grammar", str(path)))
    if task is None:
        raise TaskError(f"{path}: the grammar names no task; it should hold 'Your task is to: ...'")
    name = "/".join(path.parts[-4:-1])
    return Record(name, task[1], _text(data, "pddl_problem", str(path)), _walkthrough(data))


def read_line(line: str, where: str) -> tuple[str, Record]:
    """One line of a games.jsonl file: its split and its game."""
    data = _json_object(line, where)
    record = Record(
        str(data.get("game", where)), _text(data, "task", where), _text(data, "pddl_problem", where), _walkthrough(data)
    )
    return str(data.get("split", "train")), record


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a text file, which may be compressed (.zst)."""
    try:
        if path.suffix == ".zst":
            yield from _compressed_lines(path)
            return
        with path.open(encoding="utf-8") as file:
            yield from file
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"could not read {path}: {error}") from error


def _compressed_lines(path: Path) -> Iterator[str]:
    import pyarrow as pa  # pyright: ignore[reportMissingTypeStubs]

    stream: Any = cast(Any, pa).input_stream(str(path), compression="zstd")
    with stream:
        yield from io.TextIOWrapper(stream, encoding="utf-8")


def _find_files(root: Path) -> Iterator[tuple[str, str, Path]]:
    """Game files below a folder of splits, or below one split's own folder."""
    for path in sorted(root.resolve().glob("**/game.tw-pddl")):
        if any(word in path.parent.parent.name for word in _NOT_PLAYED):
            continue
        data = _json_object(_file_text(path), str(path))
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


def _file_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
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


def _walkthrough(data: dict[str, Any]) -> tuple[str, ...]:
    value = data.get("walkthrough")
    return tuple(str(command) for command in cast("list[Any]", value)) if isinstance(value, list) else ()
