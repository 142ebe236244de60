"""Tokenizes conversations with a Hugging Face tokenizer, so that text never becomes a control token.

The words of the chat template (template.py) become control tokens and plain text; what is said inside is plain
text always, so nothing that a task says can open or close a message. Plain text of the template and of a message that
stand side by side are encoded together, as they would be if the template were encoded whole. What the policy sampled
is never encoded at all: its tokens stay what they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from isentrope.core.errors import EngineError, writing
from isentrope.core.tokenizer import TAGS
from isentrope.models.chat.template import ChatParts, give_template, read_template, renderer, take_apart
from isentrope.models.sources.cache import library
from isentrope.models.sources.small_files import laid_out, read_small
from isentrope.models.trial import chat_parts, tokenizer_trial

# Byte-level BPE writes each byte as one character: printable ones as themselves, the rest from 256 on.
_PLAIN = [*range(33, 127), *range(161, 173), *range(174, 256)]
ALPHABET = {chr(b): b for b in _PLAIN} | {chr(256 + i): b for i, b in enumerate(sorted({*range(256)} - {*_PLAIN}))}


def token_bytes(word: str, byte_level: bool) -> bytes:
    """The bytes that a token of a Hugging Face vocabulary stands for."""
    if byte_level:
        return bytes(ALPHABET.get(c, 63) for c in word)
    if word.startswith("<0x") and word.endswith(">") and len(word) == 6:
        return bytes([int(word[3:5], 16)])
    return word.replace("\u2581", " ").encode()


def piece_reader(tokenizer: Any) -> Callable[[int], bytes]:
    """The bytes of each token of a Hugging Face tokenizer; control tokens read as they are written."""
    whole = frozenset({*tokenizer.get_added_vocab().values(), *tokenizer.all_special_ids})
    byte_level = "ByteLevel" in repr(tokenizer.backend_tokenizer.decoder)

    def read(number: int) -> bytes:
        word: str = tokenizer.convert_ids_to_tokens(number) or ""  # models often have more rows than tokens
        return word.encode() if number in whole else token_bytes(word, byte_level)

    return cache(read)


MOST_KNOWN = 4096  # texts whose tokens are remembered
Items = list[int | str]  # control tokens, and the plain text between them


class ChatTokens:
    ids_per_token = 1.0

    def __init__(self, tokenizer: Any, stops: Iterable[int] = (), parts: ChatParts | None = None) -> None:
        """`parts` are those of the chat template; without them it is run here, so it has to be one of ours."""
        self.tokenizer, self._backend = tokenizer, tokenizer.backend_tokenizer
        self._backend.no_truncation()
        self._backend.no_padding()
        self._backend.encode_special_tokens = False
        self._known = lru_cache(MOST_KNOWN)(self._encoded)  # much is said again and again
        self._learn_vocabulary()
        parts, control = parts or take_apart(renderer(tokenizer)), partial(self._cut_out, known=self._named)
        self._opening, self._after_system = control(parts.opening), control(parts.after_system)
        self._to_agent, self._lead = control(parts.to_agent), control(parts.lead)
        self._joins_system = parts.joins_system
        closing = re.match(rf"\s*(?:{self._names.pattern})", parts.after_answer)
        self._close = self._join(control(closing.group() if closing else ""))
        rest = parts.after_answer[closing.end() if closing else 0 :]
        self._before_next = control(rest.lstrip() if set(self._close[-1:]) & self._eats_right else rest)
        ends = {tokenizer.eos_token_id, *self._close[-1:], *stops} - {None}
        if not ends:
            raise EngineError("neither the tokenizer nor its chat template has a token that ends an answer")
        self.eos_ids = frozenset(int(i) for i in ends)
        self.pad_id = int(tokenizer.pad_token_id if tokenizer.pad_token_id is not None else min(self.eos_ids))

    def _learn_vocabulary(self) -> None:
        added: dict[str, int] = self.tokenizer.get_added_vocab()
        kinds = {int(i): kind for i, kind in self.tokenizer.added_tokens_decoder.items()}
        # Runs of spaces that some vocabularies add are plain text; so is a single character.
        self._named = {name: i for name, i in added.items() if name.strip() and len(name) > 1}
        self._names = re.compile("|".join(re.escape(n) for n in sorted(self._named, key=len, reverse=True)) or r"(?!)")
        self._reserved = frozenset({*self._named.values(), *self.tokenizer.all_special_ids})
        self._tags = {tag: self._named[tag] for tag in TAGS if tag in self._named}
        # Tokens that swallow the white space beside them, as a template's text is encoded.
        self._eats_left = {i for i, kind in kinds.items() if kind.lstrip}
        self._eats_right = {i for i, kind in kinds.items() if kind.rstrip}
        self._piece = piece_reader(self.tokenizer)
        self._byte_level = "ByteLevel" in repr(self.tokenizer.backend_tokenizer.decoder)
        vocabulary: dict[str, int] = self.tokenizer.get_vocab() if self._byte_level else {}
        self._missing = frozenset(b for c, b in ALPHABET.items() if vocabulary and c not in vocabulary)
        self._anchor = self._find_anchor()

    def _find_anchor(self) -> str:
        """A control token to encode text behind, where that makes a difference: some tokenizers put a space in front
        of text that begins a conversation, but not of text that follows a control token."""
        for name, number in self._named.items():
            if number in self._eats_right:
                continue
            behind, alone = self._raw(name + "a"), self._raw("a")
            return name if behind != [number, *alone] and behind[:1] == [number] else ""
        return ""

    @classmethod
    def load(cls, folder: Path, template: str = "") -> ChatTokens:
        """`template` is a file with a chat template, or "plain", or empty for the folder's own. Tokenizer and template
        are tried first, in a process of their own; here the template is not run."""
        files, text = read_small(folder), read_template(template)
        parts = chat_parts(folder, tokenizer_trial(files, text))
        with laid_out(files) as place:
            tokenizer = fast_tokenizer(place)
            stops = stops_of(place, len(tokenizer))
        tokenizer.name_or_path = str(folder)
        give_template(tokenizer, text)
        return cls(tokenizer, stops, parts)

    @property
    def size(self) -> int:
        return len(self.tokenizer)

    def content(self, text: str) -> list[int]:
        return list(self._known(text))

    def _encoded(self, text: str) -> list[int]:
        clean = text.encode("utf-8", "replace").decode()
        if not self._missing.isdisjoint(clean.encode()):
            clean = "".join(c if self._missing.isdisjoint(c.encode()) else "\ufffd" for c in clean)
        # A control token's name is cut after its first character, so that it is not found.
        cuts = [0, *(match.start() + 1 for match in self._names.finditer(clean)), len(clean)]
        ids = [i for a, b in pairwise(cuts) if a < b for i in self._plain(clean[a:b])]
        if self._reserved.isdisjoint(ids):
            return ids
        # Names that overlap, or that only come about as the tokenizer normalises the text: no two characters together.
        return [i for c in clean for i in self._plain(c) if i not in self._reserved]

    def _plain(self, text: str) -> list[int]:
        return self._raw(self._anchor + text)[1:] if self._anchor else self._raw(text)

    def _raw(self, text: str) -> list[int]:
        # not through the tokenizer's own call, which takes several times as long to come to the same
        try:
            return list(self._backend.encode(text, add_special_tokens=False).ids)
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # what Rust code ends in is no Exception
                raise
            raise EngineError(
                f"the tokenizer gave up on a text of {len(text):,} characters that begins with {text[:40]!r} "
                f"({str(error)[:120]}); take the tokenizer from the model's first maker"
            ) from None

    def _cut_out(self, text: str, known: dict[str, int]) -> Items:
        """The tokens of these names, and what is plain between them."""
        names = "|".join(re.escape(name) for name in sorted(known, key=len, reverse=True)) or r"(?!)"
        return [known.get(part, part) for part in re.split(f"({names})", text) if part]

    def _join(self, items: Items) -> list[int]:
        ids: list[int] = []
        plain = ""
        for item in [*items, -1]:
            if isinstance(item, str):
                plain += item
                continue
            plain = plain.lstrip() if set(ids[-1:]) & self._eats_right else plain
            ids += self.content(plain.rstrip() if item in self._eats_left else plain)
            ids += [item] if item >= 0 else []
            plain = ""
        return ids

    def opening(self, system: str, message: str) -> list[int]:
        # Many templates take white space off both ends of a message, so it is taken off for all.
        told = self._cut_out(system.strip(), self._tags)
        between = [] if self._joins_system and not told else self._after_system
        return self._join([*self._opening, *told, *between, message.strip(), *self._to_agent])

    def user(self, text: str) -> list[int]:
        return self._join([*self._before_next, text.strip(), *self._to_agent])

    def end_of_answer(self) -> list[int]:
        return list(self._close)

    def answer(self, text: str) -> list[int]:
        return self._join([*self._lead, *self._cut_out(text, self._tags)])

    def pieces(self, ids: Sequence[int]) -> list[bytes]:
        return [self._piece(int(i)) for i in ids]

    def save(self, folder: Path) -> None:
        with writing(folder):
            self.tokenizer.save_pretrained(folder)


def fast_tokenizer(folder: Path) -> Any:
    kind = library("transformers", "Hugging Face tokenizers").AutoTokenizer
    try:
        tokenizer: Any = kind.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # what the files say may end anywhere in the readers
        told = " ".join(str(error).split())[:300].replace(str(folder), "the folder")
        raise EngineError(f"cannot load a tokenizer ({type(error).__name__}: {told}); copy its files again") from error
    if not getattr(tokenizer, "is_fast", False):
        raise EngineError("only fast tokenizers (tokenizer.json) keep control tokens apart from text")
    return tokenizer


def stops_of(folder: Path, size: int) -> list[int]:
    """The tokens that the model's folder says it ends an answer with."""
    try:
        found: Any = json.loads((folder / "generation_config.json").read_text())["eos_token_id"]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    numbers = cast("list[Any]", found if isinstance(found, list) else [found])
    return [i for i in numbers if isinstance(i, int) and 0 <= i < size]
