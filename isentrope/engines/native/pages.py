"""Which pages of the cache belong to which conversation.

A page holds the keys and values of a fixed number of tokens. Full pages of a prompt are known by all tokens up to their
end, so a prompt that begins like another shares its pages: within a group, and with the same instructions across
groups. A shared page is full and never written again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

_Name = tuple[int, tuple[int, ...]]  # the page before (-1: none), and a page's tokens


@dataclass
class Held:
    """What a conversation has in the cache."""

    tokens: list[int] = field(default_factory=list[int])  # whose keys and values are there
    pages: list[int] = field(default_factory=list[int])


class Pages:
    def __init__(self, count: int, size: int) -> None:
        self.count, self.size = count, size
        self._free = list(range(count - 1, -1, -1))
        self._users = [0] * count
        self._known: dict[_Name, int] = {}
        self._names: dict[int, _Name] = {}

    @property
    def free(self) -> int:
        return len(self._free)

    def needed(self, tokens: int) -> int:
        return -(-tokens // self.size)

    def share(self, prompt: Sequence[int]) -> list[int]:
        """Pages that already hold the beginning of this prompt, counted as used once more. Its last token is never
        among them: someone has to compute what follows it."""
        found: list[int] = []
        before = -1
        for i in range((len(prompt) - 1) // self.size):
            page = self._known.get((before, self._tokens(prompt, i)))
            if page is None:
                break
            found.append(page)
            before = page
        for page in found:
            self._users[page] += 1
        return found

    def take(self, count: int) -> list[int] | None:
        """So many new pages, or None if there are not enough."""
        if count > len(self._free):
            return None
        pages = [self._free.pop() for _ in range(count)]
        for page in pages:
            self._users[page] = 1
        return pages

    def know(self, prompt: Sequence[int], pages: Sequence[int], first: int) -> None:
        """From now on, the full pages of this prompt may be shared; those before `first` are known already."""
        before = pages[first - 1] if first else -1
        for i in range(first, len(prompt) // self.size):
            page, name = pages[i], (before, self._tokens(prompt, i))
            if name in self._known:  # another conversation's: what follows must not hang on its page
                break
            self._known[name] = page
            self._names[page] = name
            before = page

    def give(self, pages: Sequence[int]) -> None:
        """No longer used by one conversation."""
        for page in pages:
            self._users[page] -= 1
            if self._users[page] == 0:
                self._free.append(page)
                name = self._names.pop(page, None)
                if name is not None:
                    del self._known[name]

    def _tokens(self, prompt: Sequence[int], page: int) -> tuple[int, ...]:
        return tuple(prompt[page * self.size : (page + 1) * self.size])
