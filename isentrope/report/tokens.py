"""The texts of tokens. The store keeps only ids; the trainer leaves the texts in RUN/tokens.json."""

from __future__ import annotations

import codecs
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

PARTIAL = "▯"  # a token that holds only the beginning of a character


class TokenTexts:
    """From ids to texts; without a table, or for an id outside it, the id itself is shown."""

    def __init__(self, table: Sequence[bytes | None]) -> None:
        self._table = table

    def texts(self, ids: Sequence[int]) -> list[str]:
        """One text per token. A character spread over tokens is shown at the last of them."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        texts: list[str] = []
        for number in ids:
            data = self._table[number] if 0 <= number < len(self._table) else None
            texts.append(f"[{number}]" if data is None else (decoder.decode(data) or PARTIAL))
        return texts


def read_tokens(run: Path) -> TokenTexts:
    """Read the table: a list, by id, of texts or of lists of byte values. A bad table is as good as none."""
    try:
        path = run / "tokens.json"
        table: Any = json.loads(path.read_bytes()) if path.is_file() else None  # a pipe would be waited for
    except (OSError, ValueError, RecursionError):
        return TokenTexts([])
    entries = cast("list[Any]", table) if isinstance(table, list) else []
    return TokenTexts([_bytes(entry) for entry in entries])


def _bytes(entry: Any) -> bytes | None:
    if isinstance(entry, str):
        return entry.encode("utf-8", "replace")
    try:
        return bytes(cast("list[int]", entry)) if isinstance(entry, list) else None
    except (TypeError, ValueError):
        return None
