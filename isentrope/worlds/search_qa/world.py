"""Question answering with a search engine: search as often as needed, read what is found, answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from isentrope.config.schema import setting
from isentrope.core import needs
from isentrope.core.errors import TaskError
from isentrope.worlds.contract import Expert, Instance
from isentrope.worlds.files import mixed
from isentrope.worlds.search_qa import generated
from isentrope.worlds.search_qa.passages import Hit
from isentrope.worlds.search_qa.questions import Question, find_corpus, read_sets
from isentrope.worlds.search_qa.retrievers import KINDS, Remote, Retriever, index_of, open_corpus, over
from isentrope.worlds.search_qa.task import Searcher, SearchQATask, Solver

NEEDS = {"bm25": needs.NEEDS["search"], "dense": needs.NEEDS["dense"]}

THREADS = 16  # tasks that wait for a retrieval server at the same time


@dataclass(frozen=True)
class SearchQAOptions:
    data: str = setting("", "question file, or folder of question files; empty: generated questions and passages")
    sets: tuple[str, ...] = setting(
        (), "data sets to ask from: nq, triviaqa, popqa, hotpotqa, 2wiki, musique, bamboogle, or your own; empty: all"
    )
    corpus: str = setting("", "file of passages; empty: the one file in the folder `data` that is called a corpus")
    retriever: str = setting("bm25", "bm25; dense; or the address of a retrieval server, as http://127.0.0.1:8000")
    topk: int = setting(3, "passages that a search shows", low=1, high=100)
    passage_chars: int = setting(800, "characters of a passage that are shown", low=20)
    max_searches: int = setting(4, "searches in an episode, then only an answer is taken; 0: no limit", low=0)
    reward: str = setting("em", "what an answer is worth: exact match, or the F1 of its words", choices=("em", "f1"))
    passages: int = setting(400, "passages of the generated corpus", low=50, high=100_000)
    cache: str = setting("", "folder for the indexes of corpus files; empty: $ISENTROPE_CACHE or ~/.cache/isentrope")
    # below task.step_seconds, after which nobody waits for the search any more
    timeout: float = setting(20.0, "retrieval server: seconds that a search may take, with all its attempts", above=0)
    retries: int = setting(3, "retrieval server: times that a failed search is made again, time permitting", low=0)


class SearchQAWorld:
    name = "search_qa"

    def __init__(self, options: SearchQAOptions | None = None) -> None:
        self.options = options or SearchQAOptions()
        self._lock = Lock()
        self._retriever: Retriever | None = None
        self.threads = 0 if self.options.retriever in KINDS else THREADS
        self._check_options()
        self._questions: Mapping[str, Sequence[tuple[str, Question]]]  # by split, each with its kind
        if self.options.data:
            sets = read_sets(Path(self.options.data).expanduser(), self.options.sets)
            self._questions = {split: mixed(by_name) for split, by_name in sets.items()}
            if self.options.retriever in KINDS:  # here and not in a worker's first step, which has to be quick
                index_of(self._corpus(), self.options.retriever, self.options.cache)
        else:
            self._questions = generated.library(self.options.passages).questions
        self.kinds = tuple(sorted({kind for asked in self._questions.values() for kind, _ in asked}))

    def splits(self) -> Sequence[str]:
        return tuple(self._questions)

    def size(self, split: str) -> int:
        self._check(split, 0)
        return len(self._questions[split])

    def instance(self, split: str, index: int) -> Instance:
        self._check(split, index)
        return Instance(self.name, split, index, self._questions[split][index][0])

    def question(self, instance: Instance) -> Question:
        self._check(instance.split, instance.index)
        return self._questions[instance.split][instance.index][1]

    def fingerprint(self, instance: Instance) -> str:
        return self.question(instance).text

    def open(self) -> SearchQATask:
        self.retriever()
        return SearchQATask(self)

    def expert(self, seed: int) -> Expert | None:
        if not self.options.data:
            return Searcher(seed)
        if any(question.titles for asked in self._questions.values() for _, question in asked):
            return Solver(self)
        return None

    def search(self, query: str) -> list[Hit]:
        return self.retriever().search([query], self.options.topk)[0]

    def retriever(self) -> Retriever:
        """Made when first needed, and then shared by all tasks of this process."""
        with self._lock:
            if self._retriever is None:
                self._retriever = self._make_retriever()
            return self._retriever

    def _make_retriever(self) -> Retriever:
        options = self.options
        if options.retriever not in KINDS:
            return Remote(options.retriever, options.timeout, options.retries)
        if not options.data:
            return over(generated.library(options.passages).passages, options.retriever)
        return open_corpus(self._corpus(), options.retriever, options.cache)

    def _corpus(self) -> Path:
        options = self.options
        found = Path(options.corpus).expanduser() if options.corpus else find_corpus(Path(options.data).expanduser())
        if found is None:
            raise TaskError(
                f"data = {options.data!r} has questions, but no single file called a corpus: name the file of passages "
                "with the option corpus, or a retrieval server with the option retriever"
            )
        return found

    def _check_options(self) -> None:
        options = self.options
        if options.retriever in NEEDS and (missing := NEEDS[options.retriever].missing()):
            raise TaskError(f"search_qa with retriever = {options.retriever!r} needs {'; '.join(missing)}")
        if options.retriever not in KINDS:
            Remote(options.retriever)  # says what is wrong with the address
        elif options.data:
            corpus = self._corpus()
            if not corpus.is_file():
                raise TaskError(f"corpus = {str(corpus)!r}: no such file")
        if not options.data and (options.corpus or options.sets):
            raise TaskError("corpus and sets are for questions of your own: name their file or folder with data")

    def _check(self, split: str, index: int) -> None:
        if split not in self._questions:
            hint = "" if "train" in self._questions else "; none of its files holds questions for training"
            raise TaskError(f"search_qa has no split {split!r}; it has {', '.join(self._questions)}{hint}")
        if not 0 <= index < len(self._questions[split]):
            raise TaskError(f"there is no question number {index} in {split!r}: it has {len(self._questions[split])}")


@dataclass(frozen=True)
class Recall:
    """How good the search is: the share of a question's supporting passages that the question itself finds."""

    questions: int
    shares: dict[int, float]  # by the number of passages looked at


def recall(world: SearchQAWorld, split: str, depths: Sequence[int], most: int = 10_000) -> dict[str, Recall]:
    """For each data set, over its questions that name their passages: found titles / supporting titles, averaged.

    Only the first `most` questions of the split are asked.
    """
    instances = [world.instance(split, index) for index in range(min(most, world.size(split)))]
    asked = [(one.kind, question) for one in instances if (question := world.question(one)).titles]
    hits = world.retriever().search([question.text for _, question in asked], max(depths))
    found: dict[str, list[list[float]]] = {}
    for (kind, question), row in zip(asked, hits, strict=True):
        titles = [hit.passage.title for hit in row]
        shares = [len(set(question.titles).intersection(titles[:depth])) / len(question.titles) for depth in depths]
        found.setdefault(kind, []).append(shares)
    return {
        kind: Recall(len(rows), {depth: sum(row[i] for row in rows) / len(rows) for i, depth in enumerate(depths)})
        for kind, rows in sorted(found.items())
    }
