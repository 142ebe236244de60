"""Duplication, loops, repeated and hallucinated actions, and the drift of length."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isentrope.core.types import Episode
from isentrope.learning.tokens import step_tokens
from isentrope.metrics.degeneracy import (
    degeneracy_metrics,
    duplicated,
    hallucinated,
    looping,
    named,
    sentences_of,
)
from isentrope.metrics.observe import LengthDrift
from isentrope.runs.token_texts import TokenTexts
from tests.builders.episodes import episode, episodes
from tests.builders.turns import said, turn
from tests.metrics import naive

LETTERS = TokenTexts([bytes([code]) for code in range(256)])


def written(text: str, **changes: object) -> Episode:
    return episode(said(list(text.encode()), **changes))


def test_sentences() -> None:
    text = "<think>Go left.  Go  LEFT! Is 3.5 more?\nyes</think>... <action>go left</action>"
    assert sentences_of(text) == ["go left.", "go left!", "is 3.5 more?", "yes", "go left"]
    assert sentences_of("") == sentences_of(" . ! \n") == []


def test_duplication_by_hand() -> None:
    twice = written("I look. I wait. i  look. Fine.")  # two of four stand more than once
    once = written("I look. I wait.")  # that another response said so too does not count
    assert duplicated(step_tokens([twice, once]), LETTERS) == (6, 2)
    assert degeneracy_metrics([twice, once], step_tokens([twice, once]), LETTERS)["degeneracy/duplication"] == 2 / 6


def test_the_action_may_repeat_the_thought() -> None:
    text = "<think>go left</think><action>go left</action>"
    at = text.index("<action>") + 8
    free = written(text, action_span=(at, at + 7))
    assert duplicated(step_tokens([free]), LETTERS) == (1, 0)
    assert duplicated(step_tokens([written(text)]), LETTERS) == (2, 2)


@pytest.mark.parametrize(
    ("ids", "loops"),
    [
        ([7] * 12, True),
        ([7] * 11, False),  # fewer than twelve tokens in all
        ([1, 2, 3, 4] * 3, True),
        ([1, 2, 3, 4, 5] * 2 + [1, 2, 3, 4], False),  # not three times
        ([9, 8] + [1, 2, 3, 4, 5] * 3 + [6], True),
        ([1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 1, 2, 3, 4, 6], False),
        (list(range(32)) * 3, True),
        (list(range(33)) * 3, False),  # a longer stretch than we look for
        ([], False),
        ([1], False),
    ],
)
def test_loops(ids: list[int], loops: bool) -> None:
    step = step_tokens([episode(said(ids))]) if ids else step_tokens([episode(turn([]))])
    assert looping(step).tolist() == ([loops] if ids else [])
    assert naive.looping(ids) == loops


def test_a_loop_does_not_reach_into_the_next_response() -> None:
    assert looping(step_tokens([episode(said([7] * 8), said([7] * 8)), episode(said([7] * 8))])).tolist() == [False] * 3


@given(st.lists(st.lists(st.integers(0, 1), max_size=40), max_size=4))
@settings(max_examples=80, deadline=None)
def test_loops_equal_plain_loops(all_ids: list[list[int]]) -> None:
    step = step_tokens([episode(*(said(ids) for ids in all_ids))])
    assert looping(step).tolist() == [naive.looping(ids) for ids in all_ids if ids]


def play(*turns: tuple[str, str | None, str], goal: str = "", admissible: tuple[str, ...] | None = None) -> Episode:
    return episode(
        *(turn([1.0], observation=o, action=a, verdict=v, admissible=admissible) for o, a, v in turns), goal=goal
    )


@pytest.mark.parametrize(
    ("game", "sent", "invented"),
    [
        (play(("You see a cabinet 3.", "go to cabinet 7", "inadmissible")), 1, 1),
        (
            play(("You see a cabinet 3.", "open cabinet 3", "inadmissible")),
            1,
            0,
        ),  # it is there: refused for another reason
        (play(("You see a cabinet 3.", "go to cabinet 7", "ok")), 1, 0),  # the task carried it out
        (play(("Nothing.", "open the fridge", "inadmissible"), goal="Cool it in the FRIDGE."), 1, 0),
        (play(("Nothing.", "open the fridge", "inadmissible")), 1, 1),
        (play(("Nothing.", "open fridge", "inadmissible"), admissible=("close fridge", "look")), 1, 0),
        (play(("Nothing.", None, "no_action")), 0, 0),
        (play(("A mug 1.", "look", "ok"), ("Dark.", "take mug 1 from desk 2", "inadmissible")), 2, 1),
        (play(("A mug 1 on desk 2.", "look", "ok"), ("Dark.", "take mug 1 from desk 2", "inadmissible")), 2, 0),
        (play(("Dark.", "take mug 1", "inadmissible"), ("A mug 1.", "look", "ok")), 2, 1),  # seen only later
    ],
)
def test_hallucinated_by_hand(game: Episode, sent: int, invented: int) -> None:
    assert hallucinated([game]) == (sent, invented)


def test_a_number_of_thousands_of_digits_is_a_name_like_any_other() -> None:
    """Python's int() refuses it, and a task may say anything."""
    digits = "7" * 10_000
    game = episode(said([1], observation=f"cabinet {digits}", action="open drawer 07", verdict="inadmissible"))
    assert hallucinated([game]) == (1, 1)
    assert named("open drawer 007") == named("open drawer 7")
    assert named(f"open drawer {digits}") == [f"drawer {digits}"]


def test_what_an_action_names() -> None:
    assert named("put Egg 1 in/on the counter 02") == ["egg 1", "counter 2"]
    assert named("look") == named("") == named("7") == []


def test_repeated_actions_and_nothing_at_all() -> None:
    step = [
        episode(*(turn([1.0], action=action) for action in ("look", "look", "go", None, None, "go"))),
        episode(turn([1.0], action="go")),
    ]
    assert degeneracy_metrics(step, step_tokens(step), None)["degeneracy/repeated_actions"] == 1 / 5
    for nothing in ([], [episode()]):
        assert degeneracy_metrics(nothing, step_tokens(nothing), LETTERS) == {}
    unknown = [episode(said([300, -1, 999]))]  # ids that are not in the table read as nothing
    assert "degeneracy/duplication" not in degeneracy_metrics(unknown, step_tokens(unknown), LETTERS)


@given(episodes, st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_equals_plain_loops_in_any_order(step: list[Episode], order: random.Random) -> None:
    found = degeneracy_metrics(step, step_tokens(step), LETTERS)
    responses = [each.response_ids.tolist() for one in step for each in one.turns if len(each.response_ids)]
    loops = naive.mean([float(naive.looping(ids)) for ids in responses])
    assert found.get("degeneracy/loops") == (None if loops is None else pytest.approx(loops))
    repeated = naive.repeated(step)
    assert found.get("degeneracy/repeated_actions") == (None if repeated is None else pytest.approx(repeated))
    mixed = list(step)
    order.shuffle(mixed)
    assert degeneracy_metrics(mixed, step_tokens(mixed), LETTERS) == found


def test_length_drift_is_told_against_the_first_five_steps() -> None:
    drift = LengthDrift()
    found = [drift.look({"response/tokens": value}) for value in (10.0, 20.0, 30.0, 20.0, 20.0, 40.0)]
    assert found == [{}] * 5 + [{"degeneracy/length_drift": 2.0}]
    again = LengthDrift()
    again.load_state_dict(drift.state_dict())
    assert again.look({"response/tokens": 10.0}) == {"degeneracy/length_drift": 0.5}
    assert again.look({}) == again.look({"response/tokens": float("nan")}) == {}
