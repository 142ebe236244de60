"""Games on the real simulator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from isentrope.core.errors import TaskError
from isentrope.worlds.conformance import suite
from isentrope.worlds.conformance.suite import assert_conforms
from isentrope.worlds.contract import Instance, Step, View
from isentrope.worlds.scienceworld.catalogue import rules
from isentrope.worlds.scienceworld.world import ScienceWorld, ScienceWorldOptions, ScienceWorldTask
from tests.builders.sizes import EXPLORE

FIND_KIND = "find-animal"


def variant(world: ScienceWorld, **changes: Any) -> ScienceWorld:
    """The same java processes under other options."""
    values = {name: getattr(world.options, name) for name in world.options.__dataclass_fields__}
    other = ScienceWorld(ScienceWorldOptions(**(values | changes)))
    other.machines = world.machines
    return other


def solve(world: ScienceWorld, task: ScienceWorldTask, instance: Instance) -> list[tuple[str, Step]]:
    view = task.start(instance)
    expert = world.expert(0)
    expert.start(view, instance)
    played: list[tuple[str, Step]] = []
    while not played or not (played[-1][1].terminated or played[-1][1].truncated):
        action = expert.act(view).action
        played.append((action, task.step(action)))
        view = played[-1][1].view
    return played


def first_of(world: ScienceWorld, kind: str) -> Instance:
    return next(one for one in (world.instance("train", i) for i in range(30)) if one.kind == kind)


@pytest.fixture
def task(world: ScienceWorld) -> Iterator[ScienceWorldTask]:
    opened = world.open()
    yield opened
    opened.close()


LIFESPANS = ("lifespan-longest-lived",)  # solved in eight moves at most


@pytest.mark.slow(9)
def test_it_conforms(world: ScienceWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a list of actions after each step, which takes long: the other splits and actions are in the next test."""
    listing = variant(world, hint="valid", tasks=LIFESPANS)
    if not EXPLORE:
        monkeypatch.setattr(listing, "splits", lambda: ("train",))
        monkeypatch.setattr(suite, "HOSTILE", suite.HOSTILE[::8])
    assert_conforms(listing, games=2, max_turns=8)


@pytest.mark.slow(5)
def test_it_conforms_without_a_list_of_actions(world: ScienceWorld) -> None:
    if EXPLORE:
        assert_conforms(world, games=1, max_turns=60)
    else:
        assert_conforms(variant(world, tasks=LIFESPANS), games=1, max_turns=8)


def test_a_solved_game(world: ScienceWorld, task: ScienceWorldTask) -> None:
    instance = first_of(world, "find-animal")
    start = task.start(instance)
    assert start.goal.startswith("Your task is to find a(n) animal.")
    assert start.admissible is None
    assert "Things in reach: agent, air, " in start.text
    played = solve(world, task, instance)
    last = played[-1][1]
    assert last.terminated
    assert last.success
    assert last.info["score"] == 1.0
    assert not any(step.success or step.terminated for _, step in played[:-1])
    assert all(step.valid for _, step in played)
    assert 0.5 < sum(step.reward for _, step in played) <= 1


def test_reward_for_success_alone(world: ScienceWorld) -> None:
    other = variant(world, reward="success")
    task = other.open()
    played = solve(other, task, first_of(other, "find-animal"))
    assert [step.reward for _, step in played] == [0.0] * (len(played) - 1) + [1.0]
    task.close()


def test_a_wrong_focus_fails(world: ScienceWorld, task: ScienceWorldTask) -> None:
    task.start(first_of(world, "find-animal"))
    step = task.step("focus on air")
    assert step.terminated
    assert not step.success
    assert not step.truncated
    assert step.info["score"] == 0.0
    assert step.reward == -1


def test_its_move_limit_truncates(world: ScienceWorld) -> None:
    other = variant(world, moves=25)
    task = other.open()
    task.start(first_of(other, "find-animal"))
    ends = [task.step("wait") for _ in range(3)]
    # waiting takes ten time steps and its own
    assert [(step.info["moves"], step.truncated) for step in ends] == [(11, False), (22, False), (33, True)]
    assert not any(step.terminated or step.success for step in ends)
    task.close()


def test_what_is_not_understood(world: ScienceWorld, task: ScienceWorldTask) -> None:
    task.start(first_of(world, "find-animal"))
    for action in ("", "sing a song", "go to the moon", "look at unicorn", "x" * 9999, "\ud800", "a\nb"):
        assert not task.step(action).valid, action
    assert task.step("look around").valid
    assert task.step("LOOK AROUND").valid
    task.step("teleport to hallway")
    question = task.step("open door")  # which one? no time passes, and the next action is the answer
    assert question.view.text.startswith("Ambiguous request")
    assert question.valid
    assert question.info["moves"] == 1
    answer = task.step("0")
    assert answer.valid
    assert answer.info["moves"] == 2


def test_valid_actions_as_admissible(world: ScienceWorld) -> None:
    other = variant(world, hint="valid")
    task = other.open()
    view = task.start(first_of(other, "find-animal"))
    assert view.admissible is not None
    assert len(view.admissible) > 50
    assert "look around" in view.admissible
    assert "Things in reach" not in view.text
    task.close()


@pytest.mark.parametrize("simplifications", ["", "easy", "teleportAction", "openDoors"])
def test_the_rules_name_every_form_of_action(world: ScienceWorld, simplifications: str) -> None:
    simulator = world.machines.take()
    for task in ("find-animal", "power-component"):
        simulator.load(task, 0, simplifications)
        electrical = not (simplifications == "easy" and task == "find-animal")
        teleport = simplifications in ("easy", "teleportAction")
        listed = rules(electrical, teleport).partition("you see: ")[2].partition(". If you")[0]
        forms = [form.partition(" (")[0] for form in listed.split("; ")]
        said = [form.replace("to OBJ", "OBJ") if form.startswith(("go", "tele")) else form for form in forms]
        assert sorted(said) == sorted(simulator.action_forms()), (task, simplifications)
    world.machines.give(simulator)


def test_steps_out_of_order(world: ScienceWorld) -> None:
    task = world.open()
    with pytest.raises(TaskError, match="before start"):
        task.step("look around")
    task.close()


def test_rules_are_free_of_tags(world: ScienceWorld, task: ScienceWorldTask) -> None:
    view: View = task.start(first_of(world, FIND_KIND))
    assert "<" not in view.rules
    assert "teleport" in view.rules
