"""An engine that answers each conversation when it is done, in any order: the episodes stay the same."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isentrope.config.schema import AgentSettings, TaskSettings
from isentrope.core.engine import Request, Sampled, Streaming
from isentrope.core.types import Episode, RolloutPlan
from isentrope.engines.torch import TorchEngine
from isentrope.models.policy import Policy
from isentrope.models.sources.pocket import PocketTokens
from isentrope.rollout.collector import Runner
from isentrope.rollout.episode import Seat
from isentrope.worlds.contract import Step
from isentrope.worlds.pool.base import TaskPool
from isentrope.worlds.pool.open import LocalTasks
from isentrope.worlds.pool.processes import WorkerTasks
from isentrope.worlds.pool.threads import ThreadTasks
from tests.models.helpers import small_policy
from tests.toys import ToyOptions, ToyTask, ToyWorld
from tests.worlds.pool.odd_worlds import HERE, OddWorld, Threaded

AGENT = AgentSettings(prompt="brief", max_response=12, max_context=400)
TASK = TaskSettings(max_turns=5)
LINES = [
    "<think>x</think><action>add one</action>",
    "<think>x</think><action>add one</action>",
    "<think>x</think><action>look</action>",
    "<think>x</think><action>raise</action>",
    "<think>x</think><action>dance</action>",
    "no tags",
    "",  # the engine fails
]


class Chooses(TorchEngine):
    """Says one of the lines, chosen by the random number that comes with the request."""

    def sample(self, requests: Sequence[Request]) -> list[Sampled]:
        return [self._said(request) for request in requests]

    def _said(self, request: Request) -> Sampled:
        line = LINES[int(request.uniforms[0] * len(LINES))]
        if not line:
            return Sampled(*(np.zeros(0, t) for t in (np.int32, *[np.float32] * 3)), "error", "no answer")  # type: ignore[arg-type]
        ids = np.array(self.tokenizer.answer(line), dtype=np.int32)
        logprobs = np.resize(request.uniforms, len(ids))
        return Sampled(ids, logprobs, logprobs, logprobs * 0 + 1, "tag")


def scrambled(kind: type[TorchEngine], policy: Policy, seed: int) -> TorchEngine:
    """An engine of this kind that takes requests at any time and answers a few of them, drawn at random."""

    class Scrambled(kind):
        def __init__(self) -> None:
            super().__init__(policy)
            self.under_way: dict[int, Request] = {}
            self.random, self.most = random.Random(seed), 0

        @property
        def waiting(self) -> int:
            return len(self.under_way)

        def submit(self, requests: Sequence[Request]) -> None:
            for request in requests:
                assert request.slot not in self.under_way
                self.under_way[request.slot] = request
            self.most = max(self.most, self.waiting)

        def collect(self) -> dict[int, Sampled]:
            chosen = self.random.sample(sorted(self.under_way), self.random.randint(1, self.waiting))
            return dict(zip(chosen, self.sample([self.under_way.pop(slot) for slot in chosen]), strict=True))

    return Scrambled()


def play(engine: TorchEngine, tasks: TaskPool, seats: Sequence[Seat], batch: int, **changes: object) -> list[Episode]:
    finished: list[int] = []
    runner = Runner(engine, tasks, replace(AGENT, **changes), TASK, batch)  # type: ignore[arg-type]
    episodes = runner.play(seats, RolloutPlan(), 3, "test", finished.append)
    assert sum(finished) == len(seats)
    assert tasks.waiting == 0
    return episodes


def seats(count: int, world: ToyWorld) -> list[Seat]:
    """Two of each game; the fourth cannot be started."""
    return [Seat(world.instance("train", 667 if i // 2 == 3 else i // 2), i // 2, i % 2) for i in range(count)]


def same(ours: Episode, theirs: Episode, tolerance: float = 0.0) -> None:
    assert replace(ours, turns=()) == replace(theirs, turns=())
    assert len(ours.turns) == len(theirs.turns)
    for a, b in zip(ours.turns, theirs.turns, strict=True):
        for name in ("context_ids", "response_ids", "temperatures"):
            assert np.array_equal(getattr(a, name), getattr(b, name))
        for name in ("logprobs", "entropies"):
            np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=0, atol=tolerance)
        nothing = dict.fromkeys(("context_ids", "response_ids", "temperatures", "logprobs", "entropies"))
        assert replace(a, **nothing) == replace(b, **nothing)  # type: ignore[arg-type]


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**16), count=st.integers(0, 20), batch=st.integers(1, 8), context=st.sampled_from([60, 400])
)
def test_the_same_episodes_in_whatever_order_they_are_answered(seed: int, count: int, batch: int, context: int) -> None:
    """Game 667 cannot be started; raise, dance, no tags and engine errors come by chance; some contexts are short."""
    world = ToyWorld(ToyOptions(naughty=True))
    policy, chosen = small_policy(), {"max_context": context, "overflow": "end"}
    engine = scrambled(Chooses, policy, seed)
    assert isinstance(engine, Streaming)
    assert not isinstance(Chooses(policy), Streaming)
    ours = play(engine, LocalTasks(world, 8), seats(count, world), batch, **chosen)
    theirs = play(Chooses(policy), LocalTasks(world, 8), seats(count, world), batch, **chosen)
    for mine, other in zip(ours, theirs, strict=True):
        same(mine, other)


def test_the_same_episodes_from_the_real_sampler_in_every_pool() -> None:
    """The torch engine, in scrambled order, conversations of one slot one after another."""
    policy, world = small_policy(), OddWorld()
    reference = play(TorchEngine(policy), LocalTasks(world, 8), seats(10, world), 4)
    with WorkerTasks(f"{HERE}:OddWorld", {}, 8, 2, 20.0) as processes, ThreadTasks(Threaded(), 8, 4, 20.0) as threads:
        for number, tasks in enumerate((LocalTasks(world, 8), processes, threads)):
            episodes = play(scrambled(TorchEngine, policy, number), tasks, seats(10, world), 4)
            for mine, other in zip(episodes, reference, strict=True):
                same(mine, other, 2e-5)


class Slow(ToyTask):
    """Game 0 takes its time."""

    def start(self, instance):  # type: ignore[no-untyped-def]
        self.slow = instance.index == 1000
        return super().start(instance)

    def step(self, action: str) -> Step:
        if self.slow:
            SlowWorld.slow.append(len(SlowWorld.quick))
            while len(SlowWorld.quick) < 30 and time.monotonic() < SlowWorld.end:
                time.sleep(0.005)
        else:
            SlowWorld.quick.append(0)
        return replace(super().step("look"), terminated=not self.slow and len(SlowWorld.quick) % 3 == 0)


class SlowWorld(ToyWorld):
    slow: list[int] = []  # noqa: RUF012
    quick: list[int] = []  # noqa: RUF012
    end = 0.0

    def open(self) -> ToyTask:
        return Slow(self._options)


def test_a_slow_task_stalls_nobody_and_ended_slots_are_given_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first step of the slow game waits until the quick ones have taken 30 steps, more than one batch of them has:
    played together, they would have taken one each."""
    monkeypatch.setattr("tests.rollout.test_streaming.LINES", ["<think>x</think><action>look</action>"])
    SlowWorld.slow, SlowWorld.quick, SlowWorld.end = [], [], time.monotonic() + 20
    world = SlowWorld()
    places = [Seat(world.instance("train", i), i, 0) for i in (1000, *range(700, 730))]
    with ThreadTasks(world, 3, 3, 60.0) as tasks:
        episodes = play(scrambled(Chooses, small_policy(), 0), tasks, places, 3)
    assert [episode.index for episode in episodes] == [1000, *range(700, 730)]
    assert len(SlowWorld.quick) >= 30
    assert time.monotonic() < SlowWorld.end
    assert {episode.stop for episode in episodes} <= {"terminated", "turn_limit"}


