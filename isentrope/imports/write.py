"""Makes a run folder of what was read: metrics.jsonl, events.jsonl with the alarms, run.json with the origin."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from isentrope import __version__
from isentrope.core.errors import RunError, writing
from isentrope.core.limits import LOG_BYTES
from isentrope.diagnosis.alarms import Alarms
from isentrope.diagnosis.findings.imported import event_in_words_of
from isentrope.imports.names import Names, is_ours
from isentrope.imports.series import Series
from isentrope.imports.sources import Source
from isentrope.runs.atomic import flush_folder
from isentrope.runs.integrity import with_sum
from isentrope.runs.layout import ABOUT, EVENTS, METRICS
from isentrope.runs.log import record_of
from isentrope.runs.origin import IMPORTED, command_line

_AT_ONCE = 1000  # numbers of a line
_MOST_NOTES = 20  # that run.json keeps
_MOST_NAMES = 500
_EVERY = 2000  # steps between two words of progress


@dataclass(frozen=True)
class Imported:
    folder: Path
    steps: int
    first: int
    last: int
    ours: int  # metrics under our names
    others: int
    problems: tuple[str, ...]


def write_run(
    out: Path, path: Path, source: Source, series: Series, names: Names, found: Mapping[str, str],
    own: Mapping[str, str], notes: list[str], settings: Mapping[str, Any],
    say: Callable[[int], None] = lambda step: None,
) -> Imported:  # fmt: skip
    """The folder is there in full or not at all."""
    check_is_free(out)
    place = out.with_name(f".{out.name}.importing")
    with writing(out):
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        try:
            games = settings.get("eval", {}).get("games")
            steps = _write_logs(place, series, names, found, games, say)
            renamed = {theirs: ours for theirs, ours in found.items() if theirs != ours}
            problems = [*source.notes, *notes, *series.problems]
            entry: dict[str, Any] = {
                "from": str(path), "files": [file.name for file in source.files[:_MOST_NAMES]],
                "what": source.title, "program": names.title, "names": names.name, "at": _now(),
                "command": command_line(sys.argv),
                "map": dict(list(renamed.items())[:_MOST_NAMES]), "own_map": {a: b for b, a in own.items()},
                "settings": dict(settings), "problems": [text[:500] for text in problems[:_MOST_NOTES]],
                "steps": steps,
            }  # fmt: skip
            about = {"kind": "train", "version": __version__, IMPORTED: entry}
            (place / ABOUT).write_text(json.dumps(with_sum(about)) + "\n")
            flush_folder(place)
            if out.is_dir():
                out.rmdir()
            os.replace(place, out)
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
    last = max((int(series.values(key)[0][-1]) for key in found), default=0)
    first = min((int(series.values(key)[0][0]) for key in found), default=0)
    ours = sum(is_ours(name) for name in found.values())
    return Imported(out, steps, first, last, ours, len(found) - ours, tuple(problems))


def check_is_free(out: Path) -> None:
    """Nothing that is there is written over."""
    if os.path.lexists(out) and (out.is_symlink() or not out.is_dir() or next(out.iterdir(), None) is not None):
        raise RunError(f"{out} is there already; choose another folder with --out, or delete it")


def _write_logs(
    place: Path, series: Series, names: Names, found: Mapping[str, str], games: int | None, say: Callable[[int], None]
) -> int:
    """Both logs; how many steps they have."""
    alarms, size, steps = Alarms(), 0, 0
    with (place / METRICS).open("w") as metrics, (place / EVENTS).open("w") as events:
        for step, values in series.rows(found):
            train = {key: value for key, value in values.items() if not key.startswith("eval/")}
            evaluated = {key: value for key, value in values.items() if key.startswith("eval/")}
            evaluated = _with_games(evaluated, games) if games else evaluated
            size += _write(metrics, step, train, "train") + _write(metrics, step, evaluated, "eval")
            if train:
                given = alarms.look(step, train)
                told = (event_in_words_of(event, names.name) for event in alarms.events(given))
                events.writelines(json.dumps(event) + "\n" for event in told)
            steps += 1
            if steps % _EVERY == 0:
                say(step)
            if size > LOG_BYTES - (64 << 20):
                series.cut = f"the run is larger than a log may be; its numbers end with step {step}"
                break
    return steps


def _with_games(evaluated: Mapping[str, float], games: int) -> dict[str, float]:
    """An evaluation with the number of its games, which the user knows where the log does not say it."""
    parts = [key.split("/") for key in evaluated]
    splits = [part[1] for part in parts if len(part) == 3 and part[2] == "success"]
    return {f"eval/{split}/games": float(games) for split in splits} | dict(evaluated)


def _write(file: TextIO, step: int, values: Mapping[str, float], kind: str) -> int:
    written = 0
    for part in _parts(values):
        written += file.write(json.dumps(record_of(step, part, kind), allow_nan=False) + "\n")
    return written


def _parts(values: Mapping[str, float]) -> Iterator[dict[str, float]]:
    items = list(values.items())
    for first in range(0, len(items), _AT_ONCE):
        yield dict(items[first : first + _AT_ONCE])


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
