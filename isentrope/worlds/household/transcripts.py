"""Replays recordings of the official engine and reports where this one answers differently.

A recording is a JSON-lines file, one game a line: `game`, `pddl_problem`, `intro`, `admissible`, and `steps`, each
with `command`, `feedback`, `admissible` and `won`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from isentrope.core.errors import TaskError
from isentrope.worlds.household.engine import Engine
from isentrope.worlds.household.official import read_lines, read_problem


@dataclass(frozen=True)
class Difference:
    """The first place at which a replay departs from its recording."""

    step: int  # counted from 1; 0 is the introduction
    command: str
    what: str  # intro, feedback, admissible or won
    expected: str
    got: str

    def __str__(self) -> str:
        where = "at the start" if self.step == 0 else f"at step {self.step}, {self.command!r}"
        return f"{where}: {self.what} should be {self.expected!r}, is {self.got!r}"


@dataclass(frozen=True)
class GameCheck:
    game: str
    line: int  # of the recording, counted from 1
    steps: int  # steps recorded
    difference: Difference | None  # None: every byte was the same

    @property
    def passed(self) -> bool:
        return self.difference is None


def check_transcripts(path: str | Path) -> Iterator[GameCheck]:
    """Replay every game of a recording, one result each, in the order of the file."""
    file = Path(path).expanduser()
    if not file.is_file():
        raise TaskError(f"there is no recording {str(path)!r}; give a .jsonl or .jsonl.zst file")
    for number, line in enumerate(read_lines(file), start=1):
        if line.strip():
            yield _check_line(line, number, f"{file.name}, line {number}")


def _check_line(line: str, number: int, where: str) -> GameCheck:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise TaskError(f"{where}: not valid JSON ({error})") from error
    try:
        name, steps = str(record.get("game") or f"line {number}"), cast("list[dict[str, Any]]", record["steps"])
        task = str(record["intro"]).rpartition("Your task is to: ")[2]  # the problem itself does not word it
        engine = Engine(read_problem(record["pddl_problem"], task, name))
        return GameCheck(name, number, len(steps), _first_difference(engine, record, steps))
    except (KeyError, TypeError, AttributeError) as error:
        raise TaskError(
            f"{where}: not a recorded game ({error!r}); each line needs pddl_problem, intro, admissible and steps, "
            "each step command, feedback, admissible and won"
        ) from error


def _first_difference(engine: Engine, record: dict[str, Any], steps: list[dict[str, Any]]) -> Difference | None:
    if engine.introduction() != record["intro"]:
        return Difference(0, "", "intro", record["intro"], engine.introduction())
    found = _compare_commands(engine, record["admissible"], 0, "")
    for number, step in enumerate(steps, start=1):
        if found is not None:
            break
        command = step["command"]
        answer = engine.step(command)
        if answer != step["feedback"]:
            return Difference(number, command, "feedback", step["feedback"], answer)
        found = _compare_commands(engine, step["admissible"], number, command)
        if found is None and engine.won is not bool(step["won"]):
            return Difference(number, command, "won", str(bool(step["won"])), str(engine.won))
    return found


def _compare_commands(engine: Engine, expected: list[str], number: int, command: str) -> Difference | None:
    got = list(engine.admissible())
    if got == list(expected):
        return None
    missing, extra = sorted(set(expected) - set(got)), sorted(set(got) - set(expected))
    if not missing and not extra:
        return Difference(number, command, "admissible", " | ".join(expected), " | ".join(got))
    return Difference(number, command, "admissible", f"with {missing}", f"with {extra}")
