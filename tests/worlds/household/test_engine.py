"""The engine's answers in a small house, worked out by hand."""

from __future__ import annotations

import pytest

from isentrope.worlds.household.engine import HELP, Engine, join_names
from tests.worlds.household.house import HEAT, LOOK, TWO, house, play


@pytest.fixture
def engine() -> Engine:
    return Engine(house())


def test_lists_are_joined_as_the_world_joins_them() -> None:
    assert join_names([]) == "nothing"
    assert join_names(["a pen 1"]) == "a pen 1"
    assert join_names(["a pen 1", "a mug 1"]) == "a pen 1, and a mug 1"
    assert join_names(["a pen 1", "a mug 1", "a cup 1"]) == "a pen 1, a mug 1, and a cup 1"


def test_introduction(engine: Engine) -> None:
    assert engine.introduction() == (
        "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, you see "
        "a countertop 1, a drawer 1, a fridge 1, a microwave 1, and a sinkbasin 1.\n\n"
        "Your task is to: put a spoon in countertop."
    )


def test_admissible_at_the_start(engine: Engine) -> None:
    assert engine.admissible() == (
        "go to countertop 1",
        "go to drawer 1",
        "go to fridge 1",
        "go to microwave 1",
        "go to sinkbasin 1",
        "help",
        "inventory",
        "look",
    )


def test_look_at_the_start_sees_nothing(engine: Engine) -> None:
    expected = "You are in the middle of a room. Looking quickly around you, you see nothing."
    assert engine.step("look") == expected


def test_the_first_id_of_a_kind_has_the_highest_number(engine: Engine) -> None:
    assert play(engine, "go to countertop 1") == (
        "You arrive at countertop 1. On the countertop 1, you see a apple 2, a apple 1, a desklamp 1, a knife 1, "
        "and a mug 1."
    )


def test_shared_location(engine: Engine) -> None:
    assert play(engine, "go to fridge 1") == "You arrive at fridge 1. The fridge 1 is closed."
    assert engine.admissible() == (
        "examine drawer 1",
        "examine fridge 1",
        "go to countertop 1",
        "go to microwave 1",
        "go to sinkbasin 1",
        "help",
        "inventory",
        "look",
        "open fridge 1",
        "take spoon 1 from drawer 1",
    )
    assert engine.step("look") == "You are facing the drawer 1, and fridge 1. Next to it, you see nothing."


def test_doors(engine: Engine) -> None:
    play(engine, "go to fridge 1")
    assert play(engine, "open fridge 1") == "You open the fridge 1. The fridge 1 is open. In it, you see a apple 2."
    assert play(engine, "examine fridge 1") == "The fridge 1 is open. In it, you see a apple 2."
    assert play(engine, "close fridge 1") == "You close the fridge 1."
    assert play(engine, "examine fridge 1") == "The fridge 1 is closed."
    assert engine.step("take apple 2 from fridge 1") == "Nothing happens."


def test_an_object_in_two_receptacles_leaves_one_at_a_time(engine: Engine) -> None:
    play(engine, "go to countertop 1")
    assert play(engine, "take apple 2 from countertop 1") == "You pick up the apple 2 from the countertop 1."
    play(engine, "go to fridge 1")
    assert play(engine, "open fridge 1") == "You open the fridge 1. The fridge 1 is open. In it, you see a apple 2."
    assert play(engine, "move apple 2 to fridge 1") == "You move the apple 2 to the fridge 1."
    assert play(engine, "examine fridge 1") == "The fridge 1 is open. In it, you see a apple 2."


def test_next_to_it_lists_what_was_taken_out_of_a_receptacle_there(engine: Engine) -> None:
    play(engine, "go to fridge 1", "take spoon 1 from drawer 1", "go to countertop 1", "move spoon 1 to countertop 1")
    assert play(engine, "look") == "You are facing the countertop 1. Next to it, you see nothing."
    play(engine, "go to fridge 1", "open fridge 1", "take apple 2 from fridge 1")
    assert play(engine, "look") == "You are facing the drawer 1, and fridge 1. Next to it, you see nothing."
    play(engine, "move apple 2 to drawer 1")
    assert play(engine, "look") == "You are facing the drawer 1, and fridge 1. Next to it, you see a apple 2."
    play(engine, "take apple 2 from drawer 1", "move apple 2 to fridge 1")
    assert play(engine, "look") == "You are facing the drawer 1, and fridge 1. Next to it, you see a apple 2."


def test_inventory_and_help(engine: Engine) -> None:
    assert play(engine, "inventory") == "You are not carrying anything."
    play(engine, "go to countertop 1", "take mug 1 from countertop 1")
    assert play(engine, "inventory") == "You are carrying: a mug 1."
    assert play(engine, "help") == HELP
    assert HELP.startswith("Available commands:\n  look: ")
    assert HELP.endswith("a sharp object\n")


def test_a_container_always_looks_normal(engine: Engine) -> None:
    play(
        engine,
        "go to countertop 1",
        "take mug 1 from countertop 1",
        "go to sinkbasin 1",
        "clean mug 1 with sinkbasin 1",
    )
    assert play(engine, "examine mug 1") == "This is a normal mug 1. In it, you see a spoon 1."


