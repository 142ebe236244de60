"""What the live page reads: run folders and their logs, whether a trainer is running, indexes of episode files.

An index says who played what and how it ended, without any token. Only the columns that a question needs are read, one
file at a time. An index takes some 150 bytes an episode and is kept; texts and tokens are read when asked for and
forgotten.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from sys import intern
from typing import Any

import numpy as np
import pyarrow  # pyright: ignore[reportMissingTypeStubs]
from numpy.typing import NDArray

from isentrope.charts.text import visible
from isentrope.core.errors import RunError
from isentrope.core.limits import LARGEST, check_is_file, real
from isentrope.diagnosis.phases import PhaseDetector
from isentrope.metrics.glossary import declare, declared_in
from isentrope.report.groups import but_the_seed
from isentrope.runs import episodes
from isentrope.runs.columns import Columns
from isentrope.runs.folder import about_or_nothing, kind_of, leaves, read_config
from isentrope.runs.layout import CONFIG, EVENTS, MARKS, METRICS, NOT_RUNS, TIMINGS
from isentrope.runs.lock import Locks, is_alive
from isentrope.runs.log import Tail
from isentrope.runs.origin import imported_of
from isentrope.watch.pace import Pace

pa: Any = pyarrow  # it comes without type information

_DEPTH = 4
_MOST_RUNS = 2000
_MOST_EVENTS = 5000
_LOOKS = 256  # at a log, of one refresh: 64 MB
_LOOK_AGAIN = 5.0  # seconds between two searches for new run folders
_RECENT = 120.0  # a log written within so many seconds is being written
_QUIET = 1800.0  # a trainer that holds its folder and writes nothing for so long has stalled


def _columns() -> Columns:
    """Of many runs; phases are told from the entropy as the report tells them."""
    return Columns(short=True, exact=("entropy/token", "phase"))


class Run:
    """One run folder. `refresh` reads what is new."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name
        self.id = hashlib.sha256(os.fsencode(path)).hexdigest()[:12]
        self.columns, self.clock, self.pace = _columns(), _columns(), Pace()
        self.events: list[dict[str, Any]] = []
        self.phases, self.phased = PhaseDetector(), 0  # fed so many rows of `columns`, when somebody asks
        self.begun = 0  # grows when what was read before no longer holds
        self.config: dict[str, Any] = {}
        self.problem = ""
        self.read_at = 0.0  # 0: never
        self.found_written = _written(path / METRICS)  # when it was found
        self._config_seen: tuple[int, int] | None = None
        self._logs = (Tail(path / METRICS, thin=True), Tail(path / TIMINGS), Tail(path / EVENTS))

    def refresh(self) -> None:
        for _ in range(_LOOKS):
            if not self._look():
                break
        self._read_config()

    def _look(self) -> bool:
        """Read what one look at each log gives; whether it gave anything."""
        metrics, timings, events = (log.new_records() for log in self._logs)
        if metrics[0] or timings[0] or events[0]:
            self.begun += 1
        if metrics[0]:
            self.columns, self.phases, self.phased = _columns(), PhaseDetector(), 0
            self.pace.forget_metrics()
        if timings[0]:
            self.clock = _columns()
            self.pace.forget_clock()
        self.events = [] if events[0] else self.events
        for record in metrics[1]:
            self.columns.add(self.pace.measured(record, self.config, self._logs[0].every > 1))
        for record in timings[1]:
            self.clock.add(self.pace.timed(record))
        self.events = (self.events + events[1])[-_MOST_EVENTS:]
        return bool(metrics[1] or timings[1] or events[1])

    def _read_config(self) -> None:
        path = self.path / CONFIG
        try:
            status = check_is_file(path)
            seen = (status.st_mtime_ns, status.st_size)
            if seen == self._config_seen:
                return
            self._config_seen = seen
            self.config = leaves(read_config(self.path)[1])
            self.problem = ""
        except FileNotFoundError:
            self.config, self._config_seen = leaves(read_config(self.path)[1]), None
        except (OSError, RunError) as error:
            self.config = {}
            self.problem = f"{CONFIG} could not be read: {visible(str(error.__cause__ or error))[:300]}"

    @property
    def written(self) -> float:
        return max(log.changed for log in self._logs)

    @property
    def kind(self) -> str:
        about = about_or_nothing(self.path)
        declare(declared_in(about))
        return kind_of(about, "sft/loss" in self.columns.keys)

    @property
    def group(self) -> str:
        """Equal for runs that differ by nothing but the seed; a run without settings is alone."""
        alike = but_the_seed(self.kind, self.config)
        return hashlib.sha256(alike.encode("utf-8", "replace")).hexdigest()[:12] if alike else self.id

    def problems(self) -> list[str]:
        """What is missing or broken, in words."""
        found = [self.problem] if self.problem else []
        if not self.columns.rows and self.read_at:
            empty = (self.path / METRICS).exists()
            nothing = f"{METRICS} is still empty: nothing was measured yet." if empty else f"There is no {METRICS} yet."
            found.append(self._stopped() or nothing)
        return found + [visible(log.problem) for log in self._logs if log.problem]

    def _stopped(self) -> str:
        """Why the run ended, if an error was the last that happened."""
        last = self.events[-1] if self.events else {}
        return f"The run stopped: {visible(str(last.get('text', '')))[:600]}" if last.get("kind") == "stop" else ""

    def status(self, locks: Locks | None, now: float) -> str:
        """running, stalled, finished, stopped or empty."""
        if is_alive(self.path, locks):
            return "stalled" if now - self.written > _QUIET and self.columns.rows else "running"
        wanted = self.config.get("run.steps")
        if self.kind == "train" and isinstance(wanted, int) and self.columns.last_step >= wanted:
            return "finished"
        imported = imported_of(about_or_nothing(self.path))
        if imported is not None and not imported.watched:  # nobody writes to it any more
            return "finished"
        if now - self.written < _RECENT:  # by a trainer on another machine
            return "running"
        return "empty" if not self.columns.rows else "stopped" if self.kind == "train" else "finished"


