from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from isentrope.core.errors import TaskError
from isentrope.worlds.adapters.gym import GymOptions, GymWorld, describe, drawn, minigrid_text
from isentrope.worlds.conformance.suite import assert_conforms

gymnasium = pytest.importorskip("gymnasium", reason="needs pip install 'isentrope[gym]'")
pytest.importorskip("minigrid", reason="needs pip install 'isentrope[gym]'")

DOOR = "MiniGrid-DoorKey-5x5-v0"


class Echo(gymnasium.Env):
    """Says back what it is told; "end" ends it. Numbers of reward as the options say."""

    def __init__(self, pays: float = 1.0) -> None:
        self.action_space = gymnasium.spaces.Text(20)
        self.observation_space = gymnasium.spaces.Text(100)
        self._pays = pays

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        return f"start {self.np_random.integers(1000)}", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        ended = action == "end"
        return action, self._pays * ended, ended, True, {}


class Masked(gymnasium.Env):
    """Two of three actions are possible; they are numbered from 5."""

    action_space = gymnasium.spaces.Discrete(3, start=5)
    observation_space = gymnasium.spaces.Discrete(10)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        return 4, {"action_mask": np.array([1, 0, 1], dtype=np.int8)}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        return action, 0.25, False, False, {"action_mask": np.array([1, 1, 1], dtype=np.int8)}


gymnasium.register("IsentropeEcho-v0", entry_point=Echo)
gymnasium.register("IsentropeMasked-v0", entry_point=Masked)


def made(env_id: str, **options: Any) -> GymWorld:
    return GymWorld(GymOptions(env_id=env_id, **options))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"env_id": DOOR},
        {"env_id": "FrozenLake-v1", "describe": "drawn", "module": ""},
        {"env_id": "Taxi-v4", "success_above": 0.0, "module": ""},
        {"env_id": "CartPole-v1", "actions": ("push left", "push right"), "module": ""},
        {"env_id": "IsentropeEcho-v0", "module": ""},
        {"env_id": "IsentropeMasked-v0", "module": ""},
    ],
)
def test_it_conforms(options: dict[str, Any]) -> None:
    assert_conforms(GymWorld(GymOptions(**options)), games=2, max_turns=60)


def test_members_of_a_group_see_the_same_level_as_minigrid_itself() -> None:
    world = made(DOOR)
    instance = world.instance("dev", 3)
    env = gymnasium.make(DOOR)
    observation, _ = env.reset(seed=world.seed(instance))
    assert world.open().start(instance).text == world.open().start(instance).text == minigrid_text(observation)
    assert world.seed(instance) == 3 * 2**30 + 3


def test_the_view_in_words_against_a_hand_made_grid() -> None:
    image = np.zeros((7, 7, 3), dtype=np.uint8)  # all unseen
    image[3, :, 0] = 1  # the column ahead is empty
    image[3, 3] = (4, 4, 2)  # a locked yellow door, three ahead
    image[2, 6, 0] = 1  # one free cell to the left
    image[1, 6] = (2, 5, 0)  # and then a wall
    image[4, 5] = (5, 0, 0)  # a red key, one ahead and one to the right
    image[4, 6] = (9, 0, 0)  # lava right beside
    image[3, 6] = (6, 2, 0)  # in hand: a blue ball
    assert minigrid_text({"image": image, "direction": 3, "mission": "x"}) == (
        "You face north. You carry a blue ball.\n"
        "lava: 1 to the right\n"
        "a red key: 1 ahead and 1 to the right\n"
        "a locked yellow door: 3 ahead\n"
        "Free cells: 2 ahead, 1 to the left, 0 to the right."
    )


def test_what_the_words_say_is_what_the_grid_holds() -> None:
    """The description walks: as many free cells ahead as it says, and then no further."""
    for seed in range(20):
        env = gymnasium.make("BabyAI-GoToLocal-v0")
        observation, _ = env.reset(seed=seed)
        told = minigrid_text(observation)
        free = int(told.rpartition("Free cells: ")[2].split(" ")[0])
        grid: Any = env.unwrapped
        for _ in range(free):
            before = tuple(grid.agent_pos)
            env.step(2)
            assert tuple(grid.agent_pos) != before
        after = tuple(grid.agent_pos)
        env.step(2)
        assert tuple(grid.agent_pos) == after or free >= 6  # at the edge of the view there may be more


