"""Other inputs of the same kind: the constants of a test, changed at random, by type.

    [[1, 2], [3, 4]]  ->  [[1, 2], [3, 4], [1, 2]], [[1, 0], [3, 4]], ...
    "4539 3195"       ->  "4571 3195", "3195 4539", ...

A name that is changed at one place of a test is mostly changed at the others too, so that what belongs together stays
together. What comes out may make no sense: the known repair is asked, and what it refuses is left out (`calls.py`).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, cast

from isentrope.worlds.code_repair.plain import to_plain

MOST_LONG = 200  # elements or characters of what is made longer
Change = tuple[int, Any]  # number of a constant, the new value as plain.py writes it


def variants(values: Sequence[Any], numbers: Sequence[int], count: int, luck: random.Random) -> list[list[Change]]:
    """At most so many different ways to change some of these constants."""
    usable = [number for number in numbers if values[number] not in ((), "", None)] or list(numbers)
    made: dict[str, list[Change]] = {}
    if not usable:
        return []
    maker = _Maker([values[number] for number in numbers], luck)
    for _ in range(3 * count):
        some = luck.choice((1, 1, 2, 3, len(usable)))
        chosen = luck.sample(usable, min(some, len(usable)))
        changed = maker.changed([(number, values[number]) for number in numbers], set(chosen))
        if changed:
            made.setdefault(repr(changed), changed)
        if len(made) == count:
            break
    return list(made.values())


def _in_order(value: Any) -> list[Any]:
    """Its elements; those of a set in an order that is the same in each process."""
    return sorted(value, key=repr) if isinstance(value, set) else list(value)  # pyright: ignore


class _Maker:
    """Draws new values; others of the same type in the same test are among them."""

    def __init__(self, values: Sequence[Any], luck: random.Random) -> None:
        self._luck = luck
        self._texts: list[str] = []
        self._numbers: list[int] = []
        self._alike: dict[str, Any] = {}
        for value in values:
            self._gather(value)
        self._chars = sorted({char for text in self._texts for char in text})

    def _gather(self, value: Any) -> None:
        if isinstance(value, str):
            self._texts.append(value)
        elif type(value) is int:
            self._numbers.append(value)
        elif isinstance(value, dict):
            for pair in cast("dict[Any, Any]", value).items():
                self._gather(pair[0])
                self._gather(pair[1])
        elif isinstance(value, list | tuple | set):
            for one in _in_order(value):
                self._gather(one)

    def changed(self, constants: list[tuple[int, Any]], chosen: set[int]) -> list[Change]:
        self._alike = {}
        found: list[Change] = []
        for number, value in sorted(constants, key=lambda one: one[0] not in chosen):
            new = self._new(value) if number in chosen else self._followed(value)
            if (tree := to_plain(new)) != to_plain(value):
                found.append((number, tree))
        return sorted(found, key=lambda change: change[0])

    def _followed(self, value: Any) -> Any:
        """As it was, but for names that have been changed elsewhere."""
        if isinstance(value, str):
            return self._alike.get(value, value)
        if isinstance(value, list | tuple | set):
            return type(value)(self._followed(one) for one in cast("list[Any]", value))  # pyright: ignore
        if isinstance(value, dict):
            return {self._followed(key): self._followed(one) for key, one in cast("dict[Any, Any]", value).items()}
        return value

    def _new(self, value: Any) -> Any:
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            return self._number(value)
        if isinstance(value, float):
            return self._luck.choice((value * 2, value + 0.5, -value, value - 0.25, value / 2, float(round(value))))
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, bytes):
            return bytes(self._luck.choice((byte, byte, byte ^ 1)) for byte in value)
        if isinstance(value, list):
            return self._list(cast("list[Any]", value))
        if isinstance(value, tuple):
            return tuple(self._some(list(cast("tuple[Any, ...]", value))))
        if isinstance(value, dict):
            return self._dict(cast("dict[Any, Any]", value))
        return set(self._some(_in_order(value))) if isinstance(value, set) else value

    def _number(self, value: int) -> int:
        near = (value + 1, value - 1, value + 2, value - 2, -value, 0, 1)
        size = 2 * abs(value) + 3
        drawn = self._luck.randint(-3, size) if self._luck.random() < 0.2 else self._luck.randint(0, size)
        return self._luck.choice((self._luck.choice(near), drawn, drawn, self._luck.choice(self._numbers or [value])))

    def _some(self, items: list[Any]) -> list[Any]:
        """One to all of them changed."""
        if not items:
            return items
        count = self._luck.choice((1, 1, 2, len(items)))
        places = set(self._luck.sample(range(len(items)), min(count, len(items))))
        return [self._new(one) if place in places else one for place, one in enumerate(items)]

    def _list(self, items: list[Any]) -> list[Any]:
        way = self._luck.randrange(8)
        if not items or way >= 4:
            return self._some(items) if items else [self._luck.choice(self._numbers or [1])]
        place = self._luck.randrange(len(items))
        if way == 0:
            return items[:place] + items[place + 1 :]
        if way == 1 and len(items) < MOST_LONG:
            return [*items[:place], self._new(items[place]), *items[place:]]
        if way == 2 and len(items) < MOST_LONG:
            return [*items, self._luck.choice(items)]
        return self._luck.sample(items, len(items))

    def _dict(self, items: dict[Any, Any]) -> dict[Any, Any]:
        if not items:
            return items
        keys = list(items)
        key, other = self._luck.choice(keys), self._luck.choice(keys)
        way = self._luck.randrange(5)
        if way == 0:
            return {one: value for one, value in items.items() if one != key}
        if way == 1:
            return items | {key: items[other], other: items[key]}
        if way == 2:
            return {(self._new(one) if one == key else one): value for one, value in items.items()}
        return items | {key: self._new(items[key])}

    def _text(self, text: str) -> str:
        new = self._one_text(text)
        if self._luck.random() < 0.8:
            new = self._alike.setdefault(text, new)
        return new

    def _one_text(self, text: str) -> str:
        luck, length = self._luck, len(text)
        others = [one for one in self._texts if one != text] or [text]
        way = luck.randrange(9) if text else 9
        if way <= 2:  # some characters replaced by others of their kind
            share = luck.choice((0.15, 0.4, 1.0))
            return "".join(self._like(char) if luck.random() < share else char for char in text)
        if way == 3:  # each character replaced by one and the same
            table = {char: self._like(char) for char in sorted(set(text))}
            return "".join(table[char] for char in text)
        if way == 4:
            first, last = sorted((luck.randint(0, length), luck.randint(0, length)))
            return text[:first] + text[last:] if last - first < length else text[: length // 2]
        if way == 5 and length < MOST_LONG:
            first, last = sorted((luck.randint(0, length), luck.randint(0, length)))
            return text[:last] + text[first:]
        if way == 6 and length > 1:
            a, b = sorted(luck.sample(range(length), 2))
            return text[:a] + text[b] + text[a + 1 : b] + text[a] + text[b + 1 :]
        if way == 7 and length < MOST_LONG:
            return text + luck.choice(others) if luck.random() < 0.5 else luck.choice(others) + text
        return luck.choice(others)

    def _like(self, char: str) -> str:
        """Another digit, small letter, capital, blank or sign; of those that occur, but for digits."""
        if char.isdigit():
            return self._luck.choice("0123456789")
        kinds = (str.islower, str.isupper, str.isspace)
        kind = next((one for one in kinds if one(char)), None)
        if kind is None:
            signs = [one for one in self._chars if not one.isalnum() and not one.isspace()]
            return self._luck.choice(signs or [char])
        occurring = [one for one in self._chars if kind(one)]
        more = {str.islower: "abcdefghijklmnopqrstuvwxyz", str.isupper: "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}.get(kind, "")
        return self._luck.choice(occurring or more or char) if self._luck.random() < 0.8 or not more else (
            self._luck.choice(more)
        )  # fmt: skip