def test_the_engine_does_not_wait_for_a_task_while_it_has_something_to_do() -> None:
    """One conversation steps a task that waits until the other, which never says an action, has had ten turns."""
    world = Threaded()
    answered: list[int] = []

    class TwoVoices(Chooses):
        def _said(self, request: Request) -> Sampled:
            answered.append(request.slot)
            if answered.count(1) == 10:
                world.release.set()
            line = "no tags" if request.slot else "<think>x</think><action>hang</action>"
            ids = np.array(self.tokenizer.answer(line), dtype=np.int32)
            return Sampled(ids, ids * 0.0, ids * 0.0, ids * 0.0 + 1, "tag")  # type: ignore[arg-type]

    with ThreadTasks(world, 2, 2, 10.0) as tasks:
        runner = Runner(scrambled(TwoVoices, small_policy(), 0), tasks, AGENT, TaskSettings(max_turns=12), 2)
        places = [Seat(world.instance("train", i), i, 0) for i in range(2)]
        episodes = runner.play(places, RolloutPlan(), 0, "test")
    assert [episode.stop for episode in episodes] == ["turn_limit", "turn_limit"]  # and not: time_limit


def test_the_clock_of_an_episode_begins_when_it_is_seated() -> None:
    """One slot for three games: the later ones wait longer than an episode may take, and are not cut off for it."""
    world = ToyWorld()
    task = TaskSettings(max_turns=3, episode_seconds=0.15)

    class Sluggish(Chooses):
        def sample(self, requests: Sequence[Request]) -> list[Sampled]:
            time.sleep(0.04)
            ids = np.array(self.tokenizer.answer("<think>x</think><action>look</action>"), dtype=np.int32)
            return [Sampled(ids, ids * 0.0, ids * 0.0, ids * 0.0 + 1, "tag") for _ in requests]  # type: ignore[arg-type]

    runner = Runner(scrambled(Sluggish, small_policy(), 0), LocalTasks(world, 1), AGENT, task, 1)
    places = [Seat(world.instance("train", i), i, 0) for i in range(3)]
    assert [e.stop for e in runner.play(places, RolloutPlan(), 0, "test")] == ["turn_limit"] * 3


@pytest.mark.parametrize("flowing", [False, True])
def test_the_time_of_a_rollout_is_accounted_for(flowing: bool) -> None:
    world, policy = ToyWorld(), small_policy()
    engine = scrambled(Chooses, policy, 0) if flowing else Chooses(policy)
    runner = Runner(engine, LocalTasks(world, 2), AGENT, TASK, 2)
    runner.play(seats(6, world), RolloutPlan(), 0, "test")
    spent = runner.clock.take()
    assert spent["engine"] + spent["tasks"] + spent["host"] == pytest.approx(spent["play"])
    assert 0 < spent["tasks_idle"] <= spent["engine"] * 1.0001
    assert runner.clock.take() == {}
    assert isinstance(policy.tokenizer, PocketTokens)
