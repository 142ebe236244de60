"""A game runs as if it were the only one in its java process, and as the package's own wrapper has it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from isentrope.worlds.contract import Instance
from isentrope.worlds.scienceworld.catalogue import TASKS
from isentrope.worlds.scienceworld.simulator import Reading, Simulator
from isentrope.worlds.scienceworld.world import ScienceWorld, ScienceWorldOptions
from tests.builders.sizes import EXPLORE

# With many random numbers: temperatures are drawn, animals move, plants inherit; and doors that are asked back about.
GAMES: list[tuple[str, int, str, list[str]]] = [
    ("use-thermometer", 5, "", ["open door", "1", "look around", "focus on thermometer", "wait", "look around"]),
    ("mendelian-genetics-known-plant", 3, "easy", [
        "teleport to greenhouse", "look around", "open bee hive", "wait", "look around", "wait", "wait", "look around",
    ]),
    ("find-animal", 11, "easy", ["teleport to outside", "look around", "wait", "look around", "wait", "look around"]),
    ("chemistry-mix-paint-secondary-color", 4, "easy", [
        "teleport to art studio", "look around", "pour cup containing red paint in bowl", "0",
        "pour cup containing blue paint in bowl", "0", "mix bowl", "look around",
    ]),
    ("power-component", 1, "easy", ["teleport to workshop", "look around", "connect battery anode to wire", "0"]),
]  # fmt: skip
LISTED = GAMES if EXPLORE else (GAMES[0], GAMES[-1])  # without simplifications and with them: a list takes long


def begin(simulator: Simulator, game: tuple[str, int, str, list[str]]) -> Reading:
    return simulator.load(game[0], game[1], game[2])[1]


def alone(world: ScienceWorld, game: tuple[str, int, str, list[str]]) -> tuple[list[Reading], list[str]]:
    simulator = world.machines.take()
    seen = [begin(simulator, game)]
    for action in game[3]:
        seen.append(simulator.step(action))
        simulator.objects()
    valid = simulator.valid_actions() if game in LISTED else []
    world.machines.give(simulator)
    return seen, valid


@pytest.mark.slow(7)
def test_turn_by_turn_with_others_in_one_process(world: ScienceWorld) -> None:
    expected = [alone(world, game) for game in GAMES]
    simulators = [world.machines.take() for _ in GAMES]
    assert len({simulator.jvm.pid for simulator in simulators}) == 1
    seen = [[begin(simulator, game)] for simulator, game in zip(simulators, GAMES, strict=True)]
    for turn in range(max(len(game[3]) for game in GAMES)):
        for simulator, game, readings in zip(simulators, GAMES, seen, strict=True):
            if turn < len(game[3]):
                readings.append(simulator.step(game[3][turn]))
                simulator.objects()
    for simulator, game, readings, (before, valid) in zip(simulators, GAMES, seen, expected, strict=True):
        assert readings == before, game[0]
        if game in LISTED:
            assert simulator.valid_actions() == valid, game[0]  # simplifications decide which actions there are
    assert simulators[-1].valid_actions() == expected[-1][1]  # however often it is asked
    for simulator in simulators:
        world.machines.give(simulator)


def test_each_game_numbers_its_own_objects(world: ScienceWorld) -> None:
    """Objects are the same if their numbers are. With another's counter one comes out twice."""
    one, other = world.machines.take(), world.machines.take()

    def count(simulator: Simulator) -> int:
        with simulator.jvm.turn(simulator):
            return simulator.jvm._counter.count()  # pyright: ignore[reportPrivateUsage]

    one.load("use-thermometer", 5, "")
    before = count(one)
    other.load("power-component", 1, "easy")
    assert count(other) != before
    assert count(one) == before
    world.machines.give(one)
    world.machines.give(other)


def test_members_of_a_group_play_the_same_game(world: ScienceWorld) -> None:
    for index in (0, 3):
        instance = world.instance("test", index)
        members = [world.open() for _ in range(3)]
        views = [member.start(instance) for member in members]
        assert views[0] == views[1] == views[2]
        steps = [[member.step(action) for action in ("open door", "0", "look around", "wait")] for member in members]
        assert steps[0] == steps[1] == steps[2]
        for member in members:
            member.close()


@pytest.mark.slow(6)
def test_scores_and_ends_are_those_of_the_packages_own_wrapper(
    world: ScienceWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gold path, a failure and the move limit, by `ScienceWorldEnv.step` and by ours."""
    from scienceworld import ScienceWorldEnv

    limit = 40
    env: Any = ScienceWorldEnv("", envStepLimit=limit)
    if not EXPLORE:  # after each step it lists every possible action, which takes long and is not compared
        monkeypatch.setattr(env, "get_valid_action_object_combinations", list)
    simulator = world.machines.take()
    gold = simulator.gold_path("find-living-thing", 7, "easy")
    other = simulator.gold_path("chemistry-mix", 2, "")
    runs = [
        ("find-living-thing", 7, "easy", gold),
        ("chemistry-mix", 2, "", [*other[:6], "sing", " TASK", "help", "", "0", "focus on air"]),
        ("find-animal", 7, "easy", ["wait"] * 4),
    ]
    for kind, variation, simplifications, actions in runs:
        env.load(kind, variation, simplifications)
        first, info = env.reset()
        goal, reading = simulator.load(kind, variation, simplifications)
        assert (goal, reading.text, reading.score) == (env.get_task_description(), first, info["score"])
        score = reading.score
        for action in actions:
            text, reward, done, info = env.step(action)
            reading = simulator.step(action)
            assert (reading.text, reading.score, reading.moves) == (text, info["score"], info["moves"]), (kind, action)
            assert reading.score - score == reward
            assert (reading.completed or reading.score < 0 or reading.moves > limit) == done
            score = reading.score
    assert done
    world.machines.give(simulator)
    env.close()


@pytest.mark.slow(9)
def test_gold_episodes_in_parallel_all_score_100(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six threads over 2 processes. Without the lock some come out wrong; the first test here is about random numbers.

    `make explore` has forty games of nearly all tasks, `make test` six of those that are soon solved."""
    slow = ("mendelian-genetics-unknown-plant", "inclined-plane-friction-unnamed-surfaces", "grow-fruit", "melt",
            "inclined-plane-friction-named-surfaces", "measure-melting-point-unknown-substance")  # fmt: skip
    quick = ("find-animal", "find-living-thing", "lifespan-longest-lived")
    tasks = tuple(task for task in TASKS if task not in slow) if EXPLORE else quick
    hint = "templates" if EXPLORE else "none"
    if not EXPLORE:
        monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")  # not optimised for a few seconds
    world = ScienceWorld(ScienceWorldOptions(tasks=tasks, jvms=2, moves=400, hint=hint, call_seconds=120))
    games = 40 if EXPLORE else 6
    todo = [world.instance("train", index) for index in range(games)]
    scores: dict[Instance, float | str | bool] = {}
    lock = threading.Lock()

    def play() -> None:
        task, expert = world.open(), world.expert(0)
        while True:
            with lock:
                if not todo:
                    break
                instance = todo.pop()
            view = task.start(instance)
            expert.start(view, instance)
            for _ in range(400):
                step = task.step(expert.act(view).action)
                view = step.view
                if step.terminated or step.truncated:
                    break
            scores[instance] = step.info["score"] if step.success else f"{step.info} {step.view.text}"
        task.close()

    threads = [threading.Thread(target=play) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    world.close()
    assert len(scores) == games
    assert {instance.kind: score for instance, score in scores.items() if score != 1.0} == {}
