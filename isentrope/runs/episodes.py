"""The episodes of one step, in one Parquet file: a row per turn, the episode's own fields repeated.

An episode without turns keeps one row, with `turn` = -1. Equal episodes give equal bytes. Any Parquet
reader can open the files, e.g. `pandas.read_parquet`.

Scores, a step's advantages, ratios and loss weights, have a file beside the episodes: a row per response that was
learnt from, `episode` and `turn` as in the episode file, `advantages` as they were learnt from (after all methods),
`ratios` of new to old probability at the first pass over the token (NaN: the token was left out of the update), and
`weights` of the tokens' policy losses in the updates that were made (files of older versions lack them). It is written
after the update, so a step under way has none yet.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow  # pyright: ignore[reportMissingTypeStubs]
import pyarrow.parquet  # pyright: ignore[reportMissingTypeStubs]
from numpy.typing import NDArray

from isentrope.core.errors import RunError
from isentrope.core.limits import LARGEST, Unreadable, open_plain, parse_json
from isentrope.core.types import Episode, Floats, Ints, Scores, Turn
from isentrope.runs.atomic import write_atomically
from isentrope.runs.layout import EPISODES
from isentrope.runs.parquet import Parquet

pa: Any = pyarrow  # it comes without type information
pq: Any = pyarrow.parquet

FORMAT = "1"  # of the schema below; a reader refuses any other
_FORMAT_KEY = b"isentrope.episodes"

_EPISODE: dict[str, Any] = {
    "world": pa.string(), "split": pa.string(), "index": pa.int64(), "kind": pa.string(), "goal": pa.string(),
    "group": pa.int64(), "member": pa.int64(), "order": pa.string(), "success": pa.bool_(), "stop": pa.string(),
    "detail": pa.string(), "score": pa.float64(),
    "rewards": pa.string(),  # JSON; empty: none
}  # fmt: skip
_TURN: dict[str, Any] = {
    "observation": pa.string(), "admissible": pa.list_(pa.string()), "anchor": pa.string(),
    "context_ids": pa.list_(pa.int32()), "continues": pa.bool_(), "response_ids": pa.list_(pa.int32()),
    "logprobs": pa.list_(pa.float32()), "entropies": pa.list_(pa.float32()), "temperatures": pa.list_(pa.float32()),
    "think_span": pa.list_(pa.int32()), "action_span": pa.list_(pa.int32()), "action": pa.string(),
    "verdict": pa.string(), "turn_stop": pa.string(),  # Turn.stop; Episode.stop has the plain name
    "reward": pa.float64(), "dropped": pa.int32(), "mended": pa.string(),
}  # fmt: skip
_SCHEMA: Any = pa.schema(
    [("episode", pa.int64()), ("turn", pa.int64()), *_EPISODE.items(), *_TURN.items()],
    metadata={_FORMAT_KEY: FORMAT.encode()},
)
_SINCE = {
    "dropped": 0,
    "mended": "",
    "score": None,
    "rewards": "",
}  # columns that older files lack, and what they mean by it
_ARRAYS = ("context_ids", "response_ids", "logprobs", "entropies", "temperatures")
_MEASURED = ("logprobs", "entropies")  # no value comes twice: a dictionary would only cost space
_FILE = re.compile(r"(?:(step|dropped)-(\d{1,12})|eval-(\d{1,12})-(.+))\.parquet")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class EpisodeFile:
    path: Path
    step: int
    kind: str  # train, dropped or eval
    split: str | None = None  # of an evaluation

    @property
    def name(self) -> str:
        """The file's name without .parquet."""
        return self.path.stem

    @property
    def source(self) -> str:
        """train, dropped or "eval SPLIT"."""
        return self.kind if self.split is None else f"eval {self.split}"


