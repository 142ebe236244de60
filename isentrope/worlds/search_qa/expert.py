"""Experts for warm-up data: one that reads what it finds in the generated library, and one that knows the solution."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from isentrope.worlds.contract import Instance, Move, View
from isentrope.worlds.search_qa.generated import RELATIONS, Relation
from isentrope.worlds.search_qa.questions import Question

_PASSAGE = re.compile(r"^\[\d+\] (.+)\n(.+)$", re.MULTILINE)
_SENTENCE = re.compile(r"(?<=\.) ")


class Searcher:
    """Understands the question, searches for the thing that it is about, and follows what the passages say.

    It knows how questions and sentences are worded, but nothing of the facts: it solves what its searches find.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(f"searcher {seed}")
        self._read: dict[str, str] = {}
        self._chain: list[Relation] = []
        self._subject = ""
        self._queries: list[str] = []

    def start(self, view: View, instance: Instance) -> None:
        self._read, self._queries = {}, []
        self._question = view.goal.removeprefix("Question: ")
        self._subject, self._chain = understood(self._question)

    def act(self, view: View) -> Move:
        self._read.update(_PASSAGE.findall(view.text))
        learned: list[str] = []
        while self._chain and (found := _fact(self._read.get(self._subject, ""), self._subject, self._chain[0])):
            sentence, value = found
            learned.append(sentence)
            self._subject, self._chain, self._queries = value, self._chain[1:], []
        said = " ".join(learned)
        if not self._chain and learned:
            return Move(f"{said} That is the answer.", f"answer[{self._subject}]")
        query = self._next_query()
        if query is None:
            return Move("My searches do not find it. I have to guess.", f"answer[{self._subject or 'unknown'}]")
        purpose = f"I need to know about {self._subject}." if self._subject else "I look for the question's words."
        return Move(f"{said} {purpose}".strip(), f"search[{query}]")

    def _next_query(self) -> str | None:
        """The name at first, then with what is asked about it; a query is not made twice."""
        about = self._chain[0].name if self._chain else ""
        wordings = [self._subject, f"{self._subject} {about}".strip()] if self._subject else [self._question]
        if self._random.random() < 0.3:
            wordings.reverse()
        fresh = [query for query in wordings if query not in self._queries]
        self._queries += fresh[:1]
        return fresh[0] if fresh else None


class Solver:
    """Knows the question's golden answer and the titles of the passages that hold it: searches for these, answers."""

    def __init__(self, question_of: Callable[[Instance], Question], most: int) -> None:
        self._question_of, self._most = question_of, most
        self._plan: list[Move] = []

    def start(self, view: View, instance: Instance) -> None:
        question = self._question_of(instance)
        titles = list(question.titles) or [question.text]
        if self._most and len(titles) > self._most:  # the rest go into the last search
            titles = [*titles[: self._most - 1], " ".join(titles[self._most - 1 :])]
        answer = question.answers[0]
        self._plan = [Move(f"I look for what is known about {title}.", f"search[{title}]") for title in titles]
        self._plan.append(Move(f"From what I have read, the answer is {answer}.", f"answer[{answer}]"))

    def act(self, view: View) -> Move:
        return self._plan.pop(0) if len(self._plan) > 1 else self._plan[0]


def understood(question: str) -> tuple[str, list[Relation]]:
    """The thing that the question begins with, and the relations that lead from it to the answer."""
    for relation in RELATIONS:
        for template in relation.questions:
            match = _pattern(template).fullmatch(question)
            if match is None:
                continue
            subject = match["x"]
            for inner in RELATIONS:
                if (
                    inner.phrase
                    and inner.value == relation.subject
                    and (deeper := _pattern(inner.phrase).fullmatch(subject))
                ):
                    return deeper["x"], [inner, relation]
            if not subject.startswith("the "):  # a phrase that some other relation understands
                return subject, [relation]
    return "", []


def _fact(text: str, subject: str, relation: Relation) -> tuple[str, str] | None:
    """The sentence that says it, with the name instead of a pronoun, and the value."""
    for sentence in _SENTENCE.split(text):
        for template in relation.sentences:
            match = _pattern(template).fullmatch(sentence)
            if match is not None and match["x"] in (subject, "She", "He", "It"):
                return template.format(x=subject, y=match["y"]), match["y"]
    return None


def _pattern(template: str) -> re.Pattern[str]:
    """A template as a pattern that finds what was put into it."""
    return re.compile(re.escape(template).replace(r"\{x\}", "(?P<x>.+)").replace(r"\{y\}", "(?P<y>.+)"))
