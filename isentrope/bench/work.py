"""The work of one GRPO step in numbers, and how long it took: the same for every trainer that is measured."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from isentrope.bench.driven import WORLD, DrivenTokenizer
from isentrope.bench.shapes import SHAPES, write_random_model
from isentrope.config.load import load_config
from isentrope.config.schema import RunConfig
from isentrope.core.types import Episode, RolloutPlan
from isentrope.engines.registry import make_engine
from isentrope.learning.learner import Learner
from isentrope.loop.session import use_threads
from isentrope.models.load import load_policy
from isentrope.models.policy import Policy
from isentrope.rollout.collector import Collector


@dataclass(frozen=True)
class Work:
    """What both sides do in a step."""

    model: str  # pocket, a model folder, or one of `shapes.SHAPES`: random weights
    device: str = "cpu"
    groups: int = 4
    group_size: int = 8
    turns: int = 10
    response: int = 32  # tokens
    context: int = 4096  # tokens a conversation may have
    rooms: str = "full"
    prompt: str = "full"
    words: int = 0  # added to the first observation
    driven: bool = True  # responses of fixed length that choose actions by chance; else as the model says
    seed: int = 0
    own_time: bool = False  # count the time that the process itself used, so that other programs disturb less

    @property
    def episodes(self) -> int:
        return self.groups * self.group_size

    def with_model_in(self, folder: Path) -> Work:
        """The same with its model as a folder: written there if it is a shape."""
        if self.model not in SHAPES:
            return self
        return replace(self, model=str(write_random_model(self.model, folder / self.model, max(8192, self.context))))

    def config(self, extra: Sequence[str] = ()) -> RunConfig:
        """Our settings for it. `extra` are further `section.name=value`."""
        world = [f"task.world={WORLD}", f"task.options.words={self.words}"] if self.driven else ["task.world=household"]
        return load_config(
            None,
            [
                *world,
                f"task.options.rooms={self.rooms}",
                f"task.max_turns={self.turns}",
                f"agent.prompt={self.prompt}",
                f"agent.max_response={self.response}",
                f"agent.max_context={self.context}",
                "agent.overflow=end",
                f"policy.model={self.model}",
                f"run.device={self.device}",
                f"run.seed={self.seed}",
                f"rollout.groups={self.groups}",
                f"rollout.group_size={self.group_size}",
                f"rollout.batch={min(self.episodes, 256)}",
                "learn.kl=0",
                "learn.lr=1e-6",
                *extra,
            ],
        )


@dataclass(frozen=True)
class Spent:
    """Seconds of one step, and what was done in them."""

    rollout: float
    update: float
    sampled: int  # tokens that the model wrote
    whole: int  # tokens of all conversations, prompts and observations included

    @property
    def step(self) -> float:
        return self.rollout + self.update


def typical(steps: Sequence[Spent]) -> Spent:
    """The median of each."""
    return Spent(
        statistics.median(s.rollout for s in steps),
        statistics.median(s.update for s in steps),
        round(statistics.median(s.sampled for s in steps)),
        round(statistics.median(s.whole for s in steps)),
    )


def clock(work: Work) -> float:
    if work.device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.process_time() if work.own_time else time.perf_counter()


class Ours:
    """Rollout and update as the training loop does them."""

    def __init__(self, work: Work, config: RunConfig, loaded: Policy | None = None) -> None:
        self.work, self.config = work, config
        use_threads(config)
        policy = loaded or load_policy(config.policy, config.run)
        if work.driven:
            policy = replace(policy, tokenizer=DrivenTokenizer(policy.tokenizer, work.response))
        self.learner = Learner(policy, None, config)
        self.collector = Collector(config, make_engine(config, policy))

    def step(self, number: int) -> Spent:
        use_threads(self.config)
        begin = clock(self.work)
        episodes = self.collector.play_groups(
            number, RolloutPlan(self.config.agent.order, self.config.rollout.temperature)
        )
        middle = clock(self.work)
        self.learner.learn(number, episodes)
        self.collector.engine.refresh()
        end = clock(self.work)
        return Spent(middle - begin, end - middle, *_tokens(episodes))

    def close(self) -> None:
        self.collector.close()


def _tokens(episodes: Sequence[Episode]) -> tuple[int, int]:
    turns = [turn for episode in episodes for turn in episode.turns]
    sampled = sum(len(turn.response_ids) for turn in turns)
    return sampled, sampled + sum(len(turn.context_ids) for turn in turns)