class Runs:
    """All runs below some folders. New ones are found while watching; requests come from several threads."""

    def __init__(self, places: Sequence[Path]) -> None:
        self.places = [real(place) for place in places]
        self.lock = threading.Lock()
        # one thread reads all logs: an allocator keeps, for each thread that did, what a log takes that is read again
        self._reader = ThreadPoolExecutor(1, "logs")
        self._runs: dict[str, Run] = {}
        self._looked = 0.0

    def refresh(self, seconds: float = 1.0) -> list[Run]:
        """Read what is new for about so long, the run that waits longest first; the rest comes with the next call."""
        return self._reader.submit(self._refresh, seconds).result()

    def _refresh(self, seconds: float) -> list[Run]:
        with self.lock:
            now = time.monotonic()
            if not self._looked or now - self._looked > _LOOK_AGAIN:
                self._looked = now
                self._find()
            # of those that were never read the ones written last come first: the page shows them at first
            for run in sorted(self._runs.values(), key=lambda run: (run.read_at, -run.found_written)):
                run.refresh()
                run.read_at = time.monotonic()
                if run.read_at > now + seconds:
                    break
            return list(self._runs.values())

    def all(self) -> list[Run]:
        return list(self._runs.values())

    def get(self, name: str) -> Run | None:
        """A run by its id; nothing else names one, so no request can reach another folder."""
        return self._runs.get(name)

    def _find(self) -> None:
        found: dict[Path, str] = {}
        for place in self.places:
            for folder in _run_folders(place, _DEPTH):
                inside = folder.relative_to(place)
                base = "" if len(self.places) == 1 and inside.parts else place.name
                found.setdefault(folder, "/".join(filter(None, (base, *inside.parts))))
                if len(found) >= _MOST_RUNS:
                    break
        known = {run.path: run for run in self._runs.values()}
        ordered = sorted(found, key=lambda path: _natural(found[path]))
        runs = [known.get(path) or Run(path, visible(found[path])) for path in ordered]
        self._runs = {run.id: run for run in runs}