@pytest.mark.parametrize(
    ("treatment", "expected"),
    [
        ("", "There's nothing special about apple 1."),
        ("s", "This is a sliced apple 1."),
        ("c", "This is a clean apple 1."),
        ("h", "This is a hot apple 1."),
        ("k", "This is a cold apple 1."),
        ("hk", "This is a cold apple 1."),
        ("kh", "This is a hot apple 1."),
        ("ch", "This is a hot and clean apple 1."),
        ("ck", "This is a cool and clean apple 1."),
        ("sc", "This is a clean sliced apple 1."),
        ("sh", "This is a hot sliced apple 1."),
        ("sk", "This is a cool sliced apple 1."),
        ("sch", "This is a hot and clean sliced apple 1."),
        ("sck", "This is a cool and clean sliced apple 1."),
    ],
)
def test_examining_what_was_treated(engine: Engine, treatment: str, expected: str) -> None:
    play(engine, "go to countertop 1")
    if "s" in treatment:
        play(engine, "take knife 1 from countertop 1")
        assert play(engine, "slice apple 1 with knife 1") == "You sliced the apple 1 with the knife 1."
        play(engine, "move knife 1 to countertop 1")
    play(engine, "take apple 1 from countertop 1")
    for letter in treatment.replace("s", ""):
        verb, place = {"c": ("clean", "sinkbasin 1"), "h": ("heat", "microwave 1"), "k": ("cool", "fridge 1")}[letter]
        answer = play(engine, f"go to {place}", f"{verb} apple 1 with {place}")
        assert answer == f"You {verb} the apple 1 using the {place}."
    assert play(engine, "examine apple 1") == expected


def test_slicing_reaches_behind_a_closed_door(engine: Engine) -> None:
    play(engine, "go to countertop 1", "take knife 1 from countertop 1")
    assert "slice apple 1 with knife 1" in engine.admissible()
    assert "slice apple 2 with knife 1" not in engine.admissible()  # its location is that of the fridge
    play(engine, "go to fridge 1", "slice apple 2 with knife 1")


def test_a_lamp_never_goes_off(engine: Engine) -> None:
    play(engine, "go to countertop 1")
    assert play(engine, "use desklamp 1", "use desklamp 1") == "You turn on the desklamp 1."


NOT_ADMISSIBLE = (
    "", " ", "\n", "go", "go to", "go to ", "Go to fridge 1", "go  to fridge 1", "go to fridge 2", "look around",
    "help me", "take", "take apple 1", "examine", "examine apple 1", "open fridge 1", "use apple 1", "x" * 10_000,
    "go to frigo 1é",
)  # fmt: skip


@pytest.mark.parametrize("command", NOT_ADMISSIBLE)
def test_what_is_not_admissible_changes_nothing(engine: Engine, command: str) -> None:
    before = engine.admissible()
    assert engine.step(command) == "Nothing happens."
    assert engine.admissible() == before
    assert engine.location == engine.game.start


@pytest.mark.parametrize("command", ["  go to fridge 1", "go to fridge 1\n", "\u2003go to fridge 1\u00a0\t"])
def test_blanks_around_a_command_do_not_matter(engine: Engine, command: str) -> None:
    assert engine.step(command) == "You arrive at fridge 1. The fridge 1 is closed."


def test_pick_is_won_and_the_game_goes_on(engine: Engine) -> None:
    play(engine, "go to drawer 1", "take spoon 1 from drawer 1", "go to countertop 1")
    assert not engine.won
    play(engine, "move spoon 1 to countertop 1")
    assert engine.won
    play(engine, "take spoon 1 from countertop 1")
    assert not engine.won


def test_heat_is_lost_again_by_cooling() -> None:
    engine = Engine(house(HEAT))
    play(
        engine,
        "go to countertop 1",
        "take apple 1 from countertop 1",
        "go to microwave 1",
        "heat apple 1 with microwave 1",
    )
    play(engine, "go to fridge 1", "cool apple 1 with fridge 1", "go to countertop 1", "move apple 1 to countertop 1")
    assert not engine.won
    play(engine, "take apple 1 from countertop 1", "go to microwave 1", "heat apple 1 with microwave 1")
    play(engine, "go to countertop 1", "move apple 1 to countertop 1")
    assert engine.won


def test_cool_is_lost_again_by_heating() -> None:
    engine = Engine(house(HEAT.replace("isHot", "isCool")))
    play(engine, "go to countertop 1", "take apple 1 from countertop 1", "go to fridge 1", "cool apple 1 with fridge 1")
    play(engine, "go to microwave 1", "heat apple 1 with microwave 1", "go to countertop 1")
    play(engine, "move apple 1 to countertop 1")
    assert not engine.won


def test_two_need_the_same_receptacle() -> None:
    engine = Engine(house(TWO))
    play(engine, "go to countertop 1", "take apple 1 from countertop 1", "go to fridge 1", "open fridge 1")
    assert not engine.won
    play(engine, "move apple 1 to fridge 1")
    assert engine.won


def test_look_is_won_while_holding_at_the_lamp() -> None:
    engine = Engine(house(LOOK))
    play(engine, "go to countertop 1", "use desklamp 1")
    assert not engine.won
    play(engine, "take apple 1 from countertop 1")
    assert engine.won
    play(engine, "go to fridge 1")
    assert not engine.won


def test_reset_forgets_everything(engine: Engine) -> None:
    first = engine.introduction(), engine.admissible()
    play(engine, "go to fridge 1", "open fridge 1", "take apple 2 from fridge 1", "cool apple 2 with fridge 1")
    assert (engine.reset(), engine.admissible()) == first
    assert play(engine, "go to fridge 1") == "You arrive at fridge 1. The fridge 1 is closed."
