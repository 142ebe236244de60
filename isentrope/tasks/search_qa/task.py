"""One question: searches, then an answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from isentrope.errors import TaskError
from isentrope.tasks.contract import Instance, Step, View
from isentrope.tasks.search_qa.actions import read_action
from isentrope.tasks.search_qa.passages import Hit
from isentrope.tasks.search_qa.questions import Question
from isentrope.tasks.search_qa.scoring import best_exact_match, best_f1


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
