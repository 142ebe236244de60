"""Names of things that do not exist, no two of them alike."""

from __future__ import annotations

import random
from collections.abc import Callable

_BEGIN = ("Al", "Bel", "Bran", "Cal", "Cor", "Dar", "El", "Fen", "Gal", "Hal", "Is", "Jor", "Kel", "Lor", "Mar", "Nor",
          "Or", "Pel", "Quil", "Ros", "Sel", "Tar", "Ul", "Ver", "Wil", "Yor", "Zan")  # fmt: skip
_MIDDLE = ("a", "an", "ar", "e", "en", "i", "il", "in", "o", "ol", "or", "u", "un", "dra", "gri", "lo", "mi", "ne",
           "ra", "sti", "ta", "ve")  # fmt: skip
_PERSON = ("beck", "bane", "dell", "dris", "gard", "lock", "mond", "nett", "pell", "quist", "rell", "sky", "tham",
           "ver", "vik")  # fmt: skip
_TOWN = ("brook", "by", "cliff", "combe", "fell", "haven", "holt", "mere", "mouth", "stead", "thorpe", "wick")
_WOMEN = ("Adela", "Dagna", "Fenna", "Hedda", "Jorun", "Liesl", "Nerys", "Petra", "Runa", "Thora", "Verena", "Ysolde")
_MEN = ("Bertil", "Corin", "Edric", "Gerrit", "Ivo", "Kasper", "Magnus", "Osric", "Quentin", "Silas", "Ulric", "Wystan")
_FIRM = ("Brothers", "Foundry", "Mills", "Trading Company", "Works", "Workshops")
_CONTEST = ("Archery Cup", "Chess Congress", "Kite Festival", "Regatta", "Singing Contest", "Spelling Derby")
_ADJECTIVE = ("Amber", "Borrowed", "Crooked", "Distant", "Empty", "Frozen", "Gilded", "Hidden", "Last", "Lonely",
              "Painted", "Quiet", "Salt", "Silver", "Sleeping", "Winter")  # fmt: skip
_NOUN = ("Anchor", "Bridge", "Candle", "Door", "Ferry", "Garden", "Harbour", "Island", "Lantern", "Mirror", "Orchard",
         "River", "Staircase", "Tower", "Violin", "Window")  # fmt: skip


class Names:
    """Gives out names by kind; deterministic for its source of randomness."""

    def __init__(self, source: random.Random) -> None:
        self._random, self._taken, self._syllables = source, set[str](), 1
        self._makers: dict[str, Callable[[], str]] = {
            "person": lambda: f"{self._one(_WOMEN + _MEN)} {self._stem()}{self._one(_PERSON)}",
            "town": lambda: self._stem() + self._one(_TOWN),
            "river": lambda: self._stem() + self._one(_MIDDLE),
            "region": lambda: self._stem() + self._one(("ia", "land", "mark")),
            "firm": lambda: f"{self._stem()}{self._one(_PERSON)} {self._one(_FIRM)}",
            "contest": lambda: f"{self._stem()}{self._one(_MIDDLE)} {self._one(_CONTEST)}",
            "book": lambda: f"{self._one(_ADJECTIVE)} {self._one(_NOUN)} of {self._stem()}{self._one(_MIDDLE)}",
        }

    def new(self, kind: str) -> str:
        """A name that was not given out before; names grow longer when the short ones run out."""
        tries, self._syllables = 0, 1
        while (name := self._makers[kind]()) in self._taken:
            tries += 1
            self._syllables = 1 + tries // 10
        self._taken.add(name)
        return name

    def _stem(self) -> str:
        return self._one(_BEGIN) + "".join(self._one(_MIDDLE) for _ in range(self._syllables))

    def _one(self, choices: tuple[str, ...]) -> str:
        return self._random.choice(choices)


def pronoun(name: str, kind: str) -> str:
    """What stands for the name of a thing at the beginning of a sentence."""
    if kind != "person":
        return "It"
    return "She" if name.split()[0] in _WOMEN else "He"
