"""Defines the chat tokenizer protocol: how a conversation becomes tokens of one model.

Control tokens and tags come only from the methods below, never from text: `content` encodes with special
tokens disabled, so nothing that a task says can open a turn, close one or become a tag.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Protocol

TAGS = ("<think>", "</think>", "<action>", "</action>")
ACTION = ("action",)  # the tags that hold an action, unless agent.action_tags names others


class ChatTokenizer(Protocol):
    ids_per_token: float  # 1 where ids are the model's own; where they are not, about how many stand for one of them
    pad_id: int
    eos_ids: frozenset[int]

    @property
    def size(self) -> int:
        """How many token ids there are."""
        ...

    def content(self, text: str) -> list[int]:
        """Plain text."""
        ...

    def opening(self, system: str, message: str) -> list[int]:
        """The system message, the first message to the agent, and the opening of the agent's answer."""
        ...

    def user(self, text: str) -> list[int]:
        """A later message to the agent, and the opening of the agent's answer."""
        ...

    def end_of_answer(self) -> list[int]:
        """What closes the agent's answer if the agent did not close it itself."""
        ...

    def answer(self, text: str) -> list[int]:
        """An answer with real tags, as the policy would sample it: for imitation."""
        ...

    def pieces(self, ids: Sequence[int]) -> list[bytes]:
        """The bytes of each token; joined they are the text."""
        ...

    def save(self, folder: Path) -> None:
        """Write what is needed to read and write these tokens again."""
        ...


def neutral(text: str, tags: tuple[str, ...] = ACTION) -> str:
    """Task text in which nothing reads as one of our tags: its `<` becomes a look-alike."""
    return _tag_like(tags).sub("\u2039", text)


@cache
def _tag_like(tags: tuple[str, ...]) -> re.Pattern[str]:
    names = "|".join(re.escape(tag) for tag in dict.fromkeys(("think", "action", *tags)))
    return re.compile(rf"<(?=\s*/?\s*(?:{names})\b)", re.IGNORECASE)
