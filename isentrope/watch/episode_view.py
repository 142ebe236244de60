"""One episode, turn by turn, ready to be shown. What a model or a task wrote goes out as text with nothing hidden."""

from __future__ import annotations

import hashlib
import math
import threading
from collections import OrderedDict
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from isentrope.charts.text import clipped, visible
from isentrope.core.errors import RunError
from isentrope.runs.episodes import read_columns
from isentrope.runs.layout import TOKENS, scores_path
from isentrope.runs.log import check_is_file
from isentrope.runs.token_texts import TokenTexts, shown_token_texts
from isentrope.watch.episode_files import EpisodeFile, Index, Indexes

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
            check_is_file(path)
            status = path.stat()
            seen = (status.st_mtime_ns, status.st_size)
            known = self._digests.get(path)
            if known is None or known[0] != seen:
                known = self._digests[path] = (seen, hashlib.sha256(path.read_bytes()).hexdigest())
            return known[1]
        except OSError:
            return ""


def row_of(file: EpisodeFile, index: Index, number: int) -> dict[str, Any]:
    """An episode as a line of the list."""
    return {
        "run": file.run.id,
        "file": file.name,
        "number": number,
        "step": file.step,
        "source": visible(file.source),
        "kind": visible(index.kind[number]),
        "goal": visible(clipped(index.goal[number], 300)),
        "game": int(index.game[number]),
        "group": int(index.group[number]),
        "member": int(index.member[number]),
        "success": bool(index.success[number]),
        "return": _rounded(float(index.ret[number])),
        "turns": int(index.turns[number]),
        "stop": visible(index.stop[number]),
        "verdicts": {visible(reason): count for reason, count in index.verdicts[number].items()},
    }


def members_of(file: EpisodeFile, index: Index, number: int) -> list[dict[str, Any]]:
    """The episodes of the same group, this one among them."""
    same = [other for other in range(len(index)) if index.group[other] == index.group[number]]
    return [row_of(file, index, other) for other in same[:256]]


def view(file: EpisodeFile, number: int, indexes: Indexes, tokens: Tokens, first: int = 0) -> dict[str, Any]:
    """An episode with its turns from `first` on, at most MOST_TURNS of them."""
    index = indexes.of(file)
    if not 0 <= number < len(index):
        raise RunError(f"{file.path.name} has {len(index)} episodes; there is no number {number}")
    start, turns = int(index.first_row[number]), int(index.turns[number])
    count = max(0, min(turns - first, MOST_TURNS))
    rows: list[dict[str, Any]] = read_columns(file.path, _SHOWN).slice(start + first, max(count, 1)).to_pylist()
    scores = _scores_of(file, number) if count else {}
    texts = tokens.of(file.run.path)
    head = rows[0] if rows else {}
    return row_of(file, index, number) | {
        "goal": visible(clipped(index.goal[number], _MOST_TEXT)),
        "order": visible(str(head.get("order", ""))),
        "detail": visible(clipped(str(head.get("detail") or ""), 2000)),
        "world": visible(str(head.get("world", ""))),
        "turn_list": [_turn(row, texts, scores.get(row["turn"], {})) for row in rows[:count]],
        "first": first,
        "more": max(0, turns - first - count),
        "members": members_of(file, index, number),
    }


def actions_of(file: EpisodeFile, number: int, indexes: Indexes) -> list[str | None]:
    index = indexes.of(file)
    column = read_columns(file.path, ("action",)).column("action")
    actions: list[str | None] = column.slice(int(index.first_row[number]), int(index.turns[number])).to_pylist()
    return actions


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
        "turn": row["turn"],
        "observation": visible(clipped(row["observation"] or "", _MOST_TEXT)),
        "tokens": words,
        "entropy": _numbers(row["entropies"], size),
        "surprisal": _numbers([-value for value in row["logprobs"] or ()], size),
        "temperature": _numbers(row["temperatures"], size),
        "advantage": _numbers(scores.get("advantages"), size),
        "ratio": _numbers(scores.get("ratios"), size),
        "more_tokens": len(ids) - size,
        "think": row["think_span"],
        "act": row["action_span"],
        "action": None if row["action"] is None else visible(clipped(row["action"], 2000)),
        "verdict": visible(str(row["verdict"])),
        "stop": visible(str(row["turn_stop"])),
        "reward": _rounded(row["reward"] or 0.0),
        "dropped": row.get("dropped") or 0,
    }


def _scores_of(file: EpisodeFile, number: int) -> dict[int, dict[str, Any]]:
    """Advantages and ratios by turn; they are written after the update, so they may not be there."""
    path = scores_path(file.run.path, file.step)
    if file.source != "train" or not path.exists():
        return {}
    try:
        table = read_columns(path, _SCORES)
        rows: list[dict[str, Any]] = table.filter(_equals(table.column("episode"), number)).to_pylist()
        return {row["turn"]: row for row in rows}
    except (RunError, KeyError):
        return {}


def _equals(column: Any, number: int) -> Any:
    import pyarrow.compute  # pyright: ignore[reportMissingTypeStubs]

    compute: Any = pyarrow.compute
    return compute.equal(column, number)


def _numbers(values: Sequence[float] | None, size: int) -> list[float | None] | None:
    """One number a token, or None if the lengths do not agree."""
    if values is None or len(values) < size:
        return None
    return [_rounded(value) for value in values[:size]]


def _rounded(value: float) -> float | None:
    return float(f"{value:.4g}") if math.isfinite(value) else None