def test_reward_success_and_score() -> None:
    world = made("IsentropeEcho-v0", module="", success_above=0.5)
    task = world.open()
    task.start(world.instance("train", 0))
    step = task.step("end")
    assert (step.reward, step.success, step.terminated, step.truncated) == (1.0, True, True, False)
    with pytest.raises(TaskError, match="without a running episode"):
        task.step("end")
    poor = made("IsentropeEcho-v0", module="", kwargs={"pays": 0.4}, success_above=0.5, reward="env", reward_scale=2.0)
    task = poor.open()
    task.start(poor.instance("train", 0))
    assert not task.step("x" * 100).valid  # longer than the environment takes
    step = task.step("end")
    assert (step.reward, step.success, step.info["score"]) == (0.8, False, 0.4)


def test_masked_actions_and_numbers_that_do_not_begin_with_zero() -> None:
    world = made("IsentropeMasked-v0", module="", actions=("a", "b", "c"), reward="env")
    task = world.open()
    assert task.start(world.instance("train", 0)).admissible == ("a", "c")
    step = task.step(" B ")
    assert (step.view.text, step.valid, step.reward) == ("6", True, 0.25)
    assert step.view.admissible == ("a", "b", "c")


def test_truncation_is_the_environments() -> None:
    world = made("IsentropeEcho-v0", module="")
    task = world.open()
    task.start(world.instance("train", 0))
    step = task.step("on")
    assert (step.truncated, step.terminated, step.success) == (True, False, False)


def test_the_expert_plays_every_kind_of_level() -> None:
    for env_id in ("BabyAI-GoToObjMazeS4-v0", "BabyAI-UnlockLocal-v0", "BabyAI-PickupLoc-v0"):
        world = made(env_id)
        expert, task = world.expert(0), world.open()
        assert expert is not None
        instance = world.instance("train", random.Random(env_id).randrange(1000))
        view = task.start(instance)
        expert.start(view, instance)
        for _ in range(300):
            step = task.step(expert.act(view).action)
            view = step.view
            if step.terminated or step.truncated:
                break
        assert step.success, env_id
    assert made(DOOR).expert(0) is None


def test_the_expert_says_when_it_cannot_follow() -> None:
    world = made("BabyAI-GoToLocal-v0")
    expert, task, instance = world.expert(0), world.open(), world.instance("train", 0)
    assert expert is not None
    view = task.start(instance)
    expert.start(view, instance)
    expert.act(view)
    with pytest.raises(TaskError, match="another way"):
        expert.act(task.step("drop").view)


def test_describe() -> None:
    assert describe("as it stands") == "as it stands"
    assert describe({"a": 1, "b": np.array([0.123456, 2.0])}) == "a: 1\nb: 0.1235, 2"
    assert describe((np.int64(3), 0.5)) == "3, 0.5"
    with pytest.raises(TaskError, match="describe"):
        describe(np.zeros((64, 64, 3)))
    assert drawn("  (Right)\nS\x1b[41mF\x1b[0mF\n") == "  (Right)\nS[F]F"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"env_id": "MiniGrid-DoorKey-5x5-v9"}, "env_id"),
        ({"env_id": "NoSuch-v0"}, "module"),
        ({"env_id": "Pendulum-v1"}, "Discrete and Text"),
        ({"env_id": DOOR, "actions": ("one", "two")}, "has 7 actions, not 2"),
        ({"env_id": DOOR, "kwargs": {"nonsense": 1}}, "could not be made"),
        ({"env_id": DOOR, "describe": "no_such_module:f"}, "could not be loaded"),
        ({"env_id": DOOR, "describe": "text"}, "expected auto, drawn"),
        ({"env_id": DOOR, "module": "no_such_package"}, r"\[gym\]"),
    ],
)
def test_what_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(TaskError, match=words):
        GymWorld(GymOptions(**options))
