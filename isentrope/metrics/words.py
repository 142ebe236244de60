"""What tokens read as: the bytes of each, by id. A run leaves the table in RUN/tokens.json."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from isentrope.core.errors import RunError

TOKENS = "tokens.json"


class Words:
    """From token ids to text. An id that is not in the table reads as nothing."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = list(pieces)

    def text(self, ids: Sequence[int]) -> str:
        pieces, size = self._pieces, len(self._pieces)
        return b"".join([pieces[i] for i in ids if 0 <= i < size]).decode("utf-8", "replace")


def read_words(run: Path) -> Words:
    """The table of a run folder."""
    path = run / TOKENS
    try:
        table: Any = json.loads(path.read_bytes())
        pieces = [_bytes(piece) for piece in cast("list[Any]", table)]
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise RunError(f"could not read {path}: {error}; without it nobody can say what the tokens read as") from error
    return Words(pieces)


def _bytes(piece: Any) -> bytes:
    """Byte values; older runs wrote texts."""
    return piece.encode("utf-8", "replace") if isinstance(piece, str) else bytes(cast("list[int]", piece))
