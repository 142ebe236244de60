from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isentrope.core.errors import TaskError
from isentrope.worlds.adapters.reasoning_gym import (
    FORMULAS,
    LITERALS,
    NO_ANSWERS,
    ON_REQUEST,
    SUMS,
    ReasoningGymOptions,
    ReasoningGymWorld,
    harmless,
)
from isentrope.worlds.conformance.suite import assert_conforms
from isentrope.worlds.pool.open import choose_placement

reasoning_gym = pytest.importorskip("reasoning_gym", reason="needs pip install 'isentrope[reasoning-gym]'")

SLOW = ("futoshiki", "knight_swap", "sudoku", "zebra_puzzles", "puzzle24", "sokoban", "arc_agi")


def made(*names: str, **config: Any) -> ReasoningGymWorld:
    return ReasoningGymWorld(ReasoningGymOptions(datasets=names, config=config))


def test_it_conforms() -> None:
    assert_conforms(ReasoningGymWorld(), games=8, remake=("reasoning_gym", {}))


def test_questions_and_scores_are_the_packages_own() -> None:
    world = made("leg_counting", "countdown")
    instance = world.instance("dev", 7)
    assert instance.kind == "countdown"
    original = reasoning_gym.create_dataset("countdown", seed=3 * 2**30 + 7, size=1)
    task = world.open()
    assert task.start(instance).text == original[0]["question"]
    assert task.step(original[0]["answer"]).success
    task.start(instance)
    step = task.step("1 + 1")
    assert (step.reward, step.success, step.info["score"]) == (0.05, False, 0.05)  # a sum, but not of these numbers


def test_every_data_set_has_questions_and_most_have_answers() -> None:
    names = [name for name in made("all").kinds if name not in SLOW]
    assert len(names) == 106 - len(ON_REQUEST) - len(SLOW)
    world = made(*names)
    task = world.open()
    for index, name in enumerate(names):
        instance = world.instance("train", index)
        assert instance.kind == name
        entry, _ = world.question(instance)
        assert task.start(instance).text == entry["question"]
        if name in NO_ANSWERS:
            assert entry["answer"] is None
        else:
            assert task.step(str(entry["answer"])).success, name
    assert world.expert(0) is None  # since some have no answers
    assert made("gcd").expert(0) is not None


def test_settings_of_a_data_set() -> None:
    world = made("chain_sum", chain_sum={"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1})
    assert len(world.question(world.instance("train", 0))[0]["metadata"]["difficulty"]) > 0
    assert world.open().start(world.instance("train", 0)).text.count("+") + 1 <= 2
    with pytest.raises(TaskError, match="could not make chain_sum"):
        made("chain_sum", chain_sum={"min_terms": -5}).open().start(world.instance("train", 0))


@pytest.mark.parametrize("name", sorted(LITERALS | SUMS | FORMULAS | {"complex_arithmetic"}))
def test_answers_are_never_run(name: str, tmp_path: Any) -> None:
    world = made(name)
    task, instance = world.open(), world.instance("train", 0)
    mark = tmp_path / "was-here"
    for answer in (
        f"__import__('pathlib').Path({str(mark)!r}).touch()",
        f"[__import__('os').system('touch {mark}')]",
        f"[x for x in [open({str(mark)!r}, 'w')]]",
        f"(lambda: open({str(mark)!r}, 'w'))()",
        "9**9**9**9", "9**(9**9**9)", "factorial(10**10)", "10**10!", "nan", "x.__class__", "1" * 5000,
    ):  # fmt: skip
        task.start(instance)
        assert not task.step(answer).success
    assert not mark.exists()


@pytest.mark.parametrize("name", ["simple_integration", "coin_flip", "gcd"])
def test_a_number_that_takes_forever_is_not_right(name: str) -> None:
    world = made(name)
    task = world.open()
    for answer in ("((((9**99)**99)**99)**99)**99", "1e300000000", "-1.0E+300000000"):
        task.start(world.instance("train", 0))
        assert not task.step(answer).success


def test_an_answer_that_reads_like_a_huge_number_can_be_right() -> None:
    world = made("base_conversion")
    task, instance = world.open(), world.instance("train", 0)
    entry, _ = world.question(instance)
    entry["answer"] = "1e30000"  # in base 16, say
    world.question = lambda instance: (entry, lambda answer, entry: float(answer == entry["answer"]))  # type: ignore[method-assign]
    task.start(instance)
    assert task.step("1e30000").success


def test_scorers_that_do_not_come_back_are_left_behind_in_workers() -> None:
    assert choose_placement("auto", 0, made("intermediate_integration")).workers > 0
    assert choose_placement("auto", 0, made("gcd", "ransom_note")).workers == 0  # questions differ between processes


def test_the_guard_is_needed(tmp_path: Any) -> None:
    """Without it the package would run what the model says; if this fails, the package has been mended."""
    mark = tmp_path / "was-here"
    data = reasoning_gym.create_dataset("spiral_matrix", seed=1, size=1)
    data.score_answer(f"__import__('pathlib').Path({str(mark)!r}).touch()", data[0])
    assert os.path.exists(mark)


@given(st.lists(st.integers(-99, 99) | st.lists(st.integers(0, 9))))
def test_lists_are_handed_on(values: list[Any]) -> None:
    assert harmless("binary_matrix", repr(values))


@pytest.mark.parametrize(
    ("name", "answer", "fine"),
    [
        ("string_insertion", "ABCDE", True),
        ("string_insertion", "exit()", False),
        ("spiral_matrix", "1 2 3", True),
        ("n_queens", "_ Q _ _\n_ _ _ Q", True),
        ("countdown", "(12 + 3) * 4 - 5/6", True),
        ("countdown", "2**3", False),
        ("countdown", "a + 1", False),
        ("countdown", "99999999!", False),
        ("countdown", "[1] * 2", False),
        ("puzzle24", "(" * 30 + "1" + ")" * 30, False),
        ("puzzle24", "4 * (7 - 1)", True),
        ("polynomial_multiplication", "3*x**12 - 2*y**(-2) + z", True),
        ("polynomial_multiplication", "x**999999", False),
        ("intermediate_integration", "-x*cos(x)/2 + exp(2*x)*log(x) + C", True),
        ("intermediate_integration", "exec(x)", False),
        ("simple_integration", "x**2**2**2", False),
        ("simple_integration", "((((9**99)**99)**99)**99)**99", False),
        ("simple_integration", "(9**50)**(5/1)", False),
        ("simple_integration", "1e300000000", False),
        ("intermediate_integration", "2*1e9", False),
        ("intermediate_integration", "0x9", False),
        ("intermediate_integration", "x2 + 1", False),
        ("intermediate_integration", "((x**2 + 1)**3)**3/6 + C", True),
        ("puzzle24", "1E9", False),
        ("coin_flip", "1e300000000", False),
        ("coin_flip", "1.E-30_0000", False),
        ("coin_flip", "2/9", True),
        ("power_function", "1.5e-300", True),
        ("gcd", "anything; at all()", True),
    ],
)
def test_what_is_handed_on(name: str, answer: str, fine: bool) -> None:
    assert harmless(name, answer) is fine


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"datasets": ("countdwn",)}, "did you mean countdown"),
        ({"datasets": ()}, "is empty"),
        ({"config": {"no_such": {}}}, "no data set 'no_such'"),
    ],
)
def test_what_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(TaskError, match=words):
        ReasoningGymWorld(ReasoningGymOptions(**options))
