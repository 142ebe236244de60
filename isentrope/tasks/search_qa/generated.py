"""A small library of things that do not exist, and questions about them: nothing to download, nothing to have read.

Each split has things of its own, and no fact leads from one split to another; all passages stand in one corpus.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import lru_cache

from isentrope.tasks.search_qa.facts import BY_SUBJECT, PRODUCTS, TRADES, Relation
from isentrope.tasks.search_qa.names import Names, pronoun
from isentrope.tasks.search_qa.passages import Passage
from isentrope.tasks.search_qa.questions import Question

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
        for relation in BY_SUBJECT[thing.kind]:
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
    sentences: list[str] = []
    for relation in source.sample(list(thing.facts), len(thing.facts)):
        template = source.choice(relation.sentences)
        short = bool(sentences) and template.startswith("{x}") and source.random() < 0.5
        sentences.append(
            template.format(x=pronoun(thing.name, thing.kind) if short else thing.name, y=thing.facts[relation])
        )
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
