"""Reading the world's text: what scripted players understand of goals and observations."""

from __future__ import annotations

import re

from isentrope.errors import TaskError
from isentrope.tasks.household.game import Goal

_SENTENCES = (
    ("two", r"(?:put|find) two (\w+) (?:in|and put them in) (\w+)"),
    ("clean", r"clean some (\w+) and put it in (\w+)"),
    ("heat", r"heat some (\w+) and put it in (\w+)"),
    ("cool", r"cool some (\w+) and put it in (\w+)"),
    ("clean", r"put a clean (\w+) in (\w+)"),
    ("heat", r"put a hot (\w+) in (\w+)"),
    ("cool", r"put a cool (\w+) in (\w+)"),
    ("pick", r"put (?:a|some) (\w+) (?:in|on) (\w+)"),
    ("look", r"look at (\w+) under the (\w+)"),
    ("look", r"examine the (\w+) with the (\w+)"),
)
_GOALS = tuple((kind, re.compile(pattern + r"\.?\s*$")) for kind, pattern in _SENTENCES)
_NAMED = re.compile(r"\ba ([a-z]+ \d+)")


def read_task(sentence: str) -> Goal:
    """The goal that a task sentence states."""
    for kind, pattern in _GOALS:
        match = pattern.search(sentence)
        if match:
            return Goal(kind, match[1], match[2])
    raise TaskError(f"the task sentence is not one of this world's: {sentence!r}")


def things_listed(text: str) -> list[str]:
    """The names in a "you see a pen 1, a mug 2, and a book 1" part, in the order of the text."""
    _, found, listed = text.rpartition("you see ")
    return _NAMED.findall(listed) if found else []


def type_of(name: str) -> str:
    """The type of a named thing: "apple" for "apple 2"."""
    return name.rpartition(" ")[0]


def place_described(text: str) -> str:
    """The receptacle that an answer to go to, open or examine describes, or ""."""
    match = re.search(r"(?:On the|The) ([a-z]+ \d+)(?:, you see| is open| is closed)", text)
    return match[1] if match else ""
