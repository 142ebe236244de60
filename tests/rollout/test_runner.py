"""Playing episodes: what is recorded, and what becomes of tasks and policies that misbehave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from isentrope.config.schema import AgentSettings, TaskSettings
from isentrope.core.engine import Request, Sampled
from isentrope.core.tokenizer import ChatTokenizer
from isentrope.core.types import Episode, RolloutPlan
from isentrope.engines.torch import TorchEngine
from isentrope.rollout.collector import Runner
from isentrope.rollout.demonstrations import demonstrations, longest_sequence
from isentrope.rollout.episode import Seat
from isentrope.rollout.sampler import InTurn, pick_instances
from isentrope.worlds.contract import Step
from isentrope.worlds.pool.open import LocalTasks
from isentrope.worlds.pool.processes import WorkerTasks
from tests.models.helpers import small_policy
from tests.toys import ToyOptions, ToyTask, ToyWorld

AGENT = AgentSettings(prompt="brief", max_response=30, max_context=2000)
TASK = TaskSettings(max_turns=6)


class Scripted(TorchEngine):
    """Says what it is told to, one line per turn, the same for every conversation."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__(small_policy())
        self.lines, self.asked = lines, 0

    def sample(self, requests: Sequence[Request]) -> list[Sampled]:
        line = self.lines[min(self.asked, len(self.lines) - 1)]
        self.asked += 1
        ids = np.array(self.tokenizer.answer(line), dtype=np.int32)
        numbers = np.zeros(len(ids), dtype=np.float32)
        return [Sampled(ids, numbers, numbers, numbers + 1, "tag") for _ in requests]


def say(action: str) -> str:
    return f"<think>x</think><action>{action}</action>"


def play(lines: Sequence[str], indices: Sequence[int] = (0,), **changes: object) -> list[Episode]:
    world = ToyWorld(ToyOptions(naughty=True))
    agent = replace(AGENT, **{k: v for k, v in changes.items() if hasattr(AGENT, k)})  # type: ignore[arg-type]
    task = replace(TASK, **{k: v for k, v in changes.items() if hasattr(TASK, k)})  # type: ignore[arg-type]
    runner = Runner(Scripted(lines), LocalTasks(world, 8), agent, task, batch=8)
    seats = [Seat(world.instance("train", i), i, 0) for i in indices]
    return runner.play(seats, RolloutPlan(), seed=0, name="test")


def test_a_won_episode_by_hand() -> None:
    # The toy counts from 0 to 3: three valid turns, 10 for the win.
    [episode] = play([say("add one")])
    assert (episode.success, episode.stop, len(episode.turns), episode.ret) == (True, "terminated", 3, 10.0)
    assert [turn.action for turn in episode.turns] == ["add one"] * 3
    assert [turn.continues for turn in episode.turns] == [False, True, True]
    assert episode.turns[0].admissible == ("add one", "take one", "look")
    assert len({turn.anchor for turn in episode.turns}) == 3


def test_invalid_responses_cost_and_do_not_step_the_task() -> None:
    # Turn 1 is not of the form, turn 2 is no action of this world: -0.1 each; then three good ones.
    [episode] = play(["no tags at all", say("dance"), say("add one")])
    assert [turn.verdict for turn in episode.turns] == ["no_action", "inadmissible", "ok", "ok", "ok"]
    assert episode.ret == pytest.approx(10 - 0.2)
    assert episode.turns[1].observation == "No valid action in your answer."


def test_limits_of_turns_and_context() -> None:
    assert play([say("look")])[0].stop == "turn_limit"
    assert len(play([say("look")])[0].turns) == 6
    cut = play([say("look")], max_context=200, overflow="end")[0]
    assert cut.stop == "context_limit"
    assert 0 < len(cut.turns) < 6
    assert "leave no room" in cut.detail


def test_a_task_that_raises_ends_its_own_episode_only() -> None:
    broken, fine = play([say("add one")], indices=[667, 2])
    assert (broken.stop, broken.turns, broken.success) == ("task_error", (), False)
    assert "cannot start this one" in broken.detail
    assert fine.success
    raised = play([say("look"), say("raise")])[0]
    assert (raised.stop, len(raised.turns)) == ("task_error", 2)
    assert len(raised.detail) < 600


