"""Tokens for a model whose own are not known: the bytes of the text, and ids for who speaks.

A server takes messages and gives text, while everything here works with token ids. With these tokens the ids before a
response can be turned back into exactly the messages they were made from, whatever they say: no text has the id of a
speaker.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

SYSTEM, USER, AGENT = 256, 257, 258
_ROLES = {SYSTEM: "system", USER: "user", AGENT: "assistant"}
BYTES_PER_TOKEN = 3.0  # household text in SmolLM2's vocabulary; English prose has about 4, so it is counted too high

Message = dict[str, str]  # role and content, as servers take them


class ByteTokens:
    """ids: 256 bytes, then one id for each speaker, which stands in front of what is said."""

    ids_per_token: float = BYTES_PER_TOKEN
    pad_id: int = 0  # never read: no model computes with these ids
    eos_ids: frozenset[int] = frozenset()  # an answer ends where the server says so
    size: int = 259

    def content(self, text: str) -> list[int]:
        return list(text.encode("utf-8", "replace"))

    def opening(self, system: str, message: str) -> list[int]:
        return [SYSTEM, *self.content(system), *self.user(message)]

    def user(self, text: str) -> list[int]:
        return [USER, *self.content(text), AGENT]

    def end_of_answer(self) -> list[int]:
        return []  # the next speaker's id already says that the answer is over

    def answer(self, text: str) -> list[int]:
        return self.content(text)

    def pieces(self, ids: Sequence[int]) -> list[bytes]:
        return [bytes([i]) if i < SYSTEM else f"<|{_ROLES[int(i)]}|>".encode() for i in ids]

    def save(self, folder: Path) -> None:
        """Nothing: there is no vocabulary to keep."""

    def messages(self, prompt: Sequence[int]) -> list[Message]:
        """The messages of a prompt. The last one, the answer that is to be given, is left out."""
        found: list[tuple[str, bytearray]] = []
        for number in prompt:
            if number in _ROLES:
                found.append((_ROLES[number], bytearray()))
            else:
                found[-1][1].append(number)
        return [{"role": role, "content": said.decode("utf-8", "replace")} for role, said in found[:-1]]
