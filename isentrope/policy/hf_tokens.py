"""The chat template of a Hugging Face tokenizer, taken apart into exact tokens.

The template is rendered once with marks in place of the messages and cut at the marks. What stands between them is
the model's own control text and is encoded with special tokens; what is said inside is encoded without them, so no
text can become a control token. Nothing is ever encoded twice.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from isentrope.errors import EngineError, writing

_MARKS = ("@@first@@", "@@second@@", "@@third@@", "@@fourth@@")


class ChatTokens:
    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        eos = tokenizer.eos_token_id
        if eos is None:
            raise EngineError("the tokenizer has no end-of-sequence token")
        self.pad_id = int(tokenizer.pad_token_id if tokenizer.pad_token_id is not None else eos)
        before_system, before_user, before_agent, after_agent = _cut_template(tokenizer)
        self._before_system = self._control(before_system)
        self._before_user = self._control(before_user)
        self._before_agent = self._control(before_agent)
        self._after_agent = self._control(after_agent)
        ends = [*self._after_agent, *self._before_user][:1]  # what the template puts right after an answer
        self.eos_ids = frozenset({int(eos), *(i for i in ends if i in tokenizer.all_special_ids)})
        self._bytes: dict[int, bytes] = {}
        added: dict[str, int] = tokenizer.get_added_vocab()
        self._whole = frozenset({*added.values(), *tokenizer.all_special_ids})  # tokens that read as they are written
        self._byte_level = "ByteLevel" in repr(tokenizer.backend_tokenizer.decoder)
        # Tokens that were added but are not "special" would be found in any text: it is cut inside of them.
        self._added = re.compile("|".join(re.escape(word) for word in sorted(added, key=len, reverse=True)) or r"(?!)")

    @classmethod
    def load(cls, folder: Path) -> ChatTokens:
        try:
            from transformers import AutoTokenizer
        except ImportError as error:
            raise EngineError("Hugging Face tokenizers need transformers: pip install 'isentrope[hf]'") from error
        try:
            tokenizer: Any = cast("Any", AutoTokenizer).from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
        except (OSError, ValueError, KeyError) as error:
            raise EngineError(f"cannot load a tokenizer from {folder}: {error}") from error
        if not getattr(tokenizer, "is_fast", False):
            raise EngineError(f"{folder}: only fast tokenizers (tokenizer.json) keep control tokens apart from text")
        return cls(tokenizer)

    @property
    def size(self) -> int:
        return len(self.tokenizer)

    def content(self, text: str) -> list[int]:
        clean = text.encode("utf-8", "replace").decode()
        cuts = [0, *(match.start() + 1 for match in self._added.finditer(clean)), len(clean)]
        parts = [clean[a:b] for a, b in pairwise(cuts)]
        encoded = (self.tokenizer(part, add_special_tokens=False, split_special_tokens=True) for part in parts if part)
        return [int(i) for part in encoded for i in part["input_ids"]]

    def _control(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"]) if text else []

    def system(self, text: str) -> list[int]:
        return [*self._before_system, *self.content(text)]

    def user(self, text: str) -> list[int]:
        return [*self._before_user, *self.content(text), *self._before_agent]

    def end_of_answer(self) -> list[int]:
        return list(self._after_agent)

    def answer(self, text: str) -> list[int]:
        return self.content(text)

    def pieces(self, ids: Sequence[int]) -> list[bytes]:
        return [self._piece(int(i)) for i in ids]

    def _piece(self, number: int) -> bytes:
        if number not in self._bytes:
            word: str | None = self.tokenizer.convert_ids_to_tokens(number)
            if word is None:  # models often have more rows than the tokenizer has tokens
                self._bytes[number] = b""
            else:
                self._bytes[number] = word.encode() if number in self._whole else _token_bytes(word, self._byte_level)
        return self._bytes[number]

    def save(self, folder: Path) -> None:
        with writing(folder):
            self.tokenizer.save_pretrained(folder)


def _cut_template(tokenizer: Any) -> tuple[str, str, str, str]:
    """(before the system text, before a user's, before the agent's, after the agent's up to the next user's)."""
    if not getattr(tokenizer, "chat_template", None):
        return "", "\n\nUser: ", "\n\nAgent: ", ""
    system, first, answer, second = _MARKS
    roles = [("system", system), ("user", first), ("assistant", answer), ("user", second)]
    try:
        text = str(tokenizer.apply_chat_template([{"role": r, "content": c} for r, c in roles], tokenize=False))
        cuts = [text.index(mark) for mark in _MARKS]
    except Exception as error:  # a template is a program of its own and may raise anything
        raise EngineError(f"the chat template does not take system, user and assistant messages: {error}") from error
    between = [text[a + len(m) : b] for a, m, b in zip(cuts, _MARKS, cuts[1:], strict=False)]
    before_user, before_agent, after_agent = between
    # The piece between an answer and the next message is "end of answer" and "before user": take the latter off.
    if not after_agent.endswith(before_user):
        shared = _shared_tail(after_agent, before_user)
        return text[: cuts[0]], before_user, before_agent, after_agent[: len(after_agent) - len(shared)]
    return text[: cuts[0]], before_user, before_agent, after_agent[: -len(before_user)]


def _shared_tail(a: str, b: str) -> str:
    count = 0
    while count < min(len(a), len(b)) and a[-count - 1] == b[-count - 1]:
        count += 1
    return a[len(a) - count :]


def _byte_alphabet() -> dict[str, int]:
    """Byte-level BPE writes each byte as one character: printable ones as themselves, the rest from 256 on."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(b): b for b in plain}
    for i, b in enumerate(b for b in range(256) if b not in plain):
        table[chr(256 + i)] = b
    return table


_ALPHABET = _byte_alphabet()


def _token_bytes(word: str, byte_level: bool) -> bytes:
    if byte_level:
        return bytes(_ALPHABET.get(c, 63) for c in word)
    if word.startswith("<0x") and word.endswith(">") and len(word) == 6:
        return bytes([int(word[3:5], 16)])
    return word.replace("\u2581", " ").encode()
