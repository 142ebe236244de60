"""Referees of three worlds: whether the goal is reached, told from the task and the accepted actions alone.

They share no rule with the worlds: no engine, no score, no normalisation. A referee says less than the world where the
world's rule is a matter of degree (which words match an attribute), never more.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

from isentrope.worlds.household.game import Game


class House:
    """Keeps track of where things are, from the commands that were carried out."""

    def __init__(self, game: Game) -> None:
        self.game = game
        self.types = {thing.name: thing.type for thing in game.objects}
        self.can = {thing.name: thing for thing in game.objects}
        self.places = {one.name: one for one in game.receptacles}
        self.content = {one.name: set[str]() for one in game.receptacles}
        for thing, place in game.inside:
            self.content[game.receptacles[place].name].add(game.objects[thing].name)
        self.here, self.hand = game.start, ""
        self.lit: set[str] = set()
        self.clean: set[str] = set()
        self.warmth = {thing.name: "cool" for thing in game.objects if thing.cool}

    def after(self, command: str) -> None:
        if match := re.fullmatch(r"go to (.+)", command):
            self.here = self.places[match[1]].location
        elif match := re.fullmatch(r"take (.+) from (.+)", command):
            self.content[match[2]].remove(match[1])
            self.hand = match[1]
        elif match := re.fullmatch(r"move (.+) to (.+)", command):
            self.content[match[2]].add(match[1])
            self.hand = ""
        elif match := re.fullmatch(r"clean (.+) with .+", command):
            self.clean.add(match[1])
        elif match := re.fullmatch(r"(heat|cool) (.+) with .+", command):
            self.warmth[match[2]] = match[1]
        elif match := re.fullmatch(r"use (.+)", command):
            self.lit.add(match[1])

    def goal(self) -> bool:
        goal = self.game.goal
        if goal.kind == "look":
            near = [name for name, place in self.places.items() if place.location == self.here]
            shining = [lamp for lamp in self.lit if self.types[lamp] == goal.place_type]
            lamp = any(one in self.content[name] for name in near for one in shining)
            return lamp and self.types.get(self.hand) == goal.object_type
        wanted = 2 if goal.kind == "two" else 1
        return any(
            len([one for one in things if self._fits(one)]) >= wanted
            for place, things in self.content.items()
            if self.places[place].type == goal.place_type
        )

    def _fits(self, name: str) -> bool:
        goal, thing = self.game.goal, self.can[name]
        treated = {
            "clean": name in self.clean and thing.cleanable,
            "heat": self.warmth.get(name) == "heat" and thing.heatable,
            "cool": self.warmth.get(name) == "cool" and thing.coolable,
        }
        return thing.type == goal.object_type and treated.get(goal.kind, True)


class Purchase:
    """What was bought, with which options, and whether it is what the sentence asks for."""

    def __init__(
        self, sentence: str, attributes: Sequence[str], wanted: Any, product: Callable[[int], Any], stock: Any
    ) -> None:
        self.sentence, self.attributes, self.wanted = sentence, attributes, wanted
        self.by_asin = {product(place).asin.lower(): product(place) for place in range(len(stock))}
        self.item: Any = None
        self.chosen: dict[str, str] = {}

    def after(self, action: str, page: str) -> None:
        clicked = re.fullmatch(r"click\[(.+)\]", action)
        if clicked is None or clicked[1] == "back to search":
            self.item, self.chosen = None, {}
        elif self.item is None or clicked[1] in self.by_asin:
            self.item, self.chosen = self.by_asin.get(clicked[1]), {}
        elif clicked[1] == "< prev" and "Buy Now" not in page:
            self.item, self.chosen = None, {}
        else:
            for name, values in self.item.options.items():
                if clicked[1] in [value.lower() for value in values]:
                    self.chosen[name] = clicked[1]

    def reached(self, but_for_size: bool = False) -> bool:
        """The price is within the sentence's, its options are chosen, and the product is of the kind and has it all."""
        chosen = set(self.chosen.values())
        if but_for_size:
            chosen = set(map(_sizeless, chosen))
        if self.item is None:
            return False
        limit = re.search(r"price lower than ([\d.]+) dollars", self.sentence)
        asked = re.findall(r"(?:with|and) \w[\w ]*: ([^,]+?)(?=, and |$)", self.sentence.lower())
        words = " ".join([self.item.title, *self.item.bullets, self.item.description, *self.item.attributes]).lower()
        return (
            (limit is None or self.item.price <= float(limit[1]))
            and all((_sizeless(value) if but_for_size else value) in chosen for value in asked)
            and all(attribute.lower() in words for attribute in self.attributes)
            and self.item.query == self.wanted.query
        )


def _sizeless(value: str) -> str:
    """Without numbers and the x of large sizes."""
    return re.sub(r"\d+|\bx+-", "", value)


def _bare(text: str) -> list[str]:
    """The words of an action's text: composed, in small letters, without punctuation and articles."""
    inside = re.fullmatch(r"\s*(?:answer\s*\[(.*)\]|<answer>(.*)</answer>)\s*", text, re.DOTALL | re.IGNORECASE)
    text = next((one for one in inside.groups() if one is not None), "") if inside else text
    kept = "".join(one for one in unicodedata.normalize("NFC", text).lower() if one not in string.punctuation)
    return [word for word in unicodedata.normalize("NFC", kept).split() if word not in ("a", "an", "the")]


def same_answer(action: str, golden: str) -> bool:
    return bool(_bare(golden)) and _bare(action) == _bare(golden)


def same_words(action: str, golden: str) -> bool:
    return sorted(_bare(action)) == sorted(_bare(golden))
