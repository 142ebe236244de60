"""Reading and writing the official problem format."""

from __future__ import annotations

import pytest

from isentrope.core.errors import TaskError
from isentrope.worlds.household.export import Language, game_data, write_problem
from isentrope.worlds.household.game import KINDS, Goal, name_things
from isentrope.worlds.household.generate import generate
from isentrope.worlds.household.official import read_problem
from tests.worlds.household.house import FACTS, HEAT, LOOK, PICK, TWO, house, problem


def test_names_count_down_in_id_order() -> None:
    names = name_things(["apple_bar_2", "apple_bar_1", "sink_bar_1", "sink_bar_1_bar_sinkbasin", "agent1"])
    assert names == {
        "agent1": "agent1 ",
        "apple_bar_1": "apple 2",
        "apple_bar_2": "apple 1",
        "sink_bar_1": "sink 1",
        "sink_bar_1_bar_sinkbasin": "sinkbasin 1",
    }


def test_an_object_and_its_properties() -> None:
    apple = next(thing for thing in house().objects if thing.id == "apple_bar_1")
    assert (apple.name, apple.type, apple.pickupable, apple.container) == ("apple 2", "apple", True, False)


def test_start_facts_that_are_kept() -> None:
    game = house(facts=FACTS + "(isCool Apple_bar_1)")
    assert [thing.id for thing in game.objects if thing.cool] == ["apple_bar_1"]
    assert game.locations[game.start] == "loc_bar_9"


@pytest.mark.parametrize(
    ("goal", "expected"),
    [
        (PICK.format(o="SpoonType", r="CounterTopType"), Goal("pick", "spoon", "countertop")),
        (HEAT, Goal("heat", "apple", "countertop")),
        (HEAT.replace("isHot", "isCool"), Goal("cool", "apple", "countertop")),
        (HEAT.replace("isHot", "isClean"), Goal("clean", "apple", "countertop")),
        (TWO, Goal("two", "apple", "fridge")),
        (LOOK, Goal("look", "apple", "desklamp")),
    ],
)
def test_goals(goal: str, expected: Goal) -> None:
    assert house(goal).goal == expected


def test_comments_are_not_facts() -> None:
    game = house(facts=FACTS + "; (inReceptacle Knife_bar_1 Fridge_bar_1)\n")
    assert game == house()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "needs an"),
        ("(:goal x) (:init )", "needs an"),
        (problem(goal="(exists (?x - receptacle) (opened ?x))"), "none of the six"),
        (problem(facts=FACTS + "(opened Fridge_bar_1)"), "opened at the start"),
        (problem(facts=FACTS.replace("(atLocation agent1 loc_bar_9)", "")), "contradicts itself"),
        (problem(facts=FACTS + "(inReceptacle Apple_bar_1 Nowhere_bar_1)"), "contradicts itself"),
        (problem(facts=FACTS + "(inReceptacle Apple_bar_1)"), "contradicts itself"),
    ],
)
def test_broken_problems_are_refused(text: str, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        read_problem(text, "a task", "broken")


@pytest.mark.parametrize("goal", [PICK.format(o="SpoonType", r="CounterTopType"), HEAT, TWO, LOOK])
def test_what_is_written_is_read_back(goal: str) -> None:
    game = house(goal)
    assert read_problem(write_problem(game), game.task, game.name) == game


@pytest.mark.parametrize("kind", KINDS)
def test_generated_games_are_read_back(kind: str) -> None:
    game = generate(kind, "train", 1, "full")
    assert read_problem(write_problem(game), game.task, game.name, game.walkthrough) == game


def test_a_game_file_holds_everything() -> None:
    game = generate("pick", "train", 1, "small")
    data = game_data(game, Language("the domain", 'Your task is to: UNKNOWN GOAL."'))
    assert data["pddl_domain"] == "the domain"
    assert data["grammar"] == f'Your task is to: {game.task}"'
    assert data["walkthrough"] == list(game.walkthrough)