def test_a_worker_that_hangs_or_dies_is_recorded_and_the_others_go_on() -> None:
    world = ToyWorld(ToyOptions(naughty=True))
    tasks = WorkerTasks("tests.toys:ToyWorld", {"naughty": True}, 8, workers=2, step_seconds=1.0)
    try:
        for action, stop in (("hang", "time_limit"), ("exit", "worker_died")):
            runner = Runner(Scripted([say("look"), say(action)]), tasks, AGENT, TASK, batch=8)
            episodes = runner.play([Seat(world.instance("train", 0), 0, 0)], RolloutPlan(), 0, "test")
            assert episodes[0].stop == stop
        runner = Runner(Scripted([say("add one")]), tasks, AGENT, TASK, batch=8)
        seats = [Seat(world.instance("train", i), i, 0) for i in (0, 2, 4)]
        assert all(episode.success for episode in runner.play(seats, RolloutPlan(), 0, "test"))
    finally:
        tasks.close()


def test_more_seats_than_fit_are_played_in_turn_and_stay_in_order() -> None:
    world = ToyWorld()
    runner = Runner(Scripted([say("add one")] * 99), LocalTasks(world, 2), AGENT, TASK, batch=2)
    seats = [Seat(world.instance("train", i), i, 0) for i in range(5)]
    finished: list[int] = []
    episodes = runner.play(seats, RolloutPlan(), 0, "test", finished.append)
    assert [episode.index for episode in episodes] == [0, 1, 2, 3, 4]
    assert sum(finished) == 5


def test_a_plan_may_set_the_temperature_of_each_token_from_the_admissible_actions() -> None:
    world, asked = ToyWorld(), []

    class Hot:
        needs_entropy = False

        def __call__(self, response: Sequence[int], entropy: float) -> float:
            return 1.5 if len(response) == 2 else 1.0

    def rule(tokenizer: ChatTokenizer, admissible: tuple[str, ...] | None, base: float, tags: tuple[str, ...]) -> Hot:
        asked.append(admissible)
        return Hot()

    runner = Runner(TorchEngine(small_policy()), LocalTasks(world, 1), AGENT, replace(TASK, max_turns=1), batch=1)
    plan = RolloutPlan(temperature_rule=rule)
    [episode] = runner.play([Seat(world.instance("train", 0), 0, 0)], plan, 0, "test")
    assert asked == [("add one", "take one", "look")]
    temperatures = episode.turns[0].temperatures.tolist()
    assert temperatures[:4] == [1.0, 1.0, 1.5, 1.0][: len(temperatures)]


class Fickle(ToyTask):
    """Says that it is solved, and goes on."""

    def step(self, action: str) -> Step:
        return replace(super().step(action), success=True, terminated=False)


class FickleWorld(ToyWorld):
    def open(self) -> ToyTask:
        return Fickle(self._options)


class Breaking(Scripted):
    """An engine that has no answer after the first turn."""

    def sample(self, requests: Sequence[Request]) -> list[Sampled]:
        answers = super().sample(requests)
        return answers if self.asked == 1 else [replace(a, stop="error", detail="down") for a in answers]


def test_an_engine_that_breaks_takes_back_a_success() -> None:
    world = FickleWorld()
    for engine, ending in (
        (Scripted([say("look")]), ("turn_limit", True)),
        (Breaking([say("look")]), ("engine_error", False)),
    ):
        runner = Runner(engine, LocalTasks(world, 1), AGENT, TASK, batch=1)
        [episode] = runner.play([Seat(world.instance("train", 0), 0, 0)], RolloutPlan(), 0, "test")
        assert (episode.stop, episode.success) == ending


def test_the_clock_ends_an_episode_without_making_it_a_failure() -> None:
    [episode] = play([say("look")], episode_seconds=1e-9)
    assert (episode.stop, len(episode.turns)) == ("clock", 1)
    assert "episode_seconds" in episode.detail


def test_the_longest_sequence_of_a_demonstration() -> None:
    world, tokens = ToyWorld(), small_policy().tokenizer
    lengths = {}
    for context in ("full", "window"):
        agent = replace(AGENT, context=context)
        [episode] = demonstrations(world, tokens, agent, TASK, [world.instance("train", 0)], 0)
        lengths[context] = longest_sequence(episode)
        whole = sum(len(turn.context_ids) + len(turn.response_ids) for turn in episode.turns)
        assert (lengths[context] == whole) == (context == "full")


def test_instances_of_a_step() -> None:
    world, sampler = ToyWorld(), InTurn(seed=0)
    picked = pick_instances(sampler, world, 4, step=3)
    assert [p.index - picked[0].index for p in picked] == [0, 1, 2, 3]
    assert picked == pick_instances(sampler, world, 4, step=3)
    assert picked != pick_instances(sampler, world, 4, step=4)  # more of it: test_sampler.py
