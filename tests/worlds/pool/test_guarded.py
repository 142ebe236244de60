from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from isentrope.core.errors import TaskError
from isentrope.worlds.contract import Step, View
from isentrope.worlds.pool.sanitize import in_words, sanitize_step, sanitize_view

VIEW = View("text", ("look",), "goal")


@pytest.mark.parametrize(
    "view",
    [None, "text", View(3, None), View("x", (1,)), View("x", None, b"goal")],  # type: ignore[arg-type]
)
def test_views_of_the_wrong_type_are_refused(view: Any) -> None:
    with pytest.raises(TaskError, match="expected"):
        sanitize_view(view)


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), -float("inf")])
def test_rewards_that_are_not_numbers_are_refused(reward: float) -> None:
    with pytest.raises(TaskError, match="reward"):
        sanitize_step(Step(VIEW, reward=reward))


@pytest.mark.parametrize("step", [None, VIEW, Step(None), Step(VIEW, reward="lots")])  # type: ignore[arg-type]
def test_steps_of_the_wrong_type_are_refused(step: Any) -> None:
    with pytest.raises((TaskError, ValueError, TypeError)):
        sanitize_step(step)


def test_what_cannot_be_stored_is_replaced() -> None:
    view = sanitize_view(View("a\ud800b", ("\udcff",), "\ud800"))
    assert (view.text, view.admissible, view.goal) == ("a?b", ("?",), "?")
    assert sanitize_view(replace(VIEW, text="日本\x00\x1b")).text == "日本\x00\x1b"


def test_everything_is_bounded() -> None:
    view = sanitize_view(View("x" * 200_000, tuple(f"{n:09d}" for n in range(50_000)), "y" * 200_000))
    assert len(view.text) == len(view.goal) == 100_000
    assert view.admissible is not None
    assert len(view.admissible) == 10_000
    step = sanitize_step(Step(VIEW, info={f"{n}": "z" * 10_000 for n in range(1000)}))
    assert len(step.info) == 100
    assert step.info["0"] == "z" * 500
    odd: Any = Step(VIEW, terminated=1, info={"a": [1], "b": 2.5, "c": True})  # type: ignore[arg-type]
    assert sanitize_step(odd) == Step(VIEW, terminated=True, info={"a": "[1]", "b": 2.5, "c": True})


def test_an_error_that_cannot_even_be_printed() -> None:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert in_words(Unprintable()) == "Unprintable"
