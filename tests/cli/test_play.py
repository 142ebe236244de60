from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from isentrope.cli.play import Game
from isentrope.core.text import plain, shown
from isentrope.worlds.contract import View
from tests.toys import ToyTask, ToyWorld


def played(*lines: str, task: ToyTask | None = None, view: View | None = None, max_turns: int = 50) -> tuple[str, bool]:
    """What is shown when these lines are typed, and whether the game was won."""
    world, typed = ToyWorld(), iter(lines)
    task = task or world.open()
    if view is not None:
        task.start = lambda instance: view
    console = Console(width=100, record=True, force_terminal=False, highlight=False)
    won = Game(task, world.expert(0), world.instance("train", 0), console, lambda _: next(typed, None), max_turns).run()
    return console.export_text(), won


def test_winning_by_number_text_and_hint() -> None:
    text, won = played("1", "add one", "hint", "add one")
    assert won
    assert "Goal: reach 3" in text
    assert "1  add one" in text
    assert "-> add one" in text
    assert text.rstrip().endswith("Solved in 3 turns. Score 1 (a solved task has 1).")


def test_the_other_words() -> None:
    text, won = played("?", "", "99", "dance", "more", "quit", "add one")
    assert not won
    assert "ask the expert" in text
    assert "There is no action 99; they go from 1 to 3." in text
    assert "Nothing happens." in text
    assert text.rstrip().endswith("Left after 1 turn. Score 0 (a solved task has 1).")


def test_the_end_of_the_input_ends_politely() -> None:
    text, _ = played()
    assert "quit ends the game" in text
    assert "Left after 0 turns." in text


def test_many_actions_come_in_pages() -> None:
    many = tuple(f"go to room {number}" for number in range(1, 101))
    text, _ = played("more", "more", "more", view=View("A hall.", many, ""))
    assert "1 to 40 of 100 actions" in text
    assert "81 to 100 of 100 actions" in text
    assert text.count("1 to 40 of 100 actions") == 2  # after the last page comes the first


def test_text_of_a_task_cannot_act_on_the_terminal() -> None:
    view = View("\x1b[2Jhello [bold]you[/bold] :smile:\x1b]0;title\x07\r", ("[red]x[/red]\x1b[31m",), "")
    text, _ = played(view=view)
    assert "hello [bold]you[/bold] :smile:" in text
    assert "[red]x[/red]" in text
    assert "\x1b" not in text


def test_piped_input() -> None:
    command = [sys.executable, "-m", "isentrope", "play", "tests.toys:ToyWorld", "--set", "task.options.goal=2"]
    done = subprocess.run(command, input="1\n1\n", capture_output=True, text=True, check=True)
    assert "Solved in 2 turns. Score 1" in done.stdout
    assert done.stdout.count("turn 2 of 50 > ") == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\x1b[31mb\x1b[0mc", "abc"),
        ("a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\b", "alinkb"),
        ("a\x1b]0;never closed", "a"),
        ("a\x9b2Jb\x1bcd", "abd"),
        ("tab\tnew\nline\r\nend\x07\x00\x7f", "tab\tnew\nline\nend"),
        ("right\u202eto left\u2028", "rightto left"),
        ("search[red shoes] é 日本", "search[red shoes] é 日本"),
    ],
)
def test_plain(text: str, expected: str) -> None:
    assert plain(text) == expected


@given(st.text(st.sampled_from("\x1b[]0;m\x07\x9b\\a\r\n\t\u202e\ud800")))
def test_plain_leaves_nothing_that_acts(text: str) -> None:
    clean = plain(text)
    assert not set(clean) & set("\x1b\x9b\x07\r\u202e\ud800")
    assert plain(clean) == clean
    assert shown(text).plain == clean


def test_a_game_that_ends_badly() -> None:
    class Fatal(ToyTask):
        def step(self, action: str):
            return replace(super().step(action), terminated=True)

    text, won = played("look", task=Fatal(ToyWorld()._options))
    assert not won
    assert "Not solved: it ended after 1 turn." in text


def test_what_the_tab_key_offers() -> None:
    view = View("Here.", ("add one", "Add two", "ad\x1b[2Jd", "look"), "")
    world = ToyWorld()
    task = world.open()
    task.start = lambda instance: view
    game = Game(task, None, world.instance("train", 0), Console(), lambda _: None)
    assert game.words("add ") == ["add one", "Add two"]
    assert game.words("")[-3:] == ["hint", "more", "quit"]
    assert not any("\x1b" in word for word in game.words(""))


def test_the_limit_is_said_once() -> None:
    text, _ = played("look", "look", max_turns=1)
    assert text.count("A policy's episode ends here: task.max_turns = 1") == 1
