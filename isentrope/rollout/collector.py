"""Collects episodes: the groups of a training step, or the games of an evaluation.

`Collector.collect` plays a step when it is asked for; prefetch.py wraps a collector, with the same interface, and plays
the next step ahead. `Runner` plays a list of seats with an engine.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from isentrope.config.schema import AgentSettings, RunConfig, TaskSettings
from isentrope.core.engine import CLUSTER_NOTES, SAMPLERS_LOST, Engine, Remembering, Streaming, calling_engine
from isentrope.core.errors import TaskError
from isentrope.core.method import Method
from isentrope.core.part import calling, check_declared
from isentrope.core.types import FAILURES, Episode, RolloutPlan
from isentrope.engines.registry import engine_metrics
from isentrope.rollout.dynamic_sampling import Groups, sample_groups
from isentrope.rollout.episode import EpisodesEnded, Play, Rules, Seat
from isentrope.rollout.reward import load_reward, rewarded
from isentrope.rollout.sampler import after_step, begin, make_sampler, pick_instances
from isentrope.rollout.streaming import StreamingRollout
from isentrope.rollout.timings import Clock, Metrics
from isentrope.worlds.contract import Instance, World
from isentrope.worlds.pool.base import TaskPool
from isentrope.worlds.pool.open import open_tasks, open_world


@dataclass(frozen=True)
class Rollout:
    """The episodes of one step."""

    groups: Groups
    metrics: Metrics  # what the plan, the engine and the tasks have to tell
    seconds: Metrics  # by part; none are known of a rollout that was restored

    @property
    def episodes(self) -> list[Episode]:
        """All that were played."""
        return self.groups.kept + self.groups.dropped

    @property
    def learnt(self) -> list[Episode]:
        """Those that are learnt from: a task that broke says nothing about the policy, so its episode is stored and
        counted, but left out here."""
        return [episode for episode in self.groups.kept if episode.stop not in FAILURES]


class Collector:
    """A world, its tasks and an engine that plays them: for training, imitation and evaluation.

    `methods` may change how the episodes of training are played.
    """

    def __init__(self, config: RunConfig, engine: Engine, methods: Sequence[Method] = ()) -> None:
        self.config, self.engine, self.methods = config, engine, tuple(methods)
        self.sampler = make_sampler(config)
        task = config.task
        self.world: World = open_world(task)
        begin(self.sampler, self.world)
        self.tasks = open_tasks(
            task.world, task.options, config.rollout.batch, task.workers, task.step_seconds, task.where, self.world
        )
        self.runner = Runner(engine, self.tasks, config.agent, task, config.rollout.batch)
        self._lost_before: Metrics = {}  # samplers, between the last step and this one

    def collect(self, step: int, progress: EpisodesEnded = lambda ended: None) -> Rollout:
        """The episodes of a training step."""
        return self.play_step(step, self.plan(step), progress)

    def plan(self, step: int) -> RolloutPlan:
        """How the episodes of a step are played: as the recipe says, changed by each method in turn."""
        plan = RolloutPlan(self.config.agent.order, self.config.rollout.temperature)
        for method in self.methods:
            with calling(method, "plan"):
                plan = method.plan(step, before := plan)
                if not isinstance(cast(object, plan), RolloutPlan):
                    raise ValueError(f"gave {plan!r:.60}: expected a RolloutPlan")
                check_declared(method, {f"plan/{name}": 0 for name in plan.notes if name not in before.notes})
        return plan

    def play_step(self, step: int, plan: RolloutPlan, progress: EpisodesEnded) -> Rollout:
        self.runner.clock.take()  # an evaluation before this step is not part of it
        play = partial(self.play_groups, step, plan, progress)
        groups = sample_groups(play, self.config.rollout.groups, self.config.learn)
        metrics = {f"plan/{name}": value for name, value in plan.notes.items()} | self.notes()
        metrics |= {key: metrics[key] + lost for key, lost in self._lost_before.items()}
        metrics |= after_step(self.sampler, step, groups.kept + groups.dropped)
        return Rollout(groups, metrics, self.runner.clock.take())

    def refresh(self) -> None:
        """The policy has changed."""
        self.engine.refresh()

    def settle(self) -> Collector:
        """Itself, when nothing is being played and the engine has the policy's weights (see prefetch.py)."""
        return self

    def add_method(self, method: Method) -> None:
        """From the next plan on it may change how episodes are played."""
        self.methods = (*self.methods, method)

    def state_dict(self) -> dict[str, Any]:
        """What the sampler of tasks has learnt and what the engine remembers; nothing else has to survive, as each step
        is played when asked for."""
        states = {"sampler": self.sampler.state_dict(), "engine": self._remembered()}
        return {name: state for name, state in states.items() if state}

    def _remembered(self) -> dict[str, Any]:
        if not isinstance(self.engine, Remembering):
            return {}
        with calling_engine(self.engine, "state_dict"):
            return self.engine.state_dict()

    def _remember(self, state: Mapping[str, Any]) -> None:
        if state and isinstance(self.engine, Remembering):
            with calling_engine(self.engine, "load_state_dict"):
                self.engine.load_state_dict(state)

    @contextmanager
    def _without_trace(self) -> Generator[None]:
        """What is played in here is not remembered: a run that is ended in the middle of it goes on as if it had not
        been begun."""
        before = self._remembered()
        try:
            yield
        finally:
            self._remember(before)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if "sampler" in state:
            with calling(self.sampler, "load_state_dict"):
                self.sampler.load_state_dict(dict(state["sampler"]))
        self._remember(state.get("engine", {}))

    def play_groups(
        self,
        step: int,
        plan: RolloutPlan,
        progress: EpisodesEnded = lambda ended: None,
        attempt: int = 0,
        groups: int = 0,
    ) -> list[Episode]:
        """The episodes of a training step: groups on instances that are new at every step, and at every attempt."""
        if attempt == 0:
            before = self.notes()  # an evaluation before this step is not part of it
            self._lost_before = {key: before[key] for key in before if key.removeprefix("engine/") in SAMPLERS_LOST}
        rollout = self.config.rollout
        instances = pick_instances(self.sampler, self.world, groups or rollout.groups, step, attempt)
        name = f"train/{step}" if attempt == 0 else f"train/{step}/{attempt}"
        first = attempt * rollout.groups  # so that no two groups of a step have the same number
        return self._play(instances, rollout.group_size, plan, name, progress, first)

    def play(
        self,
        instances: Sequence[Instance],
        samples: int,
        plan: RolloutPlan,
        name: str,
        progress: EpisodesEnded = lambda ended: None,
    ) -> list[Episode]:
        """A group of `samples` episodes on each instance, beside training. `name` names the random numbers."""
        with self._without_trace():
            return self._play(instances, samples, plan, name, progress)

    def _play(
        self,
        instances: Sequence[Instance],
        samples: int,
        plan: RolloutPlan,
        name: str,
        progress: EpisodesEnded,
        first_group: int = 0,
    ) -> list[Episode]:
        seats = [Seat(instance, first_group + g, m) for g, instance in enumerate(instances) for m in range(samples)]
        return self.runner.play(seats, plan, self.config.run.seed, name, progress)

    def evaluate(
        self,
        split: str,
        games: int,
        plan: RolloutPlan,
        progress: EpisodesEnded = lambda ended: None,
        samples: int = 1,
    ) -> list[Episode]:
        """`samples` episodes on each of `games` instances of a split from `eval.first_game` on: always the same."""
        known = self.world.splits()
        if split not in known:
            raise TaskError(f"{self.world.name} has no split {split!r}; it has {', '.join(known)}")
        instances = self.instances(split, games, self.config.eval.first_game, "eval.first_game")
        return self.play(instances, samples, plan, f"eval/{split}", progress)

    def instances(self, split: str, count: int, first: int, setting: str) -> list[Instance]:
        """`count` instances of a split from `first` on, or as many as there are. An error names `setting`."""
        size = self.world.size(split)
        there = count if size is None else min(count, size - first)
        if there <= 0:
            there_are = f"only {size} games" if size else "no games"
            raise TaskError(f"{setting} = {first}: {self.world.name} has {there_are} in {split!r}")
        return [self.world.instance(split, first + i) for i in range(there)]

    def notes(self) -> dict[str, float]:
        """What the engine and the tasks have to tell since this was asked last, under the names of metrics."""
        with calling_engine(self.engine, "notes"):
            engine = {f"engine/{name}": float(value) for name, value in self.engine.notes().items()}
            declared = engine_metrics(self.config)
            of_cluster = {f"engine/{name}" for name in CLUSTER_NOTES}
            for key in sorted(engine.keys() - of_cluster) if declared is not None else ():
                if all(metric.match(key) is None for metric in declared or ()):
                    raise ValueError(f"gave the metric {key!r}, which `metrics` of its class does not declare")
        return engine | {f"tasks/{name}": value for name, value in self.tasks.notes().items()}

    def close(self) -> None:
        self.tasks.close()
        self.engine.close()

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Runner:
    """Plays episodes: many at once, turn by turn, each bounded in turns, tokens and time.

    All conversations of a batch answer together, then all their tasks take a step together; with an engine that takes
    requests while others are being answered (`Streaming`) every conversation goes on at its own pace instead
    (streaming.py). The episodes are the same. Whatever a task does wrong becomes a recorded failure of its episode; the
    others go on.
    """

    def __init__(self, engine: Engine, tasks: TaskPool, agent: AgentSettings, task: TaskSettings, batch: int) -> None:
        self.engine, self.tasks, self.agent, self.task, self.batch = engine, tasks, agent, task, batch
        self.clock, self.reward = Clock(), load_reward(task.reward)

    def play(
        self,
        seats: Sequence[Seat],
        plan: RolloutPlan,
        seed: int,
        name: str,
        progress: EpisodesEnded = lambda ended: None,
    ) -> list[Episode]:
        """All episodes, in the order of the seats. `name` names the random numbers, e.g. "train/12"."""
        rules = Rules(self.engine.tokenizer, self.agent, self.task, plan, seed, name)
        with self.clock("play"):
            if isinstance(self.engine, Streaming):
                episodes = StreamingRollout(self.engine, self.tasks, rules, self.batch, self.clock).play(
                    seats, progress
                )
            else:
                episodes: list[Episode] = []
                for at in range(0, len(seats), self.batch):
                    episodes += self._together(seats[at : at + self.batch], rules, progress)
            self.engine.open(())  # the update that follows needs the memory
        return [rewarded(episode, self.reward) for episode in episodes]

    def _together(self, seats: Sequence[Seat], rules: Rules, progress: EpisodesEnded) -> list[Episode]:
        """Turn by turn, all at the same time."""
        with self.clock("tasks"):
            views = self.tasks.start({slot: seat.instance for slot, seat in enumerate(seats)})
        plays = [rules.seated(seat, views[slot]) for slot, seat in enumerate(seats)]
        self.engine.open(range(len(plays)))
        live = {slot: play for slot, play in enumerate(plays) if not play.stop}
        progress(len(plays) - len(live))
        while live:
            self._turn(live, rules)
            ended = [slot for slot, play in live.items() if play.stop]
            for slot in ended:
                del live[slot]
            progress(len(ended))
            self.engine.keep(list(live))
        return [rules.episode(play) for play in plays]

    def _turn(self, live: dict[int, Play], rules: Rules) -> None:
        """One response of every live conversation and the step that follows from it."""
        requests = [request for slot, play in live.items() if (request := rules.request(slot, play)) is not None]
        if not requests:
            return
        with self.clock("engine", "tasks_idle"), calling_engine(self.engine, "sample"):
            sampled = self.engine.sample(requests)
            if len(sampled) != len(requests):
                raise ValueError(f"gave {len(sampled)} responses to {len(requests)} requests")
        answers = dict(zip([request.slot for request in requests], sampled, strict=True))
        for slot, answer in answers.items():
            if answer.stop == "error":
                live[slot].fail("engine_error", answer.detail)
        parsed = {slot: rules.read(answer) for slot, answer in answers.items() if answer.stop != "error"}
        actions = {slot: read.action for slot, read in parsed.items() if read.action is not None}
        with self.clock("tasks"):
            steps = self.tasks.step(actions) if actions else {}
        for slot, read in parsed.items():
            rules.record(live[slot], answers[slot], read, steps.get(slot))
