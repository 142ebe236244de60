"""Your own questions: a file of them, and functions that say what an answer is worth.

isentrope train dataset --out runs/first --set task.options.file=train.jsonl
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from isentrope.core.errors import TaskError
from isentrope.worlds.contract import REWARD, Expert, Instance, Move, Step, View
from isentrope.worlds.dataset.checkers import Choice, Extract, after_hashes
from isentrope.worlds.dataset.options import AUTO, DatasetOptions
from isentrope.worlds.dataset.question import Question
from isentrope.worlds.dataset.reader import Reader, read_splits
from isentrope.worlds.dataset.rewards import BUILT_IN, COMPARE, THREADS, UNBOUNDED, Rewards, fitting
from isentrope.worlds.files import mixed

KINDS = 200  # of question, at most: each has metrics of its own
_ADVICE = "You are asked one question."


class DatasetWorld:
    name = "dataset"

    def __init__(self, options: DatasetOptions | None = None) -> None:
        self.options = options or DatasetOptions()
        rows = read_splits(self.options)
        columns = frozenset(name for split in rows.values() for _, row in split[:100] for name in row)
        reader = Reader(self.options, columns)
        self._questions = {split: list(reader.questions(split, found)) for split, found in rows.items()}
        every = [one for split in self._questions.values() for one in split]
        _check_ids(every)
        names = self.options.rewards or (fitting(every, self.options),)
        self.rewards = Rewards(names, self.options, columns)
        self._check_scored()
        self.kinds = _kinds_of(every, self.options.kind)
        self._questions = {split: _dealt(found) for split, found in self._questions.items()}
        self.system = f"{_ADVICE} {self.rewards.hint}".strip() if self.options.system == AUTO else ""
        if any(name not in BUILT_IN or name in UNBOUNDED for name in names):
            self.prefers = "processes"
        else:
            self.threads = max((THREADS.get(name, 0) for name in names), default=0)
        self.deterministic = "judge" not in names

    def splits(self) -> Sequence[str]:
        return tuple(self._questions)

    def size(self, split: str) -> int:
        return len(self._of(split))

    def instance(self, split: str, index: int) -> Instance:
        return Instance(self.name, split, index, self._question(split, index).kind)

    def question(self, instance: Instance) -> Question:
        return self._question(instance.split, instance.index)

    def fingerprint(self, instance: Instance) -> object:
        question = self.question(instance)
        return question.prompt, question.answers

    def open(self) -> DatasetTask:
        return DatasetTask(self)

    def expert(self, seed: int) -> Expert | None:
        known = all(question.answers for split in self._questions.values() for question in split)
        return AnswerSheet(self) if known and self.rewards.names[0] in COMPARE else None

    def _of(self, split: str) -> list[Question]:
        if split not in self._questions:
            raise TaskError(f"the data set has no split {split!r}; it has {', '.join(self._questions)}")
        return self._questions[split]

    def _question(self, split: str, index: int) -> Question:
        questions = self._of(split)
        if not 0 <= index < len(questions):
            raise TaskError(f"there is no question number {index} in {split!r}: it has {len(questions)}")
        return questions[index]

    def _check_scored(self) -> None:
        for split, questions in self._questions.items():
            wrong = [(one, problem) for one in questions if (problem := self.rewards.problem(one))]
            if wrong:
                question, problem = wrong[0]
                raise TaskError(
                    f"{len(wrong)} of {len(questions)} questions in {split!r} cannot be scored. The first, "
                    f"{question.id}: {problem}"
                )


class DatasetTask:
    """Asks one question. Each answer is scored; the last one counts."""

    def __init__(self, world: DatasetWorld) -> None:
        self._world = world
        self._question: Question | None = None
        self._left, self._so_far = 0, 0.0

    def start(self, instance: Instance) -> View:
        self._question = self._world.question(instance)
        self._left, self._so_far = self._world.options.tries, 0.0
        return self._view("")

    def step(self, action: str) -> Step:
        question = self._question
        if question is None:
            raise TaskError("step was called before start, or after the last answer: start an instance first")
        scored = self._world.rewards.score(question, _answer_of(action))
        reward, self._so_far = scored.reward - self._so_far, scored.reward
        self._left -= 1
        over = scored.solved or not self._left
        text = self._world.options.feedback if not over else "That is right." if scored.solved else "That is not right."
        view = self._view(text)
        info: dict[str, str | float | bool] = {f"{REWARD}{name}": value for name, value in scored.parts.items()}
        if over:
            self._question = None
        return Step(view, reward, terminated=over, success=scored.solved, info={"id": question.id, **info})

    def close(self) -> None:
        self._question = None

    def _view(self, text: str) -> View:
        question = self._question
        assert question is not None
        return View(text, None, question.prompt, question.system or self._world.system)


class AnswerSheet:
    """The expert: it has the right answers. Of one with a way to it (GSM8K) the way is the thought."""

    def __init__(self, world: DatasetWorld) -> None:
        self._world = world

    def start(self, view: View, instance: Instance) -> None:
        question = self._world.question(instance)
        answer = question.answers[0]
        result = after_hashes(answer)
        self._move = Move(answer.rpartition("####")[0].strip(), result) if result else Move("", answer)
        if self._world.rewards.names[0] == "choice":
            self._move = Move("", Choice(Extract(), self._world.options.answer).right(question) or answer)

    def act(self, view: View) -> Move:
        return self._move


def _answer_of(action: str) -> str:
    """What stands in a tag called answer, as its form gives it: answer[42]."""
    inside = action.strip()
    return inside[7:-1] if inside.startswith("answer[") and inside.endswith("]") else action


def _check_ids(questions: Sequence[Question]) -> None:
    twice = [name for name, count in Counter(one.id for one in questions).items() if count > 1]
    if twice:
        raise TaskError(
            f"task.options.id: {len(twice)} names stand in more than one row, the first is {twice[0]!r:.80}"
        )


def _kinds_of(questions: Sequence[Question], column: str) -> tuple[str, ...]:
    kinds = sorted({one.kind for one in questions})
    if len(kinds) > KINDS:
        raise TaskError(
            f"task.options.kind = {column!r} has {len(kinds):,} different values; at most {KINDS} are kinds"
        )
    return tuple(kinds)


def _dealt(questions: Sequence[Question]) -> list[Question]:
    """Kinds spread evenly, so that the first questions of a split, which a quick evaluation asks, have all of them."""
    by_kind: dict[str, list[Question]] = {}
    for one in questions:
        by_kind.setdefault(one.kind, []).append(one)
    return [question for _, question in mixed(by_kind)] if len(by_kind) > 1 else list(questions)