def _written(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0


def _natural(name: str) -> list[tuple[int, str]]:
    """seed-9 before seed-10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]{1,9})", name)]


def _run_folders(place: Path, depth: int) -> Iterator[Path]:
    try:
        inside = {entry.name: entry for entry in os.scandir(place)}
    except OSError:
        return
    if any(name in inside for name in MARKS):
        yield place
    if depth > 0:
        for name in sorted(inside):
            if name not in NOT_RUNS and not name.startswith(".") and inside[name].is_dir(follow_symlinks=False):
                yield from _run_folders(place / name, depth - 1)


_OF_EPISODE = ("split", "index", "kind", "goal", "group", "member", "success", "stop")
_INDEXED = ("episode", "turn", *_OF_EPISODE, "verdict", "reward")
_MOST_INDEXES = 20_000  # files


@dataclass(frozen=True, kw_only=True)
class EpisodeFile(episodes.EpisodeFile):
    """One of a run that is watched. The run's id and the file's name are the only way to ask for it."""

    run: Run


@dataclass(frozen=True)
class Index:
    """One entry an episode, in the order of the file."""

    first_row: NDArray[np.int64]
    turns: NDArray[np.int32]
    success: NDArray[np.bool_]
    ret: NDArray[np.float64]
    invalid: NDArray[np.int32]
    group: NDArray[np.int64]
    member: NDArray[np.int64]
    game: NDArray[np.int64]
    kind: list[str]
    stop: list[str]
    goal: list[str]
    verdicts: list[dict[str, int]]  # refused turns by reason
    median: float

    def __len__(self) -> int:
        return len(self.turns)


def files_of(runs: Sequence[Run]) -> list[EpisodeFile]:
    """The episode files of the runs, as they are now."""
    return [EpisodeFile(**vars(file), run=run) for run in runs for file in episodes.episode_files(run.path)]


def file_of(run: Run, name: str) -> EpisodeFile | None:
    """The file of that name, if the run has one: the name is looked up, never opened as given."""
    return next((file for file in files_of([run]) if file.name == name), None)


class Indexes:
    """Makes indexes and keeps them as long as their files do not change."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Path, tuple[tuple[int, int], Index | RunError]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, file: EpisodeFile) -> Index:
        """The index of a file; RunError if the file is damaged, which is remembered too."""
        try:
            status = file.path.stat()
        except OSError as error:
            raise RunError(f"{file.path.name} is gone") from error
        seen = (status.st_mtime_ns, status.st_size)
        with self._lock:
            kept = self._kept.get(file.path)
        if kept is None or kept[0] != seen:
            kept = (seen, _made(file.path))
            with self._lock:
                self._kept[file.path] = kept
                while len(self._kept) > _MOST_INDEXES:
                    self._kept.popitem(last=False)
        if isinstance(kept[1], RunError):
            raise kept[1]
        return kept[1]

    def known(self, files: Sequence[EpisodeFile]) -> list[Index]:
        """Indexes that are there already."""
        with self._lock:
            kept = [self._kept.get(file.path) for file in files]
        return [one[1] for one in kept if one is not None and isinstance(one[1], Index)]


def _made(path: Path) -> Index | RunError:
    try:
        return _index(episodes.read_columns(path, _INDEXED))
    except RunError as error:
        return error
    except (KeyError, ValueError, TypeError, pa.ArrowException) as error:
        return RunError(f"{path.name} could not be read: {' '.join(str(error).split())[:200]}")


def _index(table: Any) -> Index:
    numbers = table.column("episode").to_numpy()
    first = np.flatnonzero(np.r_[True, numbers[1:] != numbers[:-1]]) if len(numbers) else np.empty(0, np.int64)
    rows = np.diff(np.r_[first, len(numbers)])
    played = table.column("turn").to_numpy() >= 0  # an episode without turns has one row, with turn -1
    rewards = table.column("reward").to_numpy(zero_copy_only=False).astype(float)
    rewards = np.where(played & (np.abs(rewards) <= LARGEST), rewards, 0.0)  # NaN compares with nothing
    verdicts: list[str | None] = table.column("verdict").to_pylist()
    refused = np.array([verdict not in ("ok", None) for verdict in verdicts], dtype=bool)
    reasons: list[dict[str, int]] = []
    for start, count in zip(first.tolist(), rows.tolist(), strict=True):
        some = refused[start : start + count].any()
        part = [verdicts[row] for row in range(start, start + count) if refused[row]] if some else ()
        reasons.append(dict(Counter(intern(str(reason)) for reason in part)) if some else _NONE)
    heads: dict[str, list[Any]] = {name: table.column(name).take(pa.array(first)).to_pylist() for name in _OF_EPISODE}
    returns = _sums(rewards, first)
    turns, invalid = (_sums(marks.astype(np.int32), first).astype(np.int32) for marks in (played, refused))
    group, member, game = (np.array(heads[name], dtype=np.int64) for name in ("group", "member", "index"))
    kind, stop, goal = ([intern(str(text)) for text in heads[name]] for name in ("kind", "stop", "goal"))
    median = float(np.median(returns)) if len(returns) else 0.0
    success = np.array(heads["success"], dtype=bool)
    return Index(first, turns, success, returns, invalid, group, member, game, kind, stop, goal, reasons, median)


_NONE: dict[str, int] = {}  # shared by all episodes without refused turns


def _sums(values: NDArray[Any], first: NDArray[np.int64]) -> NDArray[Any]:
    return np.add.reduceat(values, first) if len(first) else values[:0]
