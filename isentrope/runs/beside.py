"""The folder of a run that another program trains, while our instruments watch it there.

    folder = WatchedFolder(path, entry)             # a new run: the first free one of PATH, PATH-2, ...
    folder = WatchedFolder(path, entry, after=40)   # goes on with the one in PATH: later steps are forgotten

It has everything but settings and checkpoints, which are the other program's. What is known of its settings stands in
run.json.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from isentrope import __version__
from isentrope.core.errors import RunError, writing
from isentrope.core.types import Episode, Scores
from isentrope.runs.atomic import write_atomically
from isentrope.runs.episodes import episode_files, write_episodes, write_scores
from isentrope.runs.folder import read_about
from isentrope.runs.integrity import with_sum
from isentrope.runs.layout import ABOUT, EPISODES, EVENTS, LOCK, METRICS, TIMINGS, TOKENS, scores_path, train_path
from isentrope.runs.lock import hold
from isentrope.runs.log import Record, append_record, mend_end, truncate_logs
from isentrope.runs.origin import IMPORTED, start_entry, with_start

_MOST = 1000  # runs that are numbered in one place


class WatchedFolder:
    """Holds the lock of the folder until it is closed."""

    def __init__(self, path: Path, entry: Mapping[str, Any], parameters: int = 0, after: int | None = None) -> None:
        """`entry` says what is known of the run. `after`: the last step that the trainer goes on from."""
        self.fresh = after is None or not is_watched(path)
        self.path = free(path) if self.fresh else path
        with writing(self.path):
            (self.path / EPISODES).mkdir(parents=True, exist_ok=True)
        self._lock = hold(self.path / LOCK, f"process {{owner}} is writing to {self.path}")
        try:
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            if self.fresh:
                about: dict[str, Any] = {"kind": "train", "begun": now, "version": __version__}
                about |= {"parameters": parameters} if parameters else {}
            else:
                about = read_about(self.path)
                self._forget(after or 0)
            about[IMPORTED] = {**entry, "at": about.get("begun", now), "watched": True}
            self._write_about(with_start(about, start_entry(now)))
        except BaseException:
            self.close()
            raise

    def _forget(self, after: int) -> None:
        """What came after the step that the trainer goes on from."""
        truncate_logs(self.path, after, damaged=True)
        for file in episode_files(self.path):
            if file.step > after:
                for path in (file.path, scores_path(self.path, file.step)):
                    path.unlink(missing_ok=True)

    def _write_about(self, about: Mapping[str, Any]) -> None:
        write_atomically(self.path / ABOUT, (json.dumps(with_sum(about)) + "\n").encode())

    def write_tokens(self, words: Sequence[bytes]) -> None:
        """What each token id reads as."""
        write_atomically(self.path / TOKENS, json.dumps([list(word) for word in words]).encode())

    def write_step(self, step: int, episodes: Sequence[Episode], scores: Scores | None) -> None:
        write_episodes(train_path(self.path, step), episodes)
        if scores is not None:
            write_scores(scores_path(self.path, step), scores)

    def mend(self) -> None:
        """Forget lines that were cut off as they were written, on a full disk."""
        for name in (METRICS, TIMINGS, EVENTS):
            mend_end(self.path / name)

    def stopped(self, step: int, name: str, text: str) -> None:
        """Why the trainer ended before its time."""
        event: Record = {"step": step, "kind": "stop", "name": name, "text": text[:2000], "remedy": ""}
        append_record(self.path / EVENTS, event)

    def close(self) -> None:
        self._lock.close()


def is_watched(path: Path) -> bool:
    try:
        entry = read_about(path).get(IMPORTED)
    except RunError:
        return False
    return isinstance(entry, dict) and entry.get("watched") is True  # pyright: ignore[reportUnknownMemberType]


def free(path: Path) -> Path:
    """The path, or the first of those numbered after it that does not exist or is an empty folder."""
    for number in range(1, _MOST + 1):
        place = path if number == 1 else path.with_name(f"{path.name}-{number}")
        if not os.path.lexists(place) or (place.is_dir() and not place.is_symlink() and not any(place.iterdir())):
            return place
    raise RunError(f"{path} and {_MOST - 1} numbered after it are taken; choose another folder, or delete some")
