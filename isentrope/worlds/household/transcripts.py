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
        differences = (one for one in _comparisons(engine, record, steps) if one.expected != one.got)
        return GameCheck(name, number, len(steps), next(differences, None))
    except (KeyError, TypeError, AttributeError) as error:
        raise TaskError(
            f"{where}: not a recorded game ({error!r}); each line needs pddl_problem, intro, admissible and steps, "
            "each step command, feedback, admissible and won"
        ) from error


def _comparisons(engine: Engine, record: dict[str, Any], steps: list[dict[str, Any]]) -> Iterator[Difference]:
    """All that was recorded, beside what this engine says."""
    yield Difference(0, "", "intro", record["intro"], engine.introduction())
    yield Difference(0, "", "admissible", *_commands(engine, record["admissible"]))
    for number, step in enumerate(steps, start=1):
        command = step["command"]
        yield Difference(number, command, "feedback", step["feedback"], engine.step(command))
        yield Difference(number, command, "admissible", *_commands(engine, step["admissible"]))
        yield Difference(number, command, "won", str(bool(step["won"])), str(engine.won))


def _commands(engine: Engine, expected: list[str]) -> tuple[str, str]:
    """The commands that should be admissible and those that are; of different ones only where they differ."""
    got = engine.admissible()
    missing, extra = sorted(set(expected) - set(got)), sorted(set(got) - set(expected))
    if missing or extra:
        return f"with {missing}", f"with {extra}"
    return " | ".join(expected), " | ".join(got)