def episode_files(run: Path) -> list[EpisodeFile]:
    """The episode files of a run folder as they are now, by step and split. Links are followed; only files count."""
    try:
        names = [entry.name for entry in os.scandir(run / EPISODES) if entry.is_file()]
    except OSError:
        return []
    files: list[EpisodeFile] = []
    for name in names:
        if match := _FILE.fullmatch(name):
            kind = "eval" if match[3] else "train" if match[1] == "step" else "dropped"
            files.append(EpisodeFile(run / EPISODES / name, int(match[2] or match[3]), kind, match[4]))
    return sorted(files, key=lambda file: (file.step, file.split or "", file.kind))


def write_episodes(path: Path, episodes: Sequence[Episode]) -> None:
    """Write the file in one piece: it is there in full or not at all."""
    write_atomically(path, pack_episodes(episodes))


def pack_episodes(episodes: Sequence[Episode]) -> bytes:
    """What a file of these episodes has in it."""
    columns: dict[str, list[Any]] = {name: [] for name in _SCHEMA.names}
    for number, episode in enumerate(episodes):
        rows = list(enumerate(episode.turns)) or [(-1, None)]
        for position, turn in rows:
            columns["episode"].append(number)
            columns["turn"].append(position)
            for name in _EPISODE:
                columns[name].append(_storable(getattr(episode, name)))
            for name in _TURN:
                columns[name].append(None if turn is None else _storable(getattr(turn, _attribute(name))))
    arrays = [_column(name, values) for name, values in columns.items()]
    return _parquet(arrays, _SCHEMA, [_leaf(name) for name in _SCHEMA.names if name not in _MEASURED])


def _parquet(arrays: Sequence[Any], schema: Any, with_dictionary: Any = True) -> bytes:
    """A file of these columns. `with_dictionary`: which of them name each value once, or all."""
    sink, table = pa.BufferOutputStream(), pa.Table.from_arrays(arrays, schema=schema)
    options = {"compression": "zstd", "write_statistics": False, "write_page_checksum": True}
    pq.write_table(table, sink, use_dictionary=with_dictionary, **options)
    return sink.getvalue().to_pybytes()


def read_episodes(path: Path, to_learn_from: bool = False) -> list[Episode]:
    """All that a file holds. RunError for one that is damaged, is none of ours, or is larger than a run's can be.
    `to_learn_from`: every token has to have its numbers; to be shown it need not."""
    with _reading(path, f"could not read {path}") as file:
        episodes = _read(file)
        if to_learn_from:
            _check_tokens(episodes)
        return episodes


def unpack_episodes(data: bytes, where: str) -> list[Episode]:
    """From what `pack_episodes` gave; `where` it was found, for an error."""
    with _reading(data, f"could not read {where}") as file:
        return _read(file)


def read_columns(path: Path, names: Sequence[str]) -> Any:
    """The named columns of a file of episodes or scores, those that it has, as an Arrow table."""
    with _reading(path, f"{path.name} could not be read") as file:
        if problem := _other_format(file, FORMAT.encode()):
            raise ValueError(problem)
        some = [name for name in names if name in file.names]
        file.check(some)
        return pa.Table.from_arrays([file.column(name) for name in some], names=some)


@contextmanager
def _reading(source: Path | bytes, failed: str) -> Generator[Parquet]:
    """The open file; whatever is wrong with it is a RunError that begins with `failed`."""
    try:
        with open_plain(source) if isinstance(source, Path) else BytesIO(source) as opened, Parquet(opened) as file:
            yield file
    except (pa.ArrowException, OSError, ValueError, TypeError, IndexError, KeyError) as error:
        todo = "" if isinstance(error, Unreadable) else "; the file is damaged or missing, delete it"
        raise RunError(f"{failed}: {_in_a_line(error)}{todo}") from error


def _other_format(file: Parquet, unknown: bytes) -> str:
    """What is wrong with the format that a file was written in, if anything; `unknown`: that of one that says none."""
    written_as = file.label(_FORMAT_KEY, unknown)
    return "" if written_as == FORMAT else f"its format is {written_as!r:.40}, this version reads {FORMAT!r}"


