from __future__ import annotations

import random
from typing import Any

import pytest

from isentrope.core.errors import TaskError
from isentrope.worlds.adapters.textarena import TextArenaOptions, TextArenaWorld
from isentrope.worlds.conformance.suite import assert_conforms
from isentrope.worlds.contract import Step

textarena = pytest.importorskip("textarena", reason="needs pip install 'isentrope[textarena]'")

ALONE = (
    "2048-v0", "Bandit-v0", "Blackjack-v0", "Countdown-v0", "Crosswords-v0", "Cryptarithm-v0", "FifteenPuzzle-v0",
    "FrozenLake-v0", "GuessTheNumber-v0", "LightsOut-v0", "LogicPuzzle-v0", "Mastermind-v0", "Minesweeper-v0",
    "PegJump-v0", "QuantumTicTacToe-v0", "Secretary-v0", "Set-v0", "Slitherlink-v0", "SpiteAndMalice-v0", "Sudoku-v0",
    "ThreeCardMonte-v0", "TowerOfHanoi-v0",
)  # fmt: skip


def made(*games: str, opponent: str = "") -> TextArenaWorld:
    return TextArenaWorld(TextArenaOptions(games=games, opponent=opponent))


def timid(game: Any, reads: str, luck: random.Random) -> str:
    return "[fold]" if "fold" in reads else "[check]"


@pytest.mark.slow(4)
def test_it_conforms_with_every_game_for_one_that_runs_offline() -> None:
    assert_conforms(made(*ALONE), games=len(ALONE), max_turns=6, remake=("textarena", {"games": list(ALONE)}))


@pytest.mark.parametrize("game", ["TicTacToe-v0", "ConnectFour-v0", "Nim-v0", "KuhnPoker-v0", "PigDice-v0"])
def test_it_conforms_with_games_for_two(game: str) -> None:
    assert_conforms(made(game, opponent="random"), games=2, max_turns=6)


def test_bisection_wins_and_the_game_is_textarenas_own() -> None:
    world = made("GuessTheNumber-v0")
    instance = world.instance("test", 4)
    original = textarena.make("GuessTheNumber-v0-raw")
    original.reset(num_players=1, seed=world.seed(instance))
    secret = original.state.game_state["game_number"]
    task = world.open()
    assert "between 1 and 20" in task.start(instance).goal
    low, high = 1, 20
    for _ in range(10):
        middle = (low + high) // 2
        step = task.step(str(middle))  # brackets are put around it
        if step.terminated:
            break
        low, high = (middle + 1, high) if "higher" in step.view.text else (low, middle - 1)
    assert (middle, step.success, step.reward, step.info["score"]) == (secret, True, 1.0, 1.0)
    with pytest.raises(TaskError, match="without a running episode"):
        task.step("5")


def test_an_invalid_move_is_told_and_a_second_one_loses() -> None:
    world = made("GuessTheNumber-v0")
    task = world.open()
    task.start(world.instance("train", 0))
    first = task.step("[fish]")
    assert (first.valid, first.terminated) == (False, False)
    assert "invalid move" in first.view.text
    second = task.step("[fish]")
    assert (second.valid, second.terminated, second.success, second.reward) == (False, True, False, 0.0)


def test_the_trainers_random_numbers_are_left_alone() -> None:
    world = made("Mastermind-v0")
    random.seed(5)
    expected = [random.random() for _ in range(3)]
    random.seed(5)
    task = world.open()
    drawn = []
    task.start(world.instance("train", 0))
    for _ in range(3):
        drawn.append(random.random())
        task.step("[1 2 3 4]")
    assert drawn == expected


def test_games_that_draw_while_they_are_played_do_not_disturb_each_other() -> None:
    """2048 puts a new tile at a random place after every move."""
    world = made("2048-v0")
    moves = ["[up]", "[left]", "[down]", "[right]"] * 5
    task, other = world.open(), world.open()
    task.start(world.instance("train", 0))
    alone = [task.step(move).view.text for move in moves]
    task.start(world.instance("train", 0))
    other.start(world.instance("train", 1))
    together = []
    for move in moves:
        together.append(task.step(move).view.text)
        random.random()
        other.step(move)
    assert together == alone
    assert len(set(alone)) > 10


def play_to_the_end(world: TextArenaWorld, moves: list[str]) -> Step:
    task = world.open()
    task.start(world.instance("train", 1))
    for move in moves:
        step = task.step(move)
        if step.terminated:
            return step
    raise AssertionError("the game went on")


def test_a_game_against_the_random_opponent_and_one_of_your_own() -> None:
    won = lost = 0
    for index in range(20):
        world = made("TicTacToe-v0", opponent="random")
        task, luck = world.open(), random.Random(index)
        task.start(world.instance("train", index))
        cells = list(range(9))
        luck.shuffle(cells)
        for cell in cells:
            step = task.step(f"[{cell}]")
            if step.terminated:
                break
        won += step.success
        assert step.reward == float(step.success)  # a lost game is -1 for textarena
        lost += step.terminated and not step.success and step.info["score"] < 0
    assert won
    assert lost
    poker = made("KuhnPoker-v0", opponent="tests.worlds.adapters.test_textarena:timid")
    assert play_to_the_end(poker, ["[bet]"] * 30).terminated


@pytest.mark.parametrize(
    ("games", "opponent", "words"),
    [
        (("GuesTheNumber-v0",), "", "did you mean GuessTheNumber-v0"),
        ((), "", "is empty"),
        (("Chopsticks-v0",), "random", "does not know the moves of Chopsticks-v0"),
        (("TicTacToe-v0",), "no_such_module:f", "could not be loaded"),
        (("TicTacToe-v0",), "smart", "expected random"),
    ],
)
def test_what_is_refused(games: tuple[str, ...], opponent: str, words: str) -> None:
    with pytest.raises(TaskError, match=words):
        made(*games, opponent=opponent)


def test_a_game_for_more_players_is_refused_when_it_starts() -> None:
    for game, opponent, words in (
        ("TicTacToe-v0", "", "needs task.options.opponent"),
        ("SecretMafia-v0", "tests.worlds.adapters.test_textarena:timid", "cannot be played by 2|could not be started"),
    ):
        world = made(game, opponent=opponent)
        with pytest.raises(TaskError, match=words):
            world.open().start(world.instance("train", 0))
