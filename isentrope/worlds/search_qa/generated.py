"""Generates a small library about things that do not exist, and questions about it: nothing to download or to know.

Each split has things of its own, and no fact leads from one split to another; all passages stand in one corpus.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from isentrope.worlds.search_qa.passages import Passage
from isentrope.worlds.search_qa.questions import Question

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
    """Gives out invented names by kind, no two alike; deterministic for its source of randomness."""

    def __init__(self, source: random.Random) -> None:
        self._random, self._taken, self._syllables = source, set[str](), 1
        one, stem = source.choice, self._stem
        self._makers: dict[str, Callable[[], str]] = {
            "person": lambda: f"{one(_WOMEN + _MEN)} {stem()}{one(_PERSON)}",
            "town": lambda: stem() + one(_TOWN),
            "river": lambda: stem() + one(_MIDDLE),
            "region": lambda: stem() + one(("ia", "land", "mark")),
            "firm": lambda: f"{stem()}{one(_PERSON)} {one(_FIRM)}",
            "contest": lambda: f"{stem()}{one(_MIDDLE)} {one(_CONTEST)}",
            "book": lambda: f"{one(_ADJECTIVE)} {one(_NOUN)} of {stem()}{one(_MIDDLE)}",
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
        one = self._random.choice
        return one(_BEGIN) + "".join(one(_MIDDLE) for _ in range(self._syllables))


@dataclass(frozen=True)
class Relation:
    """Leads from a subject to a value: another thing (then it can be asked through: "the founder of …"), or a plain one
    such as a year. In the templates {x} is the subject and {y} the value."""

    subject: str  # the kind of thing that it is said of
    name: str
    value: str  # the kind of thing that the value is; or year, trade, river, ...: a plain value
    sentences: tuple[str, ...]
    questions: tuple[str, ...]
    phrase: str = ""  # the value in words, if it is a thing


RELATIONS = tuple(Relation(*row) for row in (
    ("person", "birthplace", "town", ("{x} was born in the town of {y}.", "{x} is a native of {y}."),
     ("In which town was {x} born?", "Where was {x} born?"), "the town where {x} was born"),
    ("person", "birth", "year", ("{x} was born in the year {y}.", "{x} came into the world in {y}."),
     ("In which year was {x} born?", "When was {x} born?"), ""),
    ("person", "trade", "trade", ("{x} earned a living as a {y}.", "By trade {x} was a {y}."),
     ("What was the trade of {x}?", "How did {x} earn a living?"), ""),
    ("person", "employer", "firm", ("{x} was on the payroll of {y} for many years.", "{x} worked for {y}."),
     ("Which firm did {x} work for?", "Who employed {x}?"), "the firm that {x} worked for"),
    ("town", "river", "river", ("The river {y} runs through {x}.", "{x} lies on the river {y}."),
     ("Which river runs through {x}?", "Which river flows past {x}?"), ""),
    ("town", "region", "region", ("{x} is a market town in the region of {y}.", "{x} belongs to the region of {y}."),
     ("In which region is {x}?", "Which region is {x} a part of?"), ""),
    ("town", "mayor", "person", ("The mayor of {x} is {y}.", "{x} is governed by its mayor, {y}."),
     ("Who is the mayor of {x}?", "Who governs {x}?"), "the mayor of {x}"),
    ("firm", "founder", "person", ("{x} was founded by {y}.", "{x} is the work of its founder, {y}."),
     ("Who founded {x}?", "Who was the founder of {x}?"), "the founder of {x}"),
    ("firm", "seat", "town", ("{x} has its seat in {y}.", "The head office of {x} is in {y}."),
     ("Where does {x} have its seat?", "In which town is the head office of {x}?"), "the town where {x} has its seat"),
    ("firm", "opening", "year", ("{x} opened its doors in {y}.", "The first day of business of {x} was in {y}."),
     ("In which year did {x} open its doors?", "When did {x} begin its business?"), ""),
    ("firm", "product", "product", ("{x} makes {y}.", "{x} is known for its {y}."),
     ("What does {x} make?", "What is made by {x}?"), ""),
    ("contest", "place", "town", ("{x} was held in {y}.", "{x} took place in {y}."),
     ("Where was {x} held?", "Which town was host to {x}?"), "the town that was host to {x}"),
    ("contest", "date", "year", ("{x} goes back to the year {y}.", "The year of {x} was {y}."),
     ("In which year was {x} held?", "When was {x} held?"), ""),
    ("contest", "winner", "person", ("{x} was won by {y}.", "The prize of {x} went to {y}."),
     ("Who won {x}?", "Who took the prize of {x}?"), "the winner of {x}"),
    ("book", "author", "person", ("{x} was written by {y}.", "{x} is a novel by {y}."),
     ("Who wrote {x}?", "Who is the author of {x}?"), "the author of {x}"),
    ("book", "publication", "year", ("{x} appeared in {y}.", "{x} was first printed in {y}."),
     ("In which year did {x} appear?", "When was {x} first printed?"), ""),
    ("book", "setting", "town", ("{x} is set in {y}.", "The story of {x} unfolds in {y}."),
     ("In which town is {x} set?", "Where does the story of {x} unfold?"), "the town in which {x} is set"),
))  # fmt: skip

TRADES = ("bell founder", "bookbinder", "cartographer", "clockmaker", "cooper", "ferryman", "glazier", "lamplighter",
          "lute maker", "mason", "paper maker", "potter", "rope maker", "saddler", "shipwright", "tanner", "thatcher",
          "tinsmith", "weaver", "wheelwright")  # fmt: skip
PRODUCTS = ("barometers", "brass hinges", "copper kettles", "fishing nets", "fountain pens", "garden shears",
            "harness bells", "ink", "leather gloves", "linen sails", "oil lamps", "organ pipes", "pocket knives",
            "porcelain cups", "rain coats", "sewing needles", "ship lanterns", "straw hats", "tin soldiers",
            "wax candles")  # fmt: skip

SPLITS = {"train": 0.6, "dev": 0.15, "test": 0.25}  # shares of the passages
KINDS = ("one_hop", "two_hop")
_SHARES = {"town": 0.2, "firm": 0.15, "contest": 0.15, "book": 0.15}  # the rest are people

Asked = tuple[str, Question]  # the kind and the question


@dataclass
class Thing:
    name: str
    kind: str
    facts: dict[Relation, str] = field(default_factory=dict[Relation, str])


@dataclass(frozen=True)
class Library:
    passages: tuple[Passage, ...]
    questions: dict[str, tuple[Asked, ...]]  # by split


@lru_cache(maxsize=4)
def library(count: int) -> Library:
    """The library of `count` passages; always the same one."""
    source = random.Random(f"search_qa library {count}")
    names = Names(source)
    passages: list[tuple[str, str]] = []
    questions: dict[str, tuple[Asked, ...]] = {}
    for split, share in SPLITS.items():
        things = _things(max(10, round(count * share)), names, source)
        passages += [(thing.name, _text(thing, source)) for thing in things.values()]
        questions[split] = _questions(things, split, source)
    source.shuffle(passages)
    return Library(tuple(Passage(str(i), title, text) for i, (title, text) in enumerate(passages)), questions)


def _things(count: int, names: Names, source: random.Random) -> dict[str, Thing]:
    counts = {kind: max(2, round(count * share)) for kind, share in _SHARES.items()}
    counts["person"] = max(2, count - sum(counts.values()))
    things = [Thing(names.new(kind), kind) for kind, number in counts.items() for _ in range(number)]
    regions = [names.new("region") for _ in range(max(3, counts["town"] // 4))]
    choices = {kind: [thing.name for thing in things if thing.kind == kind] for kind in counts}
    choices |= {"trade": list(TRADES), "product": list(PRODUCTS), "region": regions}
    for thing in things:
        for relation in (one for one in RELATIONS if one.subject == thing.kind):
            if relation.value == "year":
                value = str(source.randrange(1700, 1990))
            elif relation.value == "river":
                value = names.new("river")
            else:
                value = source.choice(choices[relation.value])
            thing.facts[relation] = value
    return {thing.name: thing for thing in things}


def _text(thing: Thing, source: random.Random) -> str:
    """All that is known of a thing, in a random order; after the first sentence often with a pronoun."""
    instead = "It" if thing.kind != "person" else "She" if thing.name.split()[0] in _WOMEN else "He"
    sentences: list[str] = []
    for relation in source.sample(list(thing.facts), len(thing.facts)):
        template = source.choice(relation.sentences)
        short = bool(sentences) and template.startswith("{x}") and source.random() < 0.5
        sentences.append(template.format(x=instead if short else thing.name, y=thing.facts[relation]))
    return " ".join(sentences)


def _questions(things: dict[str, Thing], split: str, source: random.Random) -> tuple[Asked, ...]:
    """As many of one hop as of two, in turn."""
    one: list[tuple[str, str, tuple[str, ...]]] = []
    two: list[tuple[str, str, tuple[str, ...]]] = []
    for thing in things.values():
        for relation, value in thing.facts.items():
            one.append((source.choice(relation.questions).format(x=thing.name), value, (thing.name,)))
            if not relation.phrase:
                continue
            asked_through = relation.phrase.format(x=thing.name)
            for further, answer in things[value].facts.items():
                if answer != thing.name:  # the name would stand in the question
                    text = source.choice(further.questions).format(x=asked_through)
                    two.append((text, answer, (thing.name, value)))
    source.shuffle(one)
    source.shuffle(two)
    asked: list[Asked] = []
    for pair in zip(one, two, strict=False):
        for kind, (text, answer, titles) in zip(KINDS, pair, strict=True):
            asked.append((kind, Question(f"{split}-{len(asked)}", text, (answer,), titles)))
    return tuple(asked)