def _in_a_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _read(file: Parquet) -> list[Episode]:
    if problem := _other_format(file, b"?"):
        raise ValueError(problem)
    known = [field for field in _SCHEMA if field.name not in _SINCE or field.name in file.names]
    if set(file.names) != {field.name for field in known} or any(
        file.schema.field(field.name).type != field.type for field in known
    ):
        raise ValueError("its columns are not those of an episode file")
    file.check(file.names)
    return _episodes(file)


def _attribute(column: str) -> str:
    return "stop" if column == "turn_stop" else column


def _leaf(column: str) -> str:
    """The name Parquet gives to the values of a column: those of a list are its elements."""
    return f"{column}.list.element" if pa.types.is_list(_SCHEMA.field(column).type) else column


def _storable(value: Any) -> Any:
    """Text from a model or a task may hold half a surrogate pair, which no file format can."""
    if isinstance(value, str):
        return _LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, Mapping):
        return json.dumps(value) if value else ""
    if isinstance(value, tuple):
        return [_storable(part) for part in cast("tuple[Any, ...]", value)]
    return value


def _column(name: str, values: list[Any]) -> Any:
    kind = _SCHEMA.field(name).type
    if name not in _ARRAYS:
        return pa.array(values, type=kind)
    # Joined and cut by offsets: building a list column element by element takes a second per million tokens.
    empty = np.empty(0, dtype=kind.value_type.to_pandas_dtype())
    parts = [empty if part is None else np.asarray(part, dtype=empty.dtype) for part in values]
    offsets = np.cumsum([0, *(len(part) for part in parts)], dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.concatenate([empty, *parts])), type=kind)


def _episodes(file: Parquet) -> list[Episode]:
    """Column by column, so that no more than one of them is held twice."""
    plain: dict[str, list[Any]] = {}
    arrays: dict[str, list[Ints | Floats]] = {}
    for name in _SCHEMA.names:
        if name in _ARRAYS:
            arrays[name] = _cut(file.column(name))
        else:
            plain[name] = file.column(name).to_pylist() if name in file.names else [_SINCE[name]] * file.rows
    _check_values(plain, file.rows)
    episodes: list[Episode] = []
    turns: list[Turn] = []
    for row, number in enumerate(plain["episode"]):
        if plain["turn"][row] >= 0:
            turns.append(_turn(plain, arrays, row))
        if row + 1 == file.rows or plain["episode"][row + 1] != number:
            fields: dict[str, Any] = {name: plain[name][row] for name in _EPISODE}
            fields["rewards"] = _rewards(fields["rewards"])
            episodes.append(Episode(turns=tuple(turns), **fields))
            turns = []
    return episodes


def _rewards(text: str) -> dict[str, float]:
    """ValueError for what is no table of numbers."""
    if not text:
        return {}
    table: Any = parse_json(text)
    if not isinstance(table, dict):
        raise ValueError("its column rewards holds something else than tables of numbers")
    numbers = cast("dict[str, Any]", table)
    for value in numbers.values():
        if type(value) not in (int, float) or not -LARGEST <= value <= LARGEST:
            raise ValueError(f"it has a reward that is no number below {LARGEST:g}")
    return {name: float(value) for name, value in numbers.items()}


_MAY_LACK = ("score", "admissible", "think_span", "action_span", "action")


def _check_values(plain: dict[str, list[Any]], rows: int) -> None:
    """Refuse a table that lacks values, or has rewards that cannot be added up."""
    played = [turn is not None and turn >= 0 for turn in plain["turn"]]
    for name, values in plain.items():
        if name not in _MAY_LACK and any(
            value is None and (name not in _TURN or turn) for value, turn in zip(values, played, strict=True)
        ):
            raise ValueError(f"a value of its column {name} is missing")
    numbers = [*plain["score"], *(plain["reward"][row] for row in range(rows) if played[row])]
    if not all(number is None or -LARGEST <= number <= LARGEST for number in numbers):
        raise ValueError(f"it has a reward or a score that is no number below {LARGEST:g}")


