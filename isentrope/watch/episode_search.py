"""Which episodes fit: file after file, newest first, until a page is full or the time for one answer is over.

A place in the list is named by its file and position, not by a number, so that episodes which arrive meanwhile do not
shift the pages.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow.compute  # pyright: ignore[reportMissingTypeStubs]
from numpy.typing import NDArray

from isentrope.core.errors import RunError
from isentrope.metrics.degeneracy import sentences_of
from isentrope.report.episodes import TokenTexts
from isentrope.watch.episode_files import EpisodeFile, Index, Indexes, read_columns

pc: Any = pyarrow.compute
Mask = NDArray[np.bool_]
Tokens = Callable[[EpisodeFile], TokenTexts]


@dataclass(frozen=True)
class Wanted:
    """What an episode has to be. Empty: anything."""

    kind: str = ""
    outcome: str = ""  # solved, failed
    high: bool = False  # failed with a return above 0 or above the median of its file
    invalid: bool = False  # with a refused turn
    duplicated: bool = False  # with a response that says a sentence more than once
    stop: str = ""
    source: str = ""  # train, eval, dropped, or "eval SPLIT"
    first_step: int = -1
    last_step: int = 1 << 60
    text: str = ""  # in the goal, an action or an observation
    oldest_first: bool = False

    @property
    def by_index(self) -> bool:
        """Whether the index alone can tell."""
        return not (self.text or self.duplicated)


@dataclass
class Found:
    hits: list[tuple[EpisodeFile, Index, int]] = field(default_factory=list[tuple[EpisodeFile, Index, int]])
    matched: int = 0  # hits of the files that were looked through, shown or not
    episodes: int = 0  # in those files
    looked: int = 0  # files looked through, from where the search began
    files: int = 0  # all there are to look through
    next: str = ""  # where to go on; empty: that was all
    broken: list[str] = field(default_factory=list[str])


def search(
    files: Sequence[EpisodeFile],
    wanted: Wanted,
    indexes: Indexes,
    tokens: Tokens,
    place: str = "",
    limit: int = 50,
    seconds: float = 1.0,
) -> Found:
    """The next `limit` episodes from `place` on; with `limit` 0 they are only counted."""
    chosen = in_order(files, wanted)
    start, skip = _begin(chosen, place, wanted.oldest_first)
    found = Found(files=len(chosen))
    deadline = time.monotonic() + seconds
    for position in range(start, len(chosen)):
        file = chosen[position]
        if found.looked and (time.monotonic() > deadline or (limit and len(found.hits) >= limit)):
            found.next = _place(file, 0)
            break
        try:
            index = indexes.of(file)
            hits = np.flatnonzero(matching(file, index, wanted, tokens))
        except RunError as error:
            found.broken.append(str(error))
            hits, index = np.empty(0, np.int64), None
        found.looked += 1
        found.matched += len(hits)
        found.episodes += 0 if index is None else len(index)
        if index is None or not limit:
            continue
        rest = hits[hits >= skip] if position == start else hits
        room = limit - len(found.hits)
        found.hits += [(file, index, int(number)) for number in rest[:room]]
        if len(rest) > room:
            found.next = _place(file, int(rest[room]))
            break
    return found


def in_order(files: Sequence[EpisodeFile], wanted: Wanted) -> list[EpisodeFile]:
    """The files that may hold a hit, by their names alone."""
    some = [
        file
        for file in files
        if wanted.first_step <= file.step <= wanted.last_step
        and (not wanted.source or file.source == wanted.source or file.source.split(" ")[0] == wanted.source)
    ]
    return sorted(some, key=lambda file: _order(file.step, file.run.id, file.name, wanted.oldest_first))


def matching(file: EpisodeFile, index: Index, wanted: Wanted, tokens: Tokens) -> Mask:
    """For each episode of the file, whether it fits. What is dear is asked last, and only if any is left."""
    fits: Mask = np.ones(len(index), dtype=bool)
    if wanted.kind:
        fits &= np.array([kind == wanted.kind for kind in index.kind], dtype=bool)
    if wanted.stop:
        fits &= np.array([stop == wanted.stop for stop in index.stop], dtype=bool)
    if wanted.outcome:
        fits &= index.success == (wanted.outcome == "solved")
    if wanted.high:
        fits &= ~index.success & ((index.ret > 0) | (index.ret > index.median))
    if wanted.invalid:
        fits &= index.invalid > 0
    if wanted.text and fits.any():
        fits &= _with_text(file, index, wanted.text)
    if wanted.duplicated and fits.any():
        fits &= _duplicated(file, index, tokens(file), fits)
    return fits


def repeats_itself(text: str) -> bool:
    """Whether a sentence stands in the text more than once, as `degeneracy/duplication` counts it."""
    sentences = sentences_of(text)
    return len(set(sentences)) < len(sentences)


def _with_text(file: EpisodeFile, index: Index, text: str) -> Mask:
    table = read_columns(file.path, ("goal", "action", "observation"))
    rows: Mask = np.zeros(int(table.num_rows), dtype=bool)
    for name in table.column_names:
        hits = pc.match_substring(table.column(name), pattern=text, ignore_case=True)
        rows = np.logical_or(rows, np.asarray(pc.fill_null(hits, False), dtype=bool))
    return np.logical_or.reduceat(rows, index.first_row) if len(index) else rows[:0]


def _duplicated(file: EpisodeFile, index: Index, tokens: TokenTexts, among: Mask) -> Mask:
    table = read_columns(file.path, ("response_ids", "action_span"))
    result: Mask = np.zeros(len(index), dtype=bool)
    for number in np.flatnonzero(among).tolist():
        turns = table.slice(int(index.first_row[number]), int(index.turns[number])).to_pylist()
        result[number] = any(repeats_itself("".join(tokens.texts(_spoken(turn)))) for turn in turns)
    return result


def _spoken(turn: dict[str, Any]) -> list[int]:
    """The response without its action, which often repeats what the thought said, and should."""
    ids: list[int] = turn["response_ids"] or []
    start, end = turn["action_span"] or (0, 0)
    return ids[:start] + ids[end:]


def _order(step: int, run: str, name: str, oldest_first: bool) -> tuple[int, str, str]:
    return (step if oldest_first else -step, run, name)


def _place(file: EpisodeFile, number: int) -> str:
    return f"{file.step}:{number}:{file.run.id}:{file.name}"


def _begin(files: Sequence[EpisodeFile], place: str, oldest_first: bool) -> tuple[int, int]:
    """Position of the file to begin with, and its first episode that counts."""
    found = re.fullmatch(r"(\d{1,12}):(\d{1,9}):(\w+):(.+)", place)
    if found is None:
        return 0, 0
    key = _order(int(found[1]), found[3], found[4], oldest_first)
    for position, file in enumerate(files):
        here = _order(file.step, file.run.id, file.name, oldest_first)
        if here >= key:
            return position, int(found[2]) if here == key else 0
    return len(files), 0
