"""The household world as the rest of the library sees it."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isentrope.core.errors import TaskError
from isentrope.worlds.conformance.suite import assert_conforms
from isentrope.worlds.contract import World
from isentrope.worlds.household.engine import Engine
from isentrope.worlds.household.game import KINDS
from isentrope.worlds.household.generate import generate
from isentrope.worlds.household.world import HouseholdOptions, HouseholdWorld

SMALL = HouseholdOptions(rooms="small")


def test_it_is_a_world() -> None:
    world = HouseholdWorld()
    assert isinstance(world, World)
    assert tuple(world.splits()) == ("train", "seen", "unseen")
    assert world.size("train") is None
    assert world.kinds == KINDS


@pytest.mark.parametrize("size", ["small", "full"])
def test_it_conforms(size: str) -> None:
    assert_conforms(HouseholdWorld(HouseholdOptions(rooms=size)))


def test_kinds_take_turns() -> None:
    assert [HouseholdWorld(SMALL).instance("train", index).kind for index in range(7)] == [*KINDS, "pick"]
    world = HouseholdWorld(HouseholdOptions(kinds=("heat", "two")))
    assert [world.instance("seen", index).kind for index in range(3)] == ["heat", "two", "heat"]


def test_an_episode() -> None:
    world = HouseholdWorld(SMALL)
    instance = pickle.loads(pickle.dumps(world.instance("train", 2)))
    game = world.game(instance)
    task = world.open()
    view = task.start(instance)
    assert view.text.startswith("You are in the middle of a room. Looking quickly around you, you see a ")
    assert "Welcome" not in view.text
    assert "Your task" not in view.text
    assert view.goal == game.task
    for command in game.walkthrough[:-1]:
        step = task.step(command)
        assert step.valid
        assert not step.terminated
        assert step.reward == 0.0
    last = task.step(game.walkthrough[-1])
    assert (last.success, last.terminated, last.truncated, last.reward) == (True, True, False, 1.0)
    task.close()


def test_an_impossible_action_is_answered() -> None:
    task = HouseholdWorld(SMALL).open()
    view = task.start(HouseholdWorld(SMALL).instance("train", 0))
    step = task.step("fly to the moon")
    assert not step.valid
    assert step.view.text == "Nothing happens."
    assert step.view.admissible == view.admissible


def test_misuse_is_explained() -> None:
    with pytest.raises(TaskError, match="start an instance first"):
        HouseholdWorld().open().step("look")
    with pytest.raises(TaskError, match="no split 'test'; it has train, seen, unseen"):
        HouseholdWorld().instance("test", 0)
    with pytest.raises(TaskError, match="numbers start at 0"):
        HouseholdWorld().instance("train", -1)
    with pytest.raises(TaskError, match="choose one or more of pick"):
        HouseholdWorld(HouseholdOptions(kinds=("fry",)))
    with pytest.raises(TaskError, match="choose one or more of pick"):
        HouseholdWorld(HouseholdOptions(kinds=()))
    with pytest.raises(TaskError, match="choose one of small"):
        HouseholdWorld(HouseholdOptions(rooms="tiny"))


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(KINDS), st.integers(0, 50))
def test_admissible_is_exactly_what_is_carried_out(data: st.DataObject, kind: str, index: int) -> None:
    """Every listed command works; a command about the same things that is not listed does not."""
    game = generate(kind, "train", index, "small")
    engine = Engine(game)
    names = [thing.name for thing in game.objects] + [receptacle.name for receptacle in game.receptacles]
    verbs = ("go to {}", "open {}", "close {}", "take {} from {}", "move {} to {}", "examine {}", "use {}")
    verbs += ("heat {} with {}", "cool {} with {}", "clean {} with {}", "slice {} with {}")
    for _ in range(12):
        listed = engine.admissible()
        assert list(listed) == sorted(set(listed))
        other = data.draw(st.sampled_from(verbs)).format(*(data.draw(st.sampled_from(names)) for _ in range(2)))
        if other not in listed:
            assert engine.attempt(other) is None
            assert engine.admissible() == listed
        assert engine.attempt(data.draw(st.sampled_from(listed))) is not None


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_answered(text: str) -> None:
    engine = Engine(generate("heat", "train", 0, "small"))
    expected = text.strip() in engine.admissible()
    assert (engine.attempt(text) is not None) == expected


def test_plays_of_one_game_do_not_touch_each_other() -> None:
    world = HouseholdWorld(SMALL)
    first, second = world.open(), world.open()
    at = world.instance("train", 3)
    opening = first.start(at)
    for command in world.game(at).walkthrough:
        last = first.step(command)
    assert last.success
    assert second.start(at) == opening
    fresh = Engine(generate(at.kind, at.split, at.index, "small"))
    for command in (*world.game(at).walkthrough[:2], "look", "inventory"):
        assert second.step(command).view.text == fresh.step(command)
