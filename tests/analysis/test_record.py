from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isentrope import __version__
from isentrope.analysis.measure import Evaluation, of_outcomes
from isentrope.analysis.record import FORMAT, Record, as_json, read_record, write_record
from isentrope.core.errors import RunError
from tests.analysis.helpers import outcomes, record, write

Wins = st.lists(st.integers(0, 3), max_size=12)


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(st.text(min_size=1, max_size=5), Wins, max_size=3), st.text(max_size=9))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, wins: Any, name: str) -> None:
    made = record(wins, name=name, episodes=3, task__options={"rooms": "small"}, step=4)
    path = tmp_path_factory.mktemp("records") / "a.json"
    write_record(path, made)
    assert read_record(path) == made
    again = path.with_name("b.json")
    write_record(again, read_record(path))
    assert path.read_bytes() == again.read_bytes()


def test_the_figures_in_the_file() -> None:
    table = as_json(record({"seen": [1, 0, 1, 0]}, name="GRPO", seed=3, step=20))
    assert table["format"] == FORMAT
    assert (table["version"], table["isentrope"], table["name"], table["seed"]) == (1, __version__, "GRPO", 3)
    (evaluation,) = table["evaluations"]
    seen = evaluation["splits"]["seen"]
    assert (evaluation["step"], seen["games"], seen["successes"], seen["success"]) == (20, 4, 2, 0.5)
    assert {kind: share["success"] for kind, share in seen["kinds"].items()} == {"pick": 1.0, "heat": 0.0}
    assert seen["average"] == 0.5
    assert seen["outcomes"] == [[0, "pick", 1, 1], [1, "heat", 0, 1], [2, "pick", 1, 1], [3, "heat", 0, 1]]


def test_notes_that_are_no_numbers_are_left_out() -> None:
    splits = {"seen": of_outcomes(outcomes([1]), {})}
    made = Record("a", "m", 0, "d", {}, (Evaluation(None, splits),), ({"cost": 1.5, "rate": float("nan")},))
    assert as_json(made)["evaluations"][0]["notes"] == {"cost": 1.5}


def test_games_that_were_cut_off_are_kept(tmp_path: Path) -> None:
    splits = {"seen": of_outcomes(outcomes([1, 0]), {}, 1, {"clock": 1, "context_limit": 2})}
    made = Record("a", "m", 0, "d", {}, (Evaluation(None, splits),), ({},))
    write_record(tmp_path / "a.json", made)
    assert read_record(tmp_path / "a.json") == made
    table = json.loads((tmp_path / "a.json").read_text())
    assert split_of(table)["cut"] == {"clock": 1, "context_limit": 2}
    split_of(table)["cut"] |= {"other": "x"}
    (tmp_path / "a.json").write_text(json.dumps(table))
    assert read_record(tmp_path / "a.json") == made  # what a later program may have added
    del split_of(table)["cut"]
    (tmp_path / "a.json").write_text(json.dumps(table))
    assert read_record(tmp_path / "a.json").evaluations[0].splits["seen"].cut == {}


def split_of(table: dict[str, Any]) -> dict[str, Any]:
    return table["evaluations"][0]["splits"]["seen"]


DAMAGE: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda t: t.pop("format"), "not a result"),
    (lambda t: t.update(format="other"), "not a result"),
    (lambda t: t.update(version=2), "version 2"),
    (lambda t: t.update(version="1"), "version '1'"),
    (lambda t: t.pop("seed"), "'seed'"),
    (lambda t: t.update(seed=True), "seed is True"),
    (lambda t: t.update(name=7), "name is 7"),
    (lambda t: t.update(evaluations=[]), "no evaluation"),
    (lambda t: t.update(evaluations=t["evaluations"] * 2), "a step twice"),
    (lambda t: t.update(evaluations=[1]), "an evaluation is 1"),
    (lambda t: t["evaluations"][0].update(step=-1), "step is -1"),
    (lambda t: t["evaluations"][0].update(splits=[]), "splits is"),
    (lambda t: split_of(t).update(games=3), "2 outcomes for 3 games"),
    (lambda t: split_of(t)["outcomes"].append([1, "heat", 0, 1]), "a game stands twice"),
    (lambda t: split_of(t)["outcomes"][0].append(1), "too many values"),
    (lambda t: split_of(t).update(outcomes=[[0, "pick", 2, 1], [1, "heat", 0, 1]]), "solved 2 times in 1"),
    (lambda t: split_of(t).update(outcomes=[[0, "pick", 0, 0], [1, "heat", 0, 1]]), "0 episodes"),
    (lambda t: split_of(t).update(outcomes=[[0.5, "pick", 0, 1], [1, "heat", 0, 1]]), "game is 0.5"),
    (lambda t: split_of(t).update(means=3), "means is 3"),
    (lambda t: split_of(t).update(means={"turns": float("nan")}), "turns is nan"),
    (lambda t: split_of(t).update(means={"turns": float("-inf")}), "turns is -inf"),
    (lambda t: split_of(t).update(means={"turns": 10**400}), "turns is inf"),
    (lambda t: t["evaluations"][0].update(notes={"cost": float("inf")}), "cost is inf"),
    (lambda t: t["evaluations"][0].update(step=10**400), "step is inf"),
    (lambda t: split_of(t).update(outcomes=[[0, "pick", 1, 10**400], [1, "heat", 0, 1]]), "episodes is inf"),
    (lambda t: split_of(t).update(cut=[]), "cut is"),
    (lambda t: split_of(t).update(cut={"clock": -1}), "clock is -1"),
    (lambda t: split_of(t).pop("outcomes"), "'outcomes'"),
]


@pytest.mark.parametrize(("damage", "words"), DAMAGE)
def test_damaged_records(tmp_path: Path, damage: Callable[[dict[str, Any]], object], words: str) -> None:
    path = write(tmp_path / "a.json", {"seen": [1, 0]})
    table = json.loads(path.read_text())
    damage(table)
    path.write_text(json.dumps(table))
    with pytest.raises(RunError, match=words) as caught:
        read_record(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(("content", "words"), [
    (b"", "not JSON"),
    (b"[1]", "holds a list"),
    (b"\xff\xfe", "not JSON"),
    (b"[" * 100_000, "not JSON"),
    (b'{"eval/seen/success": 0.5}', "earlier version"),
    (b"{}", "not a result"),
])  # fmt: skip
def test_foreign_files(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(RunError, match=words):
        read_record(path)


def test_a_part_of_a_record(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", {"seen": [1, 0]})
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(RunError, match="only a part"):
        read_record(path)
    with pytest.raises(RunError, match="could not read"):
        read_record(tmp_path / "missing.json")
