"""Searches episodes for the live page and shows one of them turn by turn.

A search goes through the files, newest first, until a page is full or the time for one answer is over. A place in the
list is named by its file and position, not by a number, so that episodes which arrive meanwhile do not shift the pages.
What a model or a task wrote goes out as text with nothing hidden.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute  # pyright: ignore[reportMissingTypeStubs]
from numpy.typing import NDArray

from isentrope.charts.text import clipped, visible
from isentrope.core.errors import RunError
from isentrope.core.limits import LARGEST, TOKENS_BYTES, check_is_file, read_bounded
from isentrope.metrics.degeneracy import sentences_of
from isentrope.runs.episodes import read_columns
from isentrope.runs.layout import TOKENS, scores_path
from isentrope.runs.token_texts import TokenTexts, shown_token_texts
from isentrope.watch.runs import EpisodeFile, Index, Indexes

pa: Any = pyarrow
pc: Any = pyarrow.compute
Mask = NDArray[np.bool_]
TextsOf = Callable[[EpisodeFile], TokenTexts]


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
    files: Sequence[EpisodeFile], wanted: Wanted, indexes: Indexes, tokens: TextsOf, place: str = "", limit: int = 50,
    seconds: float = 1.0,
) -> Found:  # fmt: skip
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
        found.looked += 1
        try:
            index = indexes.of(file)
            with _sensible(file):
                hits = np.flatnonzero(matching(file, index, wanted, tokens))
        except RunError as error:
            found.broken.append(str(error))
            continue
        found.matched += len(hits)
        found.episodes += len(index)
        if not limit:
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


def matching(file: EpisodeFile, index: Index, wanted: Wanted, tokens: TextsOf) -> Mask:
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


_SHOWN = (
    "turn", "observation", "response_ids", "logprobs", "entropies", "temperatures", "think_span", "action_span",
    "action", "verdict", "turn_stop", "reward", "dropped", "order", "detail", "world", "split",
)  # fmt: skip
_SCORES = ("episode", "turn", "advantages", "ratios")
_MOST_TOKENS = 4000  # of one response
_MOST_TEXT = 20_000  # characters of an observation
MOST_TURNS = 60  # of one answer
_TABLES = 4  # token tables kept


class Tokens:
    """Token tables by run. Runs of one model have equal tables, which are kept once."""

    def __init__(self) -> None:
        self._tables: OrderedDict[str, TokenTexts] = OrderedDict()
        self._digests: dict[Path, tuple[tuple[int, int], str]] = {}
        self._lock = threading.Lock()

    def of(self, run: Path) -> TokenTexts:
        with self._lock:
            digest = self._digest(run / TOKENS)
            if digest not in self._tables:
                self._tables[digest] = shown_token_texts(run)
            self._tables.move_to_end(digest)
            while len(self._tables) > _TABLES:
                self._tables.popitem(last=False)
            return self._tables[digest]

    def _digest(self, path: Path) -> str:
        try:
            status = check_is_file(path)
            seen = (status.st_mtime_ns, status.st_size)
            known = self._digests.get(path)
            if known is None or known[0] != seen:
                known = self._digests[path] = (seen, hashlib.sha256(read_bounded(path, TOKENS_BYTES)).hexdigest())
            return known[1]
        except OSError:
            return ""


def row_of(file: EpisodeFile, index: Index, number: int) -> dict[str, Any]:
    """An episode as a line of the list."""
    return {
        "run": file.run.id, "file": file.name, "number": number, "step": file.step, "source": visible(file.source),
        "kind": visible(index.kind[number]), "goal": visible(clipped(index.goal[number], 300)),
        "game": int(index.game[number]), "group": int(index.group[number]), "member": int(index.member[number]),
        "success": bool(index.success[number]), "return": _rounded(float(index.ret[number])),
        "turns": int(index.turns[number]), "stop": visible(index.stop[number]),
        "verdicts": {visible(reason): count for reason, count in index.verdicts[number].items()},
    }  # fmt: skip


@contextmanager
def _sensible(file: EpisodeFile) -> Generator[None]:
    """Columns of the right names may hold anything; what makes no sense is a RunError that names the file."""
    try:
        yield
    except (TypeError, ValueError, LookupError, ArithmeticError, pa.ArrowException) as error:
        raise RunError(f"{file.path.name} holds values that make no sense: {error!s:.200}") from error


def view(file: EpisodeFile, number: int, indexes: Indexes, tokens: Tokens, first: int = 0) -> dict[str, Any]:
    """An episode with its turns from `first` on, at most MOST_TURNS of them."""
    with _sensible(file):
        return _view(file, number, indexes, tokens, first)


def _view(file: EpisodeFile, number: int, indexes: Indexes, tokens: Tokens, first: int) -> dict[str, Any]:
    index = indexes.of(file)
    if not 0 <= number < len(index):
        raise RunError(f"{file.path.name} has {len(index)} episodes; there is no number {number}")
    start, turns = int(index.first_row[number]), int(index.turns[number])
    count = max(0, min(turns - first, MOST_TURNS))
    rows: list[dict[str, Any]] = read_columns(file.path, _SHOWN).slice(start + first, max(count, 1)).to_pylist()
    scores = _scores_of(file, number) if count else {}
    texts = tokens.of(file.run.path)
    head = rows[0] if rows else {}
    group = np.flatnonzero(index.group == index.group[number])
    return row_of(file, index, number) | {
        "goal": visible(clipped(index.goal[number], _MOST_TEXT)),
        "detail": visible(clipped(str(head.get("detail") or ""), 2000)),
        "order": visible(str(head.get("order", ""))), "world": visible(str(head.get("world", ""))),
        "turn_list": [_turn(row, texts, scores.get(row["turn"], {})) for row in rows[:count]],
        "first": first, "more": max(0, turns - first - count),
        "members": [row_of(file, index, other) for other in group[:256].tolist()],  # this one is among them
    }  # fmt: skip


def actions_of(file: EpisodeFile, number: int, indexes: Indexes) -> list[str | None]:
    index = indexes.of(file)
    column = read_columns(file.path, ("action",)).column("action")
    return column.slice(int(index.first_row[number]), int(index.turns[number])).to_pylist()


def first_difference(a: Sequence[str | None], b: Sequence[str | None]) -> int | None:
    """The first turn, from 0, in which two episodes did not do the same; None if there is none."""
    over = object()  # one of them has ended
    pairs = zip_longest(a, b, fillvalue=over)
    return next((turn for turn, (one, other) in enumerate(pairs) if one != other), None)


def _turn(row: dict[str, Any], texts: TokenTexts, scores: dict[str, Any]) -> dict[str, Any]:
    ids: list[int] = row["response_ids"] or []
    words = [visible(text) for text in texts.texts(ids[:_MOST_TOKENS])]
    size = len(words)
    return {
        "turn": row["turn"], "observation": visible(clipped(row["observation"] or "", _MOST_TEXT)),
        "tokens": words, "more_tokens": len(ids) - size,
        "entropy": _numbers(row["entropies"], size), "temperature": _numbers(row["temperatures"], size),
        "surprisal": _numbers([-value for value in row["logprobs"] or ()], size),
        "advantage": _numbers(scores.get("advantages"), size), "ratio": _numbers(scores.get("ratios"), size),
        "think": row["think_span"], "act": row["action_span"],
        "action": None if row["action"] is None else visible(clipped(row["action"], 2000)),
        "verdict": visible(str(row["verdict"])), "stop": visible(str(row["turn_stop"])),
        "reward": _rounded(row["reward"] or 0.0), "dropped": row.get("dropped") or 0,
    }  # fmt: skip


def _scores_of(file: EpisodeFile, number: int) -> dict[int, dict[str, Any]]:
    """Advantages and ratios by turn; they are written after the update, so they may not be there."""
    path = scores_path(file.run.path, file.step)
    if file.source != "train" or not path.exists():
        return {}
    try:
        table = read_columns(path, _SCORES)
        rows: list[dict[str, Any]] = table.filter(pc.equal(table.column("episode"), number)).to_pylist()
        return {row["turn"]: row for row in rows}
    except (RunError, KeyError):
        return {}


def _numbers(values: Sequence[float] | None, size: int) -> list[float | None] | None:
    """One number a token, or None if the lengths do not agree."""
    if values is None or len(values) < size:
        return None
    return [_rounded(value) for value in values[:size]]


def _rounded(value: float) -> float | None:
    return float(f"{value:.4g}") if -LARGEST <= value <= LARGEST else None
