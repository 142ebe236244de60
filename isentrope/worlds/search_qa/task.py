"""Plays one question, searches and then an answer, and scores the answer."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from isentrope.core.errors import TaskError
from isentrope.worlds.contract import Instance, Step, View
from isentrope.worlds.search_qa.passages import Hit, clean
from isentrope.worlds.search_qa.questions import Question

# actions: search[...] or answer[...], or the same between tags

MAX_TEXT = 1000  # characters of a query or an answer

_FORMS = (
    re.compile(r"(search|answer)\s*\[(.*)\]", re.IGNORECASE | re.DOTALL),
    re.compile(r"<(search|answer)>(.*)</\1>", re.IGNORECASE | re.DOTALL),
)


@dataclass(frozen=True)
class Said:
    """A search, an answer, or a problem: why it was neither."""

    search: str = ""
    answer: str = ""
    problem: str = ""


def read_action(action: str) -> Said:
    match = next(filter(None, (form.fullmatch(action.strip()) for form in _FORMS)), None)
    if match is None:
        return Said(problem="That is no action here. Use search[what to look for] or answer[the answer].")
    name, text = match[1].lower(), clean(match[2])
    if not text:
        return Said(problem=f"There is nothing between the brackets of {name}.")
    if len(text) > MAX_TEXT:
        return Said(problem=f"That is too long: at most {MAX_TEXT} characters.")
    return Said(search=text) if name == "search" else Said(answer=text)


# scores: exact match and token F1 after the usual normalisation of question answering

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_WHOLE = ("yes", "no", "noanswer")  # these words share nothing with a longer answer that holds them


def normalise(text: str) -> str:
    """Lower case, without punctuation and articles, words one blank apart.

    Composed and decomposed accents are the same letter (NFC). Other letters stay: naïve is not naive.
    """
    text = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).lower())
    text = _ARTICLES.sub(" ", text.translate(_PUNCTUATION))
    return unicodedata.normalize("NFC", " ".join(text.split()))


def exact_match(answer: str, golden: str) -> bool:
    """Equal after normalisation. A golden answer of which nothing would be left (The The) is compared as it stands."""
    wanted = normalise(golden)
    if wanted:
        return normalise(answer) == wanted
    return bool(golden.strip()) and answer.strip().lower() == golden.strip().lower()


def f1(answer: str, golden: str) -> float:
    """Harmonic mean of precision and recall over the words, each counted as often as it stands there."""
    if exact_match(answer, golden):
        return 1.0
    given, wanted = normalise(answer), normalise(golden)
    if given in _WHOLE or wanted in _WHOLE:
        return 0.0
    left, right = given.split(), wanted.split()
    shared = sum((Counter(left) & Counter(right)).values())
    return 2 * shared / (len(left) + len(right)) if shared else 0.0


def best_exact_match(answer: str, golden: Sequence[str]) -> bool:
    return any(exact_match(answer, one) for one in golden)


def best_f1(answer: str, golden: Sequence[str]) -> float:
    return max((f1(answer, one) for one in golden), default=0.0)


@dataclass(frozen=True)
class Limits:
    searches: int  # in an episode; 0: as many as you like
    passage_chars: int
    by_words: bool = False  # the reward is F1, not exact match


class SearchQATask:
    """Plays one question at a time. An answer ends the episode."""

    def __init__(
        self, question_of: Callable[[Instance], Question], search: Callable[[str], list[Hit]], limits: Limits
    ) -> None:
        self._question_of, self._search, self._limits = question_of, search, limits
        self._question: Question | None = None
        self._searches = 0
        self._seen: set[str] = set()

    def start(self, instance: Instance) -> View:
        self._question = self._question_of(instance)
        self._searches, self._seen = 0, set()
        return self._view(self._question, f"Nothing has been searched yet.{self._left()}")

    def step(self, action: str) -> Step:
        question = self._question
        if question is None:
            raise TaskError("step was called before start, or after the answer: start an instance first")
        said = read_action(action)
        if said.problem:
            return Step(self._view(question, said.problem), valid=False)
        if said.answer:
            return self._answered(question, said.answer)
        if self._limits.searches and self._searches >= self._limits.searches:
            text = "There are no searches left. Give your answer with answer[the answer]."
            return Step(self._view(question, text), valid=False)
        return self._searched(question, said.search)

    def close(self) -> None:
        self._question = None

    def _searched(self, question: Question, query: str) -> Step:
        hits = self._search(query)
        self._searches += 1
        self._seen.update(hit.passage.title for hit in hits)
        lines = [hit.passage.shown(number, self._limits.passage_chars) for number, hit in enumerate(hits, start=1)]
        text = "\n".join(lines) if lines else "Nothing was found."
        return Step(self._view(question, f"{text}\n{self._left().strip()}".strip()), info={"found": float(len(hits))})

    def _answered(self, question: Question, answer: str) -> Step:
        right, f1 = best_exact_match(answer, question.answers), best_f1(answer, question.answers)
        info: dict[str, str | float | bool] = {"em": float(right), "f1": f1, "searches": float(self._searches)}
        if question.titles:
            info["recall"] = len(self._seen.intersection(question.titles)) / len(question.titles)
        self._question = None
        return Step(
            self._view(question, "The answer is right." if right else "The answer is not right."),
            reward=f1 if self._limits.by_words else float(right),
            terminated=True,
            success=right,
            info=info,
        )

    def _left(self) -> str:
        left = self._limits.searches - self._searches
        return f" Searches left: {left}." if self._limits.searches else ""

    def _view(self, question: Question, text: str) -> View:
        return View(text, None, f"Question: {question.text}", rules(self._limits.searches))


def rules(most: int) -> str:
    limit = f" You can search {most} time{'s' if most != 1 else ''} at most." if most else ""
    return (
        "You answer a question with the help of a search engine over a collection of short texts. search[what to look "
        "for] shows the texts that fit best; search again with other words, or for something that you have read about, "
        f"until you know enough.{limit} answer[the answer] gives your answer and ends the task. Answer with the name, "
        "date, number or few words that were asked for, and nothing around them."
    )
