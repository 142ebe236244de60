"""A run of the whole loop whose updates are watched: what each was given, and the weights around it."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from isentrope.config.schema import RunConfig
from isentrope.core.types import Episode
from isentrope.learning import learner as learning
from isentrope.learning.learner import Credited, Learner
from isentrope.loop.train import train
from tests.audit.naive import Form, Tokens, Weights, form_of, look, tokens_of, weights_of
from tests.audit.staged import Watched, rewarded


class Killed(BaseException):
    """Stands for the end of the process."""


@dataclass
class Update:
    step: int
    episodes: list[Episode]
    tokens: Tokens
    optimised: list[dict[str, Any]]
    metrics: dict[str, float]


@dataclass
class Diary:
    versions: list[Weights] = field(default_factory=list)  # θ0, θ1, ... in float64
    updates: list[Update] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    form: Form | None = None
    final: list[torch.Tensor] = field(default_factory=list)


@contextmanager
def watching(die_at: int = 0) -> Generator[Diary]:
    """Updates learn from drawn rewards and are written down; `die_at`: a step whose update never comes."""
    diary, plain_credit, plain_update = Diary(), Learner.credit, Learner.update
    watches: dict[int, Watched] = {}

    def credit(self: Learner, step: int, episodes: Sequence[Episode]) -> Credited:
        if step == die_at:
            raise Killed
        if not diary.versions:
            diary.versions.append(weights_of(self.policy.module))
            model: Any = self.policy.model
            diary.form = form_of(model.shape)
            diary.names = [name for name, _ in self.policy.module.named_parameters()]
        return plain_credit(self, step, rewarded(episodes, step))

    def update(self: Learner, credited: Credited) -> learning.Update:
        if id(self) not in watches:
            watches[id(self)] = Watched(self.optimiser)
        watch = watches[id(self)]
        begin, given = len(watch.steps), list(credited.episodes)
        made = plain_update(self, credited)
        diary.versions.append(weights_of(self.policy.module))
        diary.updates.append(Update(credited.step, given, tokens_of(given), watch.steps[begin:], made.metrics))
        diary.final = [p.detach().clone().cpu() for p in self.policy.module.parameters()]
        return made

    Learner.credit, Learner.update = credit, update  # type: ignore[method-assign]
    try:
        yield diary
    finally:
        Learner.credit, Learner.update = plain_credit, plain_update  # type: ignore[method-assign]


def run(config: RunConfig, out: Path, resume: bool = False, die_at: int = 0) -> Diary:
    torch.manual_seed(0)
    with watching(die_at) as diary:
        try:
            train(config, out, resume=resume, quiet=True)
        except Killed:
            pass
    return diary


def scores(diary: Diary, number: int, update: Update) -> np.ndarray:
    """Log-probs that version θ_number gives to the tokens of an update."""
    assert diary.form is not None
    with torch.no_grad():
        return look(diary.versions[number], diary.form, update.tokens).logp.numpy()


def distances(diary: Diary, update: Update) -> list[float]:
    """Mean distance of the recorded log-probs from those of each version that there was when the update ended."""
    return [float(np.abs(scores(diary, k, update) - update.tokens.recorded).mean()) for k in range(len(diary.versions))]


def written(out: Path) -> dict[str, Any]:
    """What a run leaves behind that must not depend on whether it was killed."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    episodes = {p.name: p.read_bytes() for p in sorted((out / "episodes").glob("*.parquet"))}
    return {"metrics": lines, "episodes": episodes}
