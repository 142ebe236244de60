from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from isentrope.analysis.compare import Choices, make_tables
from isentrope.analysis.result_table import ResultTable
from isentrope.analysis.rows import read_rows
from isentrope.core.errors import ConfigError
from isentrope.core.stats import correlation_of, difference_of, share_of, welch
from isentrope.runs.episodes import write_episodes
from isentrope.runs.layout import eval_path
from tests.analysis.helpers import write
from tests.builders.run_folders import run_folder
from tests.methods.helpers import ragged

FIRST, SECOND = [1, 1, 1, 1, 0, 1, 0, 1], [1, 0, 1, 0, 0, 1, 0, 0]


def against(*named: str, base: str = "B") -> tuple[ResultTable, tuple[float, float, float]]:
    (table,) = make_tables(read_rows([], named), Choices(against=base))
    cell = table.rows[0].cells["difference"]
    assert "difference" not in table.rows[-1].cells  # the row itself
    assert cell.low is not None
    assert cell.high is not None
    return table, (cell.value / 100, cell.low / 100, cell.high / 100)


def test_paired_by_game(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a.json", {"seen": FIRST}), write(tmp_path / "b.json", {"seen": SECOND})
    table, found = against(f"A={a}", f"B={b}")
    rates = [dict(enumerate(map(float, wins))) for wins in (FIRST, SECOND)]
    wanted = difference_of(share_of(FIRST, [1] * 8), share_of(SECOND, [1] * 8), correlation_of(*rates, 8))
    assert found == pytest.approx((wanted.value, wanted.interval.low, wanted.interval.high))
    assert any("over 8 games, paired" in note for note in table.notes)


def test_other_games_are_not_paired(tmp_path: Path) -> None:
    a = write(tmp_path / "a.json", {"seen": FIRST})
    wanted = difference_of(share_of(FIRST, [1] * 8), share_of(SECOND, [1] * 8))
    for other in ({"task__world": "other"}, {"task__options": {"rooms": "big"}}):
        b = write(tmp_path / "b.json", {"seen": SECOND}, **other)
        a = write(tmp_path / "a.json", {"seen": FIRST}, task__options={"rooms": "small"})
        table, found = against(f"A={a}", f"B={b}")
        assert found == pytest.approx((wanted.value, wanted.interval.low, wanted.interval.high))
        assert any("not the same" in note for note in table.notes)
    longer = write(tmp_path / "c.json", {"seen": [*SECOND, 1]})
    assert any("not the same" in note for note in against(f"A={a}", f"B={longer}")[0].notes)


def test_over_seeds(tmp_path: Path) -> None:
    """Two seeds on both sides: what counts is how the seeds differ."""
    for number, wins in enumerate(([1, 1, 0, 1], [1, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 0])):
        write(tmp_path / f"{number}.json", {"seen": wins}, seed=number)
    named = [f"{'AABB'[number]}={tmp_path}/{number}.json" for number in range(4)]
    table, found = against(*named)
    wanted = welch([0.75, 0.5], [0.25, 0.0])
    assert wanted is not None
    assert found == pytest.approx((wanted.value, wanted.interval.low, wanted.interval.high))
    assert any("Welch's interval over 2 and 2 seeds" in note for note in table.notes)
    mixed_table, mixed = against(*named[:3])  # one seed against two: over games, those of the two seeds together
    assert mixed[0] == pytest.approx(0.625 - 0.25)
    assert any("over 4 games, paired" in note for note in mixed_table.notes)


def test_seeds_that_do_not_differ(tmp_path: Path) -> None:
    """Two equal seeds on both sides do not make a difference certain: then the games decide."""
    for number, wins in enumerate(([1, 1, 0, 1], [1, 0, 1, 1], [0, 0, 0, 1], [0, 0, 1, 0])):
        write(tmp_path / f"{number}.json", {"seen": wins}, seed=number)
    table, (value, low, high) = against(*(f"{'AABB'[number]}={tmp_path}/{number}.json" for number in range(4)))
    assert value == pytest.approx(0.5)
    assert low < 0.45
    assert high > 0.55
    assert any("over 4 games, paired" in note for note in table.notes)
    for name, success in (("c-0", 0.5), ("c-1", 0.5), ("d-0", 0.4), ("d-1", 0.4)):  # games not known one by one
        run_folder(tmp_path / name, {10: success}, steps=10, games=20, seed=int(name[-1]))
    _, (value, low, high) = against(f"C={tmp_path}/c-*", f"D={tmp_path}/d-*", base="D")
    assert value == pytest.approx(0.1)
    assert low < -0.1 < 0.3 < high


def test_episodes_of_a_game_are_paired_too(tmp_path: Path) -> None:
    """With several episodes the correction counts the independent episodes that say as much."""
    ours, theirs = [4, 3, 0, 1, 2, 4], [3, 3, 0, 0, 2, 4]
    for name, wins in (("a", ours), ("b", theirs)):
        write(tmp_path / f"{name}.json", {"seen": wins}, episodes=4)
    _, found = against(f"A={tmp_path}/a.json", f"B={tmp_path}/b.json")
    shares = [share_of(wins, [4] * 6) for wins in (ours, theirs)]
    rates = [{game: won / 4 for game, won in enumerate(wins)} for wins in (ours, theirs)]
    related = correlation_of(*rates, min(share.effective for share in shares))
    wanted = difference_of(*shares, related)
    assert 0 < related < 1
    assert found == pytest.approx((wanted.value, wanted.interval.low, wanted.interval.high))


def test_runs_are_paired_by_their_stored_episodes(tmp_path: Path) -> None:
    runs = [run_folder(tmp_path / name, {0: 0.5, 10: 0.5}, steps=10, games=2, seed=i) for i, name in enumerate("ab")]
    named = [f"A={runs[0]}", f"B={runs[1]}"]
    assert any("not recorded one by one" in note for note in against(*named)[0].notes)
    for run in runs:
        episodes = [
            replace(episode, split="seen", success=episode.index == 0) for episode in ragged((((1,),), ((1,),)), seed=1)
        ]
        write_episodes(eval_path(run, 10, "seen"), episodes)
    table, found = against(*named)
    assert found == pytest.approx((0.0, -0.5734, 0.5734), abs=1e-4)  # the same two games solved say very little
    assert any("over 2 games, paired (correlation 0.00)" in note for note in table.notes)


def test_a_row_that_is_not_there(tmp_path: Path) -> None:
    a = write(tmp_path / "a.json", {"seen": FIRST})
    with pytest.raises(ConfigError, match="no row is called so; there are A"):
        make_tables(read_rows([], [f"A={a}"]), Choices(against="B"))
    assert json.loads(a.read_text())["name"] == "row"
