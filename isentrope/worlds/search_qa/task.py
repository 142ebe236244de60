"""One question: searches, then an answer; and scripted players for warm-up."""

from __future__ import annotations

import random
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from isentrope.core.errors import TaskError
from isentrope.worlds.contract import Instance, Move, Step, View
from isentrope.worlds.search_qa.generated import RELATIONS, Relation
from isentrope.worlds.search_qa.passages import clean
from isentrope.worlds.search_qa.questions import Question

if TYPE_CHECKING:
    from isentrope.worlds.search_qa.world import SearchQAWorld

# Experts for warm-up data: one that reads what it finds in the generated library, and one that knows the solution.

_PASSAGE = re.compile(r"^\[\d+\] (.+)\n(.+)$", re.MULTILINE)
_SENTENCE = re.compile(r"(?<=\.) ")


class Searcher:
    """Understands the question, searches for the thing that it is about, and follows what the passages say.

    It knows how questions and sentences are worded, but nothing of the facts: it solves what its searches find.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(f"searcher {seed}")

    def start(self, view: View, instance: Instance) -> None:
        self._read: dict[str, str] = {}
        self._queries: list[str] = []
        self._question = view.goal.removeprefix("Question: ")
        self._subject: str
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

    def __init__(self, world: SearchQAWorld) -> None:
        self._world = world

    def start(self, view: View, instance: Instance) -> None:
        question, most = self._world.question(instance), self._world.options.max_searches
        titles = list(question.titles) or [question.text]
        if most and len(titles) > most:  # the rest go into the last search
            titles = [*titles[: most - 1], " ".join(titles[most - 1 :])]
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
            for inner in (one for one in RELATIONS if one.phrase and one.value == relation.subject):
                if deeper := _pattern(inner.phrase).fullmatch(subject):
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


# actions: search[...] or answer[...], or the same between tags

MAX_TEXT = 1000  # characters of a query or an answer

_FORMS = (
    re.compile(r"(search|answer)\s*\[(.*)\]", re.IGNORECASE | re.DOTALL),
    re.compile(r"<(search|answer)>(.*)</\1>", re.IGNORECASE | re.DOTALL),
)


def read_action(action: str) -> tuple[str, str]:
    """("search", the query), ("answer", the answer), or ("problem", why it was neither)."""
    match = next(filter(None, (form.fullmatch(action.strip()) for form in _FORMS)), None)
    if match is None:
        return "problem", "That is no action here. Use search[what to look for] or answer[the answer]."
    name, text = match[1].lower(), clean(match[2])
    if not text:
        return "problem", f"There is nothing between the brackets of {name}."
    if len(text) > MAX_TEXT:
        return "problem", f"That is too long: at most {MAX_TEXT} characters."
    return name, text


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


class SearchQATask:
    """Plays one question at a time. An answer ends the episode."""

    def __init__(self, world: SearchQAWorld) -> None:
        self._world, self._options = world, world.options
        self._question: Question | None = None

    def start(self, instance: Instance) -> View:
        self._question = self._world.question(instance)
        self._searches, self._seen = 0, set[str]()
        return self._view(self._question, f"Nothing has been searched yet.{self._left()}")

    def step(self, action: str) -> Step:
        question = self._question
        if question is None:
            raise TaskError("step was called before start, or after the answer: start an instance first")
        said, words = read_action(action)
        if said == "problem":
            return Step(self._view(question, words), valid=False)
        if said == "answer":
            return self._answered(question, words)
        if 0 < self._options.max_searches <= self._searches:
            text = "There are no searches left. Give your answer with answer[the answer]."
            return Step(self._view(question, text), valid=False)
        hits = self._world.search(words)
        self._searches += 1
        self._seen.update(hit.passage.title for hit in hits)
        lines = [hit.passage.shown(number, self._options.passage_chars) for number, hit in enumerate(hits, start=1)]
        text = "\n".join(lines) if lines else "Nothing was found."
        return Step(self._view(question, f"{text}\n{self._left().strip()}".strip()), info={"found": float(len(hits))})

    def close(self) -> None:
        self._question = None

    def _answered(self, question: Question, answer: str) -> Step:
        right, f1 = best_exact_match(answer, question.answers), best_f1(answer, question.answers)
        info: dict[str, str | float | bool] = {"em": float(right), "f1": f1, "searches": float(self._searches)}
        if question.titles:
            info["recall"] = len(self._seen.intersection(question.titles)) / len(question.titles)
        self._question = None
        view = self._view(question, "The answer is right." if right else "The answer is not right.")
        reward = f1 if self._options.reward == "f1" else float(right)
        return Step(view, reward, terminated=True, success=right, info=info)

    def _left(self) -> str:
        most = self._options.max_searches
        return f" Searches left: {most - self._searches}." if most else ""

    def _view(self, question: Question, text: str) -> View:
        return View(text, None, f"Question: {question.text}", rules(self._options.max_searches))


def rules(most: int) -> str:
    limit = f" You can search {most} time{'s' if most != 1 else ''} at most." if most else ""
    return (
        "You answer a question with the help of a search engine over a collection of short texts. search[what to look "
        "for] shows the texts that fit best; search again with other words, or for something that you have read about, "
        f"until you know enough.{limit} answer[the answer] gives your answer and ends the task. Answer with the name, "
        "date, number or few words that were asked for, and nothing around them."
    )