def _check_tokens(episodes: Sequence[Episode]) -> None:
    for turn in (turn for episode in episodes for turn in episode.turns):
        if {len(turn.logprobs), len(turn.entropies), len(turn.temperatures)} != {len(turn.response_ids)}:
            raise ValueError("the numbers of a response are not as many as its tokens")
        for span in (turn.think_span, turn.action_span):
            if span is not None and (len(span) != 2 or not 0 <= span[0] <= span[1] <= len(turn.response_ids)):
                raise ValueError("a part of a response lies outside of it")


def _turn(plain: dict[str, list[Any]], arrays: dict[str, list[Ints | Floats]], row: int) -> Turn:
    fields: dict[str, Any] = {}
    for name in _TURN:
        value = arrays[name][row] if name in _ARRAYS else plain[name][row]
        if name in ("admissible", "think_span", "action_span") and value is not None:
            value = tuple(value)
        fields[_attribute(name)] = value
    return Turn(**fields)


def _cut(column: Any) -> list[Ints | Floats]:
    """The rows of a list column as arrays of their own: views would be read-only and hold the whole file."""
    chunks = [(chunk.values.to_numpy(), chunk.offsets.to_numpy()) for chunk in column.chunks]
    return [values[a:b].copy() for values, offsets in chunks for a, b in pairwise(offsets)]


_SCORES_KEY = b"isentrope.scores"
_FLOATS: Any = pa.list_(pa.float32())
_SCORES = [("episode", pa.int64()), ("turn", pa.int64()), ("advantages", _FLOATS), ("ratios", _FLOATS)]
_WEIGHTS = [("weights", _FLOATS)]  # columns that older files lack


def write_scores(path: Path, scores: Scores) -> None:
    """Write the file in one piece: it is there in full or not at all."""
    offsets = np.cumsum([0, *scores.length_U.tolist()], dtype=np.int32)
    arrays = [pa.array(scores.episode_U), pa.array(scores.turn_U)]
    for values_N in (scores.advantage_N, scores.ratio_N, scores.weight_N):
        if values_N is not None:
            values = pa.array(values_N.astype(np.float32))
            arrays.append(pa.ListArray.from_arrays(pa.array(offsets), values, type=_FLOATS))
    write_atomically(path, _parquet(arrays, _scores_schema(scores.weight_N is not None)))


def read_scores(path: Path) -> Scores:
    with _reading(path, f"could not read {path}") as file:
        weighed = "weights" in file.names
        if file.label(_SCORES_KEY) != FORMAT or file.schema != _scores_schema(weighed):
            raise ValueError("its columns are not those of a file of scores, or another version wrote it")
        file.check(file.names)
        advantages = file.column("advantages")
        return Scores(
            episode_U=file.column("episode").to_numpy(),
            turn_U=file.column("turn").to_numpy(),
            length_U=np.array([len(row) for row in advantages], dtype=np.int64),
            advantage_N=_flat(advantages),
            ratio_N=_flat(file.column("ratios")),
            weight_N=_flat(file.column("weights")) if weighed else None,
        )


def check_scores(path: Path, scores: Scores, episodes: list[Episode]) -> None:
    """Refuse scores that do not belong to these episodes."""
    fits = all(
        0 <= e < len(episodes) and 0 <= t < len(episodes[e].turns) and len(episodes[e].turns[t].response_ids) == length
        for e, t, length in scores.responses()
    )
    total = int(scores.length_U.sum())
    columns = [values for values in (scores.advantage_N, scores.ratio_N, scores.weight_N) if values is not None]
    if not fits or any(len(values) != total for values in columns):
        raise RunError(f"{path} does not belong to the episodes beside it: other responses, or of other lengths")


def _scores_schema(weighed: bool) -> Any:
    return pa.schema(_SCORES + (_WEIGHTS if weighed else []), metadata={_SCORES_KEY: FORMAT.encode()})


def _flat(column: Any) -> NDArray[np.float32]:
    parts = [chunk.flatten().to_numpy() for chunk in column.chunks]
    return np.concatenate([np.empty(0, dtype=np.float32), *parts])
