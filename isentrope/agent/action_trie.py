"""The admissible actions of a turn as a token trie, and where a response stands in it.

The trie holds `<action>A</action>` for every admissible action A, in the tokens that the tokenizer itself makes of it.
A response is followed token by token; as soon as it does something that no admissible action begins with, it has left
the trie for good. A position branches if two or more different tokens of the trie can stand there, and one of them is
more than opening tag:

  - A token that all actions left have in common is forced: it decides nothing, however many actions are left.
  - Each action has one path. So two tokens are two sets of actions, never two spellings of the same one: "s", "helf" is
    no second way to say "shelf", and a response that spells it so has left the trie.
  - The end is a choice where one action begins with another: behind "desk 1" in bytes, 0 and the closing tag. Where
    " 1" and " 10" are tokens, the choice is in front of them; behind " 1" the tokenizer writes nothing but the tag.
  - Tokens may hold the end of a tag and something of the action (">(", "1<"): the token is what counts.
  - White space in front of a response is passed over, as the parser does. Elsewhere it is a token like others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate

from isentrope.agent.response_format import written_action
from isentrope.core.tokenizer import ACTION, ChatTokenizer, neutral


@dataclass
class TrieNode:
    """A position in front of a token."""

    children: dict[int, TrieNode] = field(default_factory=dict[int, "TrieNode"])  # by the tokens that can stand there
    inside: bool = False  # whether one of them holds something of the action itself, not only of the opening tag

    @property
    def branches(self) -> bool:
        return self.inside and len(self.children) > 1


class ActionTries:
    """Makes tries, and remembers how actions are written: the same ones come back all the time."""

    def __init__(self, tokenizer: ChatTokenizer, tags: tuple[str, ...] = ACTION) -> None:
        self.tokenizer, self.tags = tokenizer, tags
        self.trie, self._path = cache(self._build), cache(self._written)

    def _build(self, admissible: tuple[str, ...]) -> TrieNode:
        root = TrieNode()
        for action in dict.fromkeys(neutral(text, self.tags) for text in admissible):
            node = root
            for token, inside in zip(*self._path(action), strict=True):
                node.inside = node.inside or inside
                node = node.children.setdefault(token, TrieNode())
        return root

    def _written(self, action: str) -> tuple[list[int], list[bool]]:
        """An action's tokens, and which of them reach beyond the opening tag."""
        ids = self.tokenizer.answer(written_action(action, self.tags))
        pieces = self.tokenizer.pieces(ids)
        opened = b"".join(pieces).find(b">") + 1  # of the opening tag; a tokenizer may put a space in front
        return ids, [end > opened for end in accumulate(len(piece) for piece in pieces)]


class TrieWalk:
    """Follows one response. White space in front of it is passed over, as the parser does."""

    def __init__(self, root: TrieNode, tokenizer: ChatTokenizer) -> None:
        self._root, self._tokenizer, self._read = root, tokenizer, 0
        self._node: TrieNode | None = root

    def branching(self, response: Sequence[int]) -> bool:
        """Whether the next token decides between admissible actions. `response` only ever grows."""
        for token in response[self._read :]:
            if self._node is self._root and not self._tokenizer.pieces([token])[0].strip():
                continue
            self._node = self._node.children.get(token) if self._node else None
        self._read = len(response)
        return self._node is not None and self._node.branches
