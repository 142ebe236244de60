"""What tasks give that they should not: cut, replaced or refused, and always told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isentrope.worlds.contract import Step, View
from isentrope.worlds.pool.codec import MAX_MESSAGE, pack, result_from_table, result_to_table, unpack
from isentrope.worlds.pool.guarded import Failure
from isentrope.worlds.pool.sanitize import MAX_TEXT, Garbage, sanitize_step, sanitize_view

VIEW = View("text", ("look",), "goal")


def test_a_long_observation_is_cut_with_a_note() -> None:
    view = sanitize_view(replace(VIEW, text="x" * 10_000_000))
    assert view.mended == ("text_cut",)
    assert len(view.text) == MAX_TEXT
    assert view.text.endswith("x\n[cut here: 10,000,000 characters in all]")
    assert sanitize_view(view) == view  # what is tidy stays as it is
    assert sanitize_view(VIEW) == VIEW


def test_long_lists_and_bombs_of_info() -> None:
    view = sanitize_view(replace(VIEW, admissible=tuple(f"go to {n}" for n in range(1_000_000))))
    assert view.mended == ("actions_cut",)
    assert view.admissible is not None
    assert sum(map(len, view.admissible)) + len(view.admissible) <= MAX_TEXT
    bombs: list[dict[Any, Any]] = [
        {str(n): 1.0 for n in range(100_000)},
        {"a": "z" * 10_000_000},
        {"a": 10**10_000},
        {"k" * 10_000: 1.0},
    ]
    for bomb in bombs:
        step = sanitize_step(Step(VIEW, info=bomb))
        assert step.view.mended == ("info_cut",)
        assert len(pack(result_to_table(step))) < 100_000
    assert sanitize_step(Step(VIEW, info={"a": float("nan")})).info == {"a": "nan"}


def test_characters_that_do_not_exist() -> None:
    view = sanitize_view(View("a\ud800b", ("\udcff",), "goal"))
    assert (view.text, view.admissible, view.mended) == ("a?b", ("?",), ("encoding",))


class Hostile(Step):
    @property
    def reward(self) -> float:  # type: ignore[override]
        raise RuntimeError("no")


class Lying(str):
    """Text that says it is short."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, key: Any) -> str:
        return "y" * 10_000_000

    def isascii(self) -> bool:
        return True


class LyingNumber(float):
    def __float__(self) -> float:
        return 1.0

    def __str__(self) -> str:
        raise RuntimeError


def hostile() -> Hostile:
    step = Hostile.__new__(Hostile)
    for name, value in vars(Step(VIEW)).items():
        if name != "reward":
            object.__setattr__(step, name, value)
    return step


@pytest.mark.parametrize(
    "step",
    [
        hostile(),
        Step(VIEW, reward="1.0"),  # type: ignore[arg-type]
        Step(VIEW, reward=None),  # type: ignore[arg-type]
        Step(VIEW, reward=10**400),
        Step(VIEW, terminated="false"),  # type: ignore[arg-type]
        Step(VIEW, success=None),  # type: ignore[arg-type]
        Step(VIEW, info=[1]),  # type: ignore[arg-type]
        Step(VIEW, info={"a": LyingNumber("nan")}),
        Step(replace(VIEW, text=b"\xff\xfe")),  # type: ignore[arg-type]
        Step(replace(VIEW, admissible="look")),  # type: ignore[arg-type]
        Step(replace(VIEW, admissible=5)),  # type: ignore[arg-type]
        Step(replace(VIEW, mended=5)),  # type: ignore[arg-type]
        *(Step(VIEW, reward=float(text)) for text in ("nan", "inf", "-inf")),
    ],
)
def test_what_cannot_be_used_is_refused(step: Any) -> None:
    with pytest.raises(Garbage):
        sanitize_step(step)


def test_subclasses_become_what_they_are() -> None:
    view = sanitize_view(View(Lying("x" * 200_000), (Lying("look"),), Lying("goal")))
    assert type(view.text) is str
    assert view.text.startswith("xxx")
    assert len(view.text) == MAX_TEXT
    assert view.admissible == ("look",)
    assert view.goal == "goal"
    assert {type(part) for part in (view.goal, *(view.admissible or ()))} == {str}


text = st.text(max_size=30)
views = st.builds(View, text, st.none() | st.lists(text, max_size=4).map(tuple), text, text)
info = st.dictionaries(text, text | st.booleans() | st.floats() | st.integers(), max_size=4)
steps = st.builds(
    Step, views, st.floats(-9, 9), st.booleans(), st.booleans(), st.booleans(), st.booleans(), info
)  # fmt: skip


@given(st.one_of(views.map(sanitize_view), steps.map(sanitize_step), st.builds(Failure, st.just("garbage"), text)))
def test_results_survive_the_wire(result: View | Step | Failure) -> None:
    try:
        data = pack(result_to_table(result))
    except UnicodeEncodeError:
        assert isinstance(result, Failure)  # details are made tidy where they are made
        return
    assert result_from_table(unpack(data)) == result


def test_the_worst_tidy_step_fits_into_a_message() -> None:
    worst = View("\x01" * MAX_TEXT, ("\x01" * (MAX_TEXT - 1),), "\x01" * MAX_TEXT, "\x01" * MAX_TEXT)
    step = sanitize_step(Step(worst, info={f"{n:03}" + "\x01" * 97: "\x01" * 500 for n in range(100)}))
    assert len(pack(result_to_table(step))) < MAX_MESSAGE


@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda t: t.encode("utf-8", "replace")))
def test_reading_never_raises_anything_but_garbage(data: bytes) -> None:
    try:
        result_from_table(unpack(data))
    except Garbage:
        pass


json = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["view", "step", "text", "reward", "admissible", "failure"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["view", "step", "failure"]), json, max_size=2))
def test_tables_of_any_shape(table: dict[str, Any]) -> None:
    try:
        result = result_from_table(table)
    except Garbage:
        return
    assert isinstance(result, View | Step | Failure)


@pytest.mark.parametrize(
    "data", [b'{"step": {"view": {"text": "a", "admissible": null}, "reward": NaN}}', b"[" * 10**6]
)
def test_json_that_is_none(data: bytes) -> None:
    with pytest.raises(Garbage):
        unpack(data)
