"""Plain lines where there is no terminal: enough to see that a run lives, not so many that they hide it."""

from __future__ import annotations

import pytest

from isentrope.loop import progress
from isentrope.loop.progress import Progress


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(progress, "time", made)
    return made


def test_steps_are_lines_now_and_then(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as watch:
        watch.begin("train", 100, 10)
        for _ in range(90):
            clock.now += 4
            watch.advance("success 0.50")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "train 11/100  success 0.50  about 6 min left"
    assert lines[1] == "train 15/100  success 0.50  about 6 min left"
    assert lines[-1] == "train 100/100  success 0.50"
    assert len(lines) == 1 + 22 + 1


def test_a_long_stage_is_heard_of_beside_the_output(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as watch:
        for _ in range(20):  # short stages say nothing, and take no line from the steps
            with watch.stage("play", 8) as moved:
                clock.now += 10
                moved(8)
        with watch.stage("evaluate seen", 512) as moved:
            for _ in range(4):
                clock.now += 8
                moved(128)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == ["  evaluate seen 256/512", "  evaluate seen 512/512"]


HOSTILE = "\x1b]0;owned\x07\x1b[2J[red]household[/red] :bomb:\u202e"


def test_foreign_words_do_not_act_on_the_terminal(
    clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Progress() as watch:
        watch.say(f"train: {HOSTILE}")
        with watch.stage(HOSTILE, 2) as moved:
            clock.now += 20
            moved(1)
    said = capsys.readouterr()
    assert said.out == "train: [red]household[/red] :bomb:\n"
    assert said.err == "  [red]household[/red] :bomb: 1/2\n"
    monkeypatch.setenv("FORCE_COLOR", "1")  # as in a terminal, with bars
    with Progress() as watch:
        watch.begin(HOSTILE, 2)
        with watch.stage(HOSTILE, 2):
            watch.advance(HOSTILE)
    shown = capsys.readouterr().out
    assert "  [red]household[/red]" in shown
    assert not any(bad in shown for bad in ("\x07", "\x1b]", "\x1b[2J", "\u202e"))


def test_long_lines_are_not_broken_and_quiet_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as watch:
        watch.say("word " * 60 + "[red]end")
    assert capsys.readouterr().out == "word " * 60 + "[red]end\n"
    with Progress(quiet=True) as watch:
        watch.begin("train", 1)
        watch.say("x")
        watch.advance()
    assert capsys.readouterr() == ("", "")
