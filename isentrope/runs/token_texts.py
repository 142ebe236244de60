"""The text of tokens: the bytes of each, by id. Episodes keep only ids; tokens.json of a run has the table."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from isentrope.core.errors import RunError
from isentrope.core.limits import TOKENS_BYTES, read_json
from isentrope.runs.layout import TOKENS

PARTIAL = "▯"  # a token that holds only the beginning of a character


class TokenTexts:
    def __init__(self, table: Sequence[bytes | None]) -> None:
        self._table = list(table)

    def text(self, ids: Sequence[int]) -> str:
        """The text of all tokens together. An id that is not in the table reads as nothing."""
        table, size = self._table, len(self._table)
        return b"".join([table[i] or b"" for i in ids if 0 <= i < size]).decode("utf-8", "replace")

    def texts(self, ids: Sequence[int]) -> list[str]:
        """One text per token, to be shown. A character spread over tokens is shown at the last of them; an id that is
        not in the table is shown itself."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        texts: list[str] = []
        for number in ids:
            data = self._table[number] if 0 <= number < len(self._table) else None
            texts.append(f"[{number}]" if data is None else (decoder.decode(data) or PARTIAL))
        return texts


def read_token_texts(run: Path) -> TokenTexts:
    """The table of a run folder, which must be whole."""
    path = run / TOKENS
    try:
        return TokenTexts([_bytes(entry) for entry in cast("list[Any]", _read(path))])
    except (OSError, ValueError, TypeError) as error:
        raise RunError(f"could not read {path}: {error}; without it nobody can say what the tokens read as") from error


def shown_token_texts(run: Path) -> TokenTexts:
    """The table of a run folder, as far as it can be read: a bad table is as good as none."""
    try:
        table = _read(run / TOKENS)
    except (OSError, ValueError):
        return TokenTexts([])
    return TokenTexts([_bytes_or_none(entry) for entry in cast("list[Any]", table)] if isinstance(table, list) else [])


def _read(path: Path) -> Any:
    return read_json(path, TOKENS_BYTES)


def _bytes(entry: Any) -> bytes:
    """Byte values; older runs wrote texts."""
    return entry.encode("utf-8", "replace") if isinstance(entry, str) else bytes(cast("list[int]", entry))


def _bytes_or_none(entry: Any) -> bytes | None:
    try:
        return _bytes(entry) if isinstance(entry, str | list) else None
    except (TypeError, ValueError):
        return None
