"""Formulas that mean the same, by math-verify; and what is said where it is missing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from isentrope.core.errors import TaskError
from isentrope.worlds.registry import make_world, world_needs
from tests.worlds.dataset.test_dataset import played, write


def test_the_package_is_asked_for_before_anything_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert world_needs("dataset", {"rewards": ["math"]}).modules == ("math_verify",)
    assert world_needs("dataset", {"rewards": ["code"]}).programs == ("bubblewrap",)
    assert world_needs("dataset", {}).missing() == []
    monkeypatch.setitem(sys.modules, "math_verify", None)
    with pytest.raises(TaskError, match=r"reward function math needs the package math_verify.*\[math\]"):
        make_world("dataset", {"file": write(tmp_path / "a.jsonl"), "rewards": ["math"]})


def test_formulas(tmp_path: Path) -> None:
    pytest.importorskip("math_verify", reason="pip install 'isentrope[math]'")
    rows = [{"question": "?", "answer": r"\frac{1}{2}"}, {"question": "?", "answer": "so it is\n#### x^2+2x+1"}]
    world = make_world("dataset", {"file": write(tmp_path / "a.jsonl", rows), "test_share": 0.0, "rewards": ["math"]})
    assert world.prefers == "processes"  # type: ignore[attr-defined]
    for index, answer, right in (
        (0, "The answer is 0.5", True),
        (0, r"Thus $\boxed{\frac{2}{4}}$.", True),
        (0, "2", False),
        (0, "", False),
        (0, "\\frac{" * 500, False),
        (1, "$(x+1)^2$", True),
        (1, "$x^2$", False),
    ):
        assert played(world, answer, index=index)[0].success == right, answer  # type: ignore[arg-type]
