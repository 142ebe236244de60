"""The scripted players: what they solve and what they say."""

from __future__ import annotations

import re

import pytest

from isentrope.core.errors import TaskError
from isentrope.worlds.contract import Expert, Move, Step
from isentrope.worlds.household.game import KINDS, Goal
from isentrope.worlds.household.players import RandomPlayer, place_described, read_task, things_listed
from isentrope.worlds.household.rooms import SIZES
from isentrope.worlds.household.world import HouseholdOptions, HouseholdWorld

TURNS = 50


def play(world: HouseholdWorld, player: Expert, split: str, index: int) -> list[tuple[Move, Step]]:
    task = world.open()
    instance = world.instance(split, index)
    view = task.start(instance)
    player.start(view, instance)
    turns: list[tuple[Move, Step]] = []
    for _ in range(TURNS):
        move = player.act(view)
        step = task.step(move.action)
        turns.append((move, step))
        view = step.view
        if step.terminated:
            break
    return turns


@pytest.mark.parametrize("size", SIZES)
def test_the_expert_solves_nearly_everything(size: str) -> None:
    world = HouseholdWorld(HouseholdOptions(rooms=size))
    games = [play(world, world.expert(index), ("seen", "unseen")[index % 2], index) for index in range(300)]
    solved = sum(turns[-1][1].success for turns in games)
    assert solved >= 0.97 * len(games)
    assert all(step.valid for turns in games for _, step in turns)
    if size == "small":
        assert sum(len(turns) < 20 for turns in games) >= 0.97 * len(games)


def test_thoughts_are_short_and_of_few_words() -> None:
    world = HouseholdWorld(HouseholdOptions(rooms="full"))
    thoughts = [move.thought for index in range(120) for move, _ in play(world, world.expert(index), "train", index)]
    assert max(len(thought.split()) for thought in thoughts) <= 20
    words = {word for thought in thoughts for word in re.findall(r"[A-Za-z]+", thought)}
    assert len(words) < 150


def test_the_expert_says_what_it_reads() -> None:
    world = HouseholdWorld(HouseholdOptions(rooms="small", kinds=("heat",)))
    for index in range(20):
        goal = read_task(world.game(world.instance("train", index)).task)
        turns = play(world, world.expert(index), "train", index)
        views = [world.open().start(world.instance("train", index)), *(step.view for _, step in turns)]
        for view, (move, _) in zip(views, turns, strict=False):
            seen = [name for name in things_listed(view.text) if name.startswith(goal.object_type + " ")]
            if "I see no" in move.thought:
                assert not seen
            if move.action.startswith("take"):
                assert move.thought == f"I see {seen[0]}. I take it."
        assert turns[-1][0].thought.startswith(f"I hold the hot {goal.object_type} ")


def test_the_same_seed_plays_the_same_game() -> None:
    world = HouseholdWorld(HouseholdOptions(rooms="full"))
    first, again, other = ([move for move, _ in play(world, world.expert(seed), "train", 4)] for seed in (3, 3, 4))
    assert first == again
    assert len(other) > 0


def test_the_random_player_tells_the_truth() -> None:
    world = HouseholdWorld(HouseholdOptions(rooms="medium"))
    told = {True: 0, False: 0}
    turns = impossible = 0
    for index in range(40):
        task = world.open()
        instance = world.instance("train", index)
        view = task.start(instance)
        furniture = set(things_listed(view.text))
        player = RandomPlayer(index)
        player.start(view, instance)
        for _ in range(30):
            move = player.act(view)
            match = re.fullmatch(r"I look for a (\w+)\. I see (?:no \1 here|(.+))\.", move.thought)
            assert match is not None
            names = [name for name in things_listed(view.text) if name not in furniture]
            seen = [name for name in names if name.split()[0] == match[1]]
            assert (match[2] or "").split(" and ") == (seen or [""])
            told[bool(seen)] += 1
            step = task.step(move.action)
            turns, impossible, view = turns + 1, impossible + (not step.valid), step.view
    assert min(told.values()) > 0.15 * turns
    assert 0.04 < impossible / turns < 0.11


def test_the_random_player_repeats_itself_for_a_seed() -> None:
    world = HouseholdWorld(HouseholdOptions(rooms="small"))
    one, two = (play(world, RandomPlayer(5), "train", 1) for _ in range(2))
    assert [move for move, _ in one] == [move for move, _ in two]


@pytest.mark.parametrize(
    ("sentence", "goal"),
    [
        ("put a candle in cabinet.", Goal("pick", "candle", "cabinet")),
        ("put some mug on shelf.", Goal("pick", "mug", "shelf")),
        ("put a clean soapbar in countertop.", Goal("clean", "soapbar", "countertop")),
        ("heat some egg and put it in garbagecan.", Goal("heat", "egg", "garbagecan")),
        ("put a cool pot in diningtable.", Goal("cool", "pot", "diningtable")),
        ("find two cd and put them in safe.", Goal("two", "cd", "safe")),
        ("put two cd in safe.", Goal("two", "cd", "safe")),
        ("look at book under the desklamp.", Goal("look", "book", "desklamp")),
        ("examine the book with the desklamp.", Goal("look", "book", "desklamp")),
    ],
)
def test_task_sentences(sentence: str, goal: Goal) -> None:
    assert read_task(sentence) == goal
    assert goal.kind in KINDS


def test_other_sentences_are_refused() -> None:
    with pytest.raises(TaskError, match="not one of this world's"):
        read_task("make me a sandwich.")


def test_reading_an_observation() -> None:
    text = "You open the fridge 1. The fridge 1 is open. In it, you see a apple 2, a egg 1, and a cup 3."
    assert things_listed(text) == ["apple 2", "egg 1", "cup 3"]
    assert place_described(text) == "fridge 1"
    assert things_listed("You arrive at drawer 1. The drawer 1 is closed.") == []
    assert place_described("You pick up the egg 1 from the fridge 1.") == ""
