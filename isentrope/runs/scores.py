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
import pyarrow  # pyright: ignore[reportMissingTypeStubs]
import pyarrow.parquet  # pyright: ignore[reportMissingTypeStubs]
from numpy.typing import NDArray

from isentrope.core.errors import RunError
from isentrope.core.types import Episode, Scores
from isentrope.runs.atomic import write_atomically

pa: Any = pyarrow  # it comes without type information
pq: Any = pyarrow.parquet

FORMAT = "1"
_FORMAT_KEY = b"isentrope.scores"
_COLUMNS: dict[str, Any] = {
    "episode": pa.int64(),
    "turn": pa.int64(),
    "advantages": pa.list_(pa.float32()),
    "ratios": pa.list_(pa.float32()),
    "weights": pa.list_(pa.float32()),
}
_SINCE = ("weights",)  # columns that older files lack


def write_scores(path: Path, scores: Scores) -> None:
    """Write the file in one piece: it is there in full or not at all."""
    offsets = np.cumsum([0, *scores.length_U.tolist()], dtype=np.int32)
    arrays = [pa.array(scores.episode_U), pa.array(scores.turn_U)]
    for values_N in (scores.advantage_N, scores.ratio_N, scores.weight_N):
        if values_N is not None:
            values = pa.array(values_N.astype(np.float32))
            arrays.append(pa.ListArray.from_arrays(pa.array(offsets), values, type=pa.list_(pa.float32())))
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.Table.from_arrays(arrays, schema=_schema(scores.weight_N is not None)),
        sink,
        compression="zstd",
        write_statistics=False,
        write_page_checksum=True,
    )
    write_atomically(path, sink.getvalue().to_pybytes())


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
        reason = " ".join(str(error).split())[:200]
        raise RunError(f"could not read {path}: {reason}; the file is damaged or missing, delete it") from error


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
    columns = [(name, kind) for name, kind in _COLUMNS.items() if weighed or name not in _SINCE]
    return pa.schema(columns, metadata={_FORMAT_KEY: FORMAT.encode()})


def _joined(column: Any) -> NDArray[np.float32]:
    parts = [chunk.flatten().to_numpy() for chunk in column.chunks]
    return np.concatenate([np.empty(0, dtype=np.float32), *parts])
