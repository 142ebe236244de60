"""The pocket tokenizer: whole words and set phrases of the household world, and bytes for everything else.

Text is cut into words, numbers and single characters; the longest known phrase wins; what is not known is
spelled in bytes, so every string can be written and read back exactly. Control tokens and tags have ids that no
text can reach.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from isentrope.core.errors import EngineError
from isentrope.core.limits import TOKENS_BYTES, read_json
from isentrope.core.tokenizer import TAGS

CONTROLS = ("<|pad|>", "<|start|>", "<|user|>", "<|agent|>", "<|end|>")
MOST_KNOWN = 4096  # texts whose tokens are remembered
_CUT = re.compile(r" ?[A-Za-z]+| ?[0-9]+|.", re.DOTALL)
_TAG = re.compile("(" + "|".join(TAGS) + ")")


class PocketTokens:
    """ids: controls, tags, 256 bytes, then the phrases in the order of the list."""

    ids_per_token = 1.0

    def __init__(self, phrases: Sequence[str]) -> None:
        self.phrases = tuple(phrases)
        self._known = lru_cache(MOST_KNOWN)(self._encoded)  # much is said again and again
        specials = [*CONTROLS, *TAGS]
        self._bytes_at = len(specials)
        self._table: list[bytes] = [s.encode() for s in specials] + [bytes([b]) for b in range(256)]
        self._table += [p.encode() for p in self.phrases]
        self._tag_id = {tag: len(CONTROLS) + i for i, tag in enumerate(TAGS)}
        self._by_first: dict[str, list[tuple[tuple[str, ...], int]]] = {}
        for number, phrase in enumerate(self.phrases, self._bytes_at + 256):
            words = tuple(_CUT.findall(phrase))
            self._by_first.setdefault(words[0], []).append((words, number))
        for known in self._by_first.values():
            known.sort(key=lambda item: -len(item[0]))
        self.pad_id, self._start, self._user, self._agent, self._end = range(5)
        self.eos_ids = frozenset({self._end})

    @property
    def size(self) -> int:
        return len(self._table)

    def content(self, text: str) -> list[int]:
        return list(self._known(text))

    def _encoded(self, text: str) -> list[int]:
        words = _CUT.findall(text.encode("utf-8", "replace").decode())
        ids: list[int] = []
        i = 0
        while i < len(words):
            for phrase, number in self._by_first.get(words[i], ()):
                if len(phrase) == 1 or tuple(words[i : i + len(phrase)]) == phrase:
                    ids.append(number)
                    i += len(phrase)
                    break
            else:
                ids += [self._bytes_at + b for b in words[i].encode()]
                i += 1
        return ids

    def opening(self, system: str, message: str) -> list[int]:
        return [self._start, *self.content(system), *self.user(message)]

    def user(self, text: str) -> list[int]:
        return [self._user, *self.content(text), self._agent]

    def end_of_answer(self) -> list[int]:
        return []  # the next <|user|> already says that the answer is over

    def answer(self, text: str) -> list[int]:
        ids: list[int] = []
        for part in _TAG.split(text):
            ids += [self._tag_id[part]] if part in self._tag_id else self.content(part)
        return ids

    def pieces(self, ids: Sequence[int]) -> list[bytes]:
        return [self._table[i] for i in ids]

    def save(self, folder: Path) -> None:
        (folder / "pocket_tokens.json").write_text(json.dumps({"phrases": self.phrases}, ensure_ascii=False, indent=0))

    @classmethod
    def load(cls, folder: Path) -> PocketTokens:
        path = folder / "pocket_tokens.json"
        try:
            return cls(read_json(path, TOKENS_BYTES, found=False)["phrases"])
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise EngineError(f"cannot read the tokenizer {path}: {error}") from error
