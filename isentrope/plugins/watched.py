"""Our instruments beside another trainer: they write a run folder of its run, and never end it.

    guard = Guard()
    with guard("opening the run folder"):
        watcher = Watcher(WatchedFolder(path, entry), words)
    with guard("writing step 3"):
        watcher.step(3, Looked(episodes, scores, metrics), timings)

Whatever goes wrong inside of a guard is a warning, once for each kind of trouble, and the trainer goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from isentrope.core.text import plain
from isentrope.core.types import Episode, Metrics, Scores
from isentrope.diagnosis.findings.imported import event_in_words_of
from isentrope.metrics.episodes import eval_metrics, rollout_metrics
from isentrope.metrics.glossary import UnknownMetric, entry_of
from isentrope.metrics.log import MetricsLog
from isentrope.metrics.observe import Observer
from isentrope.runs.beside import WatchedFolder
from isentrope.runs.episodes import write_episodes
from isentrope.runs.layout import eval_path, names_a_file
from isentrope.runs.token_texts import TokenTexts

LOG = logging.getLogger("isentrope")

_OF_SUCCESS = (
    "success/", "entropy/outcome/", "likelihood/solved", "likelihood/failed", "response/outcome/",
)  # fmt: skip
_OF_FORM = (
    "valid_ratio", "verdict/", "likelihood/valid", "entropy/think", "entropy/action", "entropy/other",
    "response/thoughts", "response/think_tokens", "response/action_tokens", "degeneracy/repeated_actions",
)  # fmt: skip
_OF_TASK = ("accepted/", "degeneracy/hallucinated")


class Guard:
    """Turns errors into warnings."""

    def __init__(self) -> None:
        self.failures = 0
        self._said: set[str] = set()

    @contextmanager
    def __call__(self, doing: str) -> Generator[None]:
        try:
            yield
        except Exception as error:  # whatever it is: the training must go on
            self.failures += 1
            kind = type(error).__name__
            if kind not in self._said:
                self._said.add(kind)
                told = plain(" ".join(str(error).split())[:300])
                LOG.warning(
                    f"isentrope: {doing} failed ({kind}: {told}). The training goes on; its run folder may lack this "
                    "and later steps. More of the same will not be said"
                )


@dataclass(frozen=True)
class Looked:
    """A step of the trainer as our instruments see it."""

    episodes: Sequence[Episode]
    scores: Scores | None
    metrics: Metrics
    judged: bool = True  # whether it is known what solves a task
    formed: bool = True  # whether responses have a form
    played: bool = True  # whether it is known what the task made of an action


class Watcher:
    """Writes the steps of a run into its folder."""

    def __init__(self, folder: WatchedFolder, words: Sequence[bytes], names: str) -> None:
        """`words`: what each token reads as; `names`: the trainer in whose words advice is given."""
        self.folder, self.names = folder, names
        self.observer = Observer(TokenTexts(words) if words else None)
        self.log = MetricsLog(folder.path, board=False)
        self._failed = False
        if folder.fresh and words:
            folder.write_tokens(words)

    def step(self, step: int, looked: Looked, timings: Mapping[str, float]) -> None:
        if self._failed:  # a full disk may have cut a line off
            self.folder.mend()
        self._failed = True
        metrics = rollout_metrics(looked.episodes) | looked.metrics
        metrics |= self.observer.of_episodes(looked.episodes, looked.scores)
        metrics = _known(metrics, looked)
        seen = self.observer.running.look(step, metrics)
        self.log.write(step, metrics | _known(seen.metrics, looked))
        self.log.write_timings(step, timings)
        self.log.write_events([event_in_words_of(event, self.names) for event in seen.events])
        for event in seen.events:
            if event["kind"] == "alarm":
                LOG.warning(f"isentrope: step {step}: ALARM {event['name']}: {event['text']}")
        self.folder.write_step(step, looked.episodes, looked.scores)
        self._failed = False

    def evaluation(self, step: int, split: str, looked: Looked) -> None:
        split = split if names_a_file(split) else "eval"
        metrics = eval_metrics(split, looked.episodes)
        if not looked.judged:
            lost = (f"eval/{split}/success", f"eval/{split}/low", f"eval/{split}/high")
            metrics = {key: value for key, value in metrics.items() if not key.startswith(lost)}
        if not looked.formed:
            lost = (f"eval/{split}/valid_ratio", f"eval/{split}/thoughts")
            metrics = {key: value for key, value in metrics.items() if key not in lost}
        write_episodes(eval_path(self.folder.path, step, split), looked.episodes)
        self.log.write(step, metrics, kind="eval")

    def state_dict(self) -> dict[str, Any]:
        return self.observer.running.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.observer.running.load_state_dict(state)

    def close(self) -> None:
        self.log.close()
        self.folder.close()


def _known(metrics: Mapping[str, float], looked: Looked) -> Metrics:
    """Without what cannot be told of this run, and without names that nobody has declared."""
    hidden = (() if looked.judged else _OF_SUCCESS) + (() if looked.formed else _OF_FORM)
    hidden += () if looked.played else _OF_TASK
    found: Metrics = {}
    for key, value in metrics.items():
        if key.startswith(hidden) or key.endswith("/unnamed"):
            continue
        try:
            entry_of(key)
        except UnknownMetric:
            continue
        found[key] = value
    return found
