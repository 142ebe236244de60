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

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow  # pyright: ignore[reportMissingTypeStubs]
import pyarrow.parquet  # pyright: ignore[reportMissingTypeStubs]
from numpy.typing import NDArray

from isentrope.core.errors import RunError
from isentrope.core.types import Episode, Floats, Ints, Scores, Turn
from isentrope.runs.atomic import write_atomically
from isentrope.runs.layout import EPISODES

pa: Any = pyarrow  # it comes without type information
pq: Any = pyarrow.parquet

FORMAT = "1"  # of the schema below; a reader refuses any other
_FORMAT_KEY = b"isentrope.episodes"

_EPISODE: dict[str, Any] = {
    "world": pa.string(), "split": pa.string(), "index": pa.int64(), "kind": pa.string(), "goal": pa.string(),
    "group": pa.int64(), "member": pa.int64(), "order": pa.string(), "success": pa.bool_(), "stop": pa.string(),
    "detail": pa.string(), "score": pa.float64(),
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
_SINCE = {"dropped": 0, "mended": "", "score": None}  # columns that older files lack, and what they mean by it
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


def read_episodes(path: Path) -> list[Episode]:
    return _read(path, str(path))


def unpack_episodes(data: bytes, where: str) -> list[Episode]:
    """From what `pack_episodes` gave; `where` it was found, for an error."""
    return _read(pa.BufferReader(data), where)


def read_columns(path: Path, names: Sequence[str]) -> Any:
    """The named columns of a file of episodes or scores, those that it has, as an Arrow table."""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            schema = file.schema_arrow
            if problem := _other_format(schema, FORMAT.encode()):
                raise ValueError(problem)
            return file.read(columns=[name for name in names if name in schema.names], use_threads=False)
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise RunError(f"{path.name} could not be read: {_in_a_line(error)}") from error


def _other_format(schema: Any, unknown: bytes) -> str:
    """What is wrong with the format that a file was written in, if anything; `unknown`: that of one that says none."""
    metadata: dict[bytes, bytes] = schema.metadata or {}
    written_as = metadata.get(_FORMAT_KEY, unknown).decode(errors="replace")
    return "" if written_as == FORMAT else f"its format is {written_as!r}, this version reads {FORMAT!r}"


def _in_a_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _damaged(path: object, error: Exception) -> RunError:
    return RunError(f"could not read {path}: {_in_a_line(error)}; the file is damaged or missing, delete it")


def _read(source: Any, path: str) -> list[Episode]:
    try:
        table = pq.read_table(source, page_checksum_verification=True, partitioning=None)
        problem = _other_format(table.schema, b"?")
        if not problem:
            return _episodes(_completed(table))
    except (pa.ArrowException, OSError, ValueError, TypeError, IndexError) as error:
        raise _damaged(path, error) from error
    raise RunError(f"could not read {path}: {problem}")


def _completed(table: Any) -> Any:
    """The table with the columns that its writer did not know yet."""
    for name, value in _SINCE.items():
        if name not in table.column_names:
            column = _SCHEMA.field(name)
            table = table.append_column(column, pa.array([value] * table.num_rows, column.type))
    if set(table.column_names) == set(_SCHEMA.names):
        table = table.select(_SCHEMA.names)
    if not table.schema.equals(_SCHEMA):
        raise ValueError("its columns are not those of an episode file")
    return table


def _attribute(column: str) -> str:
    return "stop" if column == "turn_stop" else column


def _leaf(column: str) -> str:
    """The name Parquet gives to the values of a column: those of a list are its elements."""
    return f"{column}.list.element" if pa.types.is_list(_SCHEMA.field(column).type) else column


def _storable(value: Any) -> Any:
    """Text from a model or a task may hold half a surrogate pair, which no file format can."""
    if isinstance(value, str):
        return _LONE_SURROGATE.sub("\ufffd", value)
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


def _episodes(table: Any) -> list[Episode]:
    plain = {name: table.column(name).to_pylist() for name in _SCHEMA.names if name not in _ARRAYS}
    arrays = {name: _cut(table.column(name)) for name in _ARRAYS}
    episodes: list[Episode] = []
    turns: list[Turn] = []
    for row, number in enumerate(plain["episode"]):
        if plain["turn"][row] >= 0:
            turns.append(_turn(plain, arrays, row))
        if row + 1 == table.num_rows or plain["episode"][row + 1] != number:
            episodes.append(Episode(turns=tuple(turns), **{name: plain[name][row] for name in _EPISODE}))
            turns = []
    return episodes


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
    try:
        table = pq.read_table(path, page_checksum_verification=True, partitioning=None)
        metadata: dict[bytes, bytes] = table.schema.metadata or {}
        weighed = "weights" in table.column_names
        if metadata.get(_SCORES_KEY, b"").decode(errors="replace") != FORMAT or table.schema != _scores_schema(weighed):
            raise ValueError("its columns are not those of a file of scores, or another version wrote it")
        return Scores(
            episode_U=table.column("episode").to_numpy(),
            turn_U=table.column("turn").to_numpy(),
            length_U=np.array([len(row) for row in table.column("advantages")], dtype=np.int64),
            advantage_N=_flat(table.column("advantages")),
            ratio_N=_flat(table.column("ratios")),
            weight_N=_flat(table.column("weights")) if weighed else None,
        )
    except (pa.ArrowException, OSError, ValueError, TypeError) as error:
        raise _damaged(path, error) from error


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
