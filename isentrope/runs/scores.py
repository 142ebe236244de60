"""Advantages, ratios and loss weights of a step's tokens, in a Parquet file beside the episodes.

A row per response that was learnt from: `episode` and `turn` as in the episode file, `advantages` as they were learnt
from (after all methods), `ratios` of new to old probability at the first pass over the token (NaN: the token was left
out of the update), and `weights` of the tokens' policy losses in the updates that were made (files of older versions
lack them). Written after the update, so a step under way has none yet.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isentrope.core.errors import RunError
from isentrope.core.types import Episode, Scores
from isentrope.runs.atomic import write_atomically
from isentrope.runs.episodes import damaged, pa, parquet, pq

FORMAT = "1"
_FORMAT_KEY = b"isentrope.scores"
_FLOATS: Any = pa.list_(pa.float32())
_COLUMNS = [("episode", pa.int64()), ("turn", pa.int64()), ("advantages", _FLOATS), ("ratios", _FLOATS)]
_SINCE = [("weights", _FLOATS)]  # columns that older files lack


def write_scores(path: Path, scores: Scores) -> None:
    """Write the file in one piece: it is there in full or not at all."""
    offsets = np.cumsum([0, *scores.length_U.tolist()], dtype=np.int32)
    arrays = [pa.array(scores.episode_U), pa.array(scores.turn_U)]
    for values_N in (scores.advantage_N, scores.ratio_N, scores.weight_N):
        if values_N is not None:
            values = pa.array(values_N.astype(np.float32))
            arrays.append(pa.ListArray.from_arrays(pa.array(offsets), values, type=_FLOATS))
    write_atomically(path, parquet(arrays, _schema(scores.weight_N is not None)))


def read_scores(path: Path) -> Scores:
    try:
        table = pq.read_table(path, page_checksum_verification=True, partitioning=None)
        metadata: dict[bytes, bytes] = table.schema.metadata or {}
        weighed = "weights" in table.column_names
        if metadata.get(_FORMAT_KEY, b"").decode(errors="replace") != FORMAT or table.schema != _schema(weighed):
            raise ValueError("its columns are not those of a file of scores, or another version wrote it")
        return Scores(
            episode_U=table.column("episode").to_numpy(),
            turn_U=table.column("turn").to_numpy(),
            length_U=np.array([len(row) for row in table.column("advantages")], dtype=np.int64),
            advantage_N=_joined(table.column("advantages")),
            ratio_N=_joined(table.column("ratios")),
            weight_N=_joined(table.column("weights")) if weighed else None,
        )
    except (pa.ArrowException, OSError, ValueError, TypeError) as error:
        raise damaged(path, error) from error


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


def _schema(weighed: bool) -> Any:
    return pa.schema(_COLUMNS + (_SINCE if weighed else []), metadata={_FORMAT_KEY: FORMAT.encode()})


def _joined(column: Any) -> NDArray[np.float32]:
    parts = [chunk.flatten().to_numpy() for chunk in column.chunks]
    return np.concatenate([np.empty(0, dtype=np.float32), *parts])
