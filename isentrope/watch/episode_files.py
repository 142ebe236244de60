"""Indexes of episode files: who played what and how it ended, without any token.

Only the columns that a question needs are read, one file at a time. An index takes some 150 bytes an episode and is
kept; texts and tokens are read when asked for and forgotten.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from sys import intern
from typing import Any

import numpy as np
import pyarrow  # pyright: ignore[reportMissingTypeStubs]
from numpy.typing import NDArray

from isentrope.core.errors import RunError
from isentrope.runs import episodes
from isentrope.watch.runs import Run

pa: Any = pyarrow  # it comes without type information

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
    rewards = np.where(played, np.nan_to_num(table.column("reward").to_numpy(zero_copy_only=False).astype(float)), 0.0)
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
