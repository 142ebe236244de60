"""A part of tests/attack/sequences.py; and the referees see what is wrong when a world gives too much."""

from __future__ import annotations

from pathlib import Path

import pytest

from isentrope.worlds.household.engine import Engine
from isentrope.worlds.search_qa import task as search_task
from isentrope.worlds.webshop import visit
from isentrope.worlds.webshop.reward import Score
from tests.attack import sequences


@pytest.fixture(autouse=True)
def _cache_of_the_tests(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISENTROPE_CACHE", str(tmp_path_factory.getbasetemp() / "attack-cache"))


def test_household_gives_nothing_without_the_goal() -> None:
    found = sequences.household(games=12, walks=6, depth=2, seed=1)
    assert found.wrong == []
    assert found.counts["rewards"] >= 12


def test_webshop_gives_nothing_without_the_goal() -> None:
    found = sequences.webshop(goals=8, walks=4, seed=1)
    assert found.wrong == []
    assert found.counts["rewards"] >= 8


def test_search_qa_gives_nothing_without_the_goal() -> None:
    found = sequences.search_qa(questions=4, seed=1)
    assert found.wrong == []
    assert found.counts["rewards"] >= 4


def test_the_referee_sees_a_house_that_gives_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once any lamp was lit, or the thing was in hand, all is well."""
    monkeypatch.setattr(Engine, "_goal_holds", lambda self: self.held in self._t.goal_objects)
    assert any("a reward without the goal" in line for line in sequences.household(3, 2, 1).wrong)


def test_the_referee_sees_a_house_that_gives_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "_goal_holds", lambda self: False)
    assert any("the goal without a reward" in line for line in sequences.household(3, 2, 1).wrong)


@pytest.mark.parametrize(("reward", "said"), [(1.0, "without the goal"), (1.5, "reward 1.5"), (-0.5, "reward -0.5")])
def test_the_referee_sees_a_shop_that_gives_too_much(monkeypatch: pytest.MonkeyPatch, reward: float, said: str) -> None:
    monkeypatch.setattr(visit, "score", lambda goal, bought, chosen: Score(reward, 1.0, 1, 1, True))
    assert any(said in line for line in sequences.webshop(3, 2).wrong)


def test_the_referee_sees_a_second_purchase(monkeypatch: pytest.MonkeyPatch) -> None:
    act = visit.Visit.act

    def again(self: visit.Visit, action: str) -> bool:
        return self.result is not None or act(self, action)

    monkeypatch.setattr(visit.Visit, "act", again)
    assert any("a second reward after the end" in line for line in sequences.webshop(2, 1).wrong)


def test_the_referee_sees_answers_that_only_hold_the_right_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        search_task,
        "exact_match",
        lambda answer, golden: search_task.normalise(golden) in search_task.normalise(answer),
    )
    assert any("a reward without the goal" in line for line in sequences.search_qa(2).wrong)


def test_make_attack_runs_it_whole() -> None:
    assert "-m tests.attack.sequences\n" in (Path(__file__).parents[2] / "Makefile").read_text(encoding="utf-8")
