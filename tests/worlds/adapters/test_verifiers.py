from __future__ import annotations

import signal
import threading
from typing import Any

import pytest

from isentrope.core.errors import TaskError
from isentrope.worlds.adapters.verifiers import VerifiersOptions, VerifiersWorld
from isentrope.worlds.conformance.suite import assert_conforms

pytest.importorskip("verifiers", reason="needs pip install 'isentrope[verifiers]'")

SUMS = "tests.worlds.adapters.vf_sums"


def made(form: str = "{action}", full_score: float = 1.25, **args: Any) -> VerifiersWorld:
    return VerifiersWorld(VerifiersOptions(env=SUMS, args=args, form=form, full_score=full_score))


@pytest.mark.slow(4)
@pytest.mark.parametrize("args", [{}, {"turns": 3, "evaluation": 5}])
def test_it_conforms(args: dict[str, Any]) -> None:
    world = made(**args)
    assert_conforms(world, games=3)
    world.close()


def test_one_turn_scored_by_the_rubric() -> None:
    """right has weight 1 and short, which is always 0.5, weight 0.5: 1.25 in all, or 0.25."""
    world = made()
    task, instance = world.open(), world.instance("train", 3)
    view = task.start(instance)
    assert (view.goal, view.rules) == ("What is 3 + 3?", "Answer with a number alone.")
    step = task.step(" 6 ")
    assert (step.reward, step.success, step.terminated) == (1.0, True, True)
    assert (step.info["score"], step.info["right"], step.info["short"]) == (1.25, 1.0, 0.5)
    task.start(instance)
    step = task.step("7")
    assert (step.reward, step.success, step.info["score"]) == (0.2, False, 0.25)
    with pytest.raises(TaskError, match="without a running episode"):
        task.step("6")


def test_several_turns_in_several_episodes_at_once() -> None:
    world = made(turns=3)
    tasks = [world.open() for _ in range(4)]
    for index, task in enumerate(tasks):
        task.start(world.instance("train", index))
    for task in tasks:
        step = task.step("no idea")
        assert (step.view.text, step.terminated) == ("no idea is wrong. Again?", False)
    last = [task.step(str(2 * index)) for index, task in enumerate(tasks)]
    assert all(step.success and step.view.text == "Right." and step.info["num_turns"] == 2 for step in last)
    task = tasks[0]
    task.start(world.instance("train", 0))
    steps = [task.step("wrong") for _ in range(3)]
    assert [step.terminated for step in steps] == [False, False, True]  # its own limit of three turns
    assert not steps[-1].success


def test_rows_for_evaluation_are_its_own_or_every_tenth() -> None:
    assert {split: made().size(split) for split in made().splits()} == {"train": 27, "test": 3}
    world = made()
    assert world.open().start(world.instance("test", 0)).goal == "What is 9 + 9?"
    assert world.open().start(world.instance("train", 9)).goal == "What is 10 + 10?"
    world = made(evaluation=5)
    assert (world.size("train"), world.size("test")) == (30, 5)
    assert world.open().start(world.instance("test", 0)).goal == "What is 1000 + 1000?"
    assert made(rows=5).splits() == ("train",)


def test_the_form_of_a_message() -> None:
    world = made(form="It is {action}")
    task = world.open()
    task.start(world.instance("train", 3))
    assert not task.step("6").success


def test_an_environment_that_is_already_there() -> None:
    from tests.worlds.adapters.vf_sums import load_environment

    world = VerifiersWorld(environment=load_environment(rows=4))
    assert world.size("train") == 4
    assert world.open().start(world.instance("train", 0)).goal == "What is 0 + 0?"


def test_signals_stay_ours_and_threads_end() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    world = made()
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    world.open().start(world.instance("train", 0))
    (thread,) = [one for one in threading.enumerate() if one.name == "verifiers" and one is world.stage.thread]
    world.close()
    thread.join(5)
    assert not thread.is_alive()


def test_the_environments_own_errors_end_the_episode() -> None:
    world = made(turns=3, fails=True)
    task = world.open()
    task.start(world.instance("train", 0))
    with pytest.raises(TaskError, match="the environment failed: Error"):
        task.step("1")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "task.options.env is empty"),
        ({"env": "no-such-environment"}, "could not be loaded"),
        ({"env": SUMS, "args": {"nonsense": 1}}, "could not be loaded"),
        ({"env": SUMS, "args": {"group": True}}, "against each other"),
    ],
)
def test_what_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(TaskError, match=words):
        VerifiersWorld(VerifiersOptions(**options))
