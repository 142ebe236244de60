"""The file of advantages and ratios beside the episodes."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from isentrope.core.errors import RunError
from isentrope.core.types import Scores
from isentrope.runs.episodes import check_scores, read_scores, write_episodes, write_scores
from isentrope.runs.layout import scores_path
from tests.builders.episodes import episode
from tests.builders.turns import said

EPISODES = [episode(said([1, 2])), episode(), episode(said([3]), said([4, 5, 6]))]


def scores(lengths: tuple[int, ...] = (2, 3)) -> Scores:
    count = sum(lengths)
    return Scores(
        np.array([0, 2]),
        np.array([0, 1]),
        np.array(lengths),
        np.linspace(-1, 1, count, dtype=np.float32),
        np.array([1.0, math.nan, 0.9, 1.1, 1.2][:count], dtype=np.float32),
    )


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = scores_path(tmp_path, 12)
    assert path.name == "scores-000012.parquet"
    write_scores(path, scores())
    found = read_scores(path)
    for name, values in vars(scores()).items():
        np.testing.assert_array_equal(getattr(found, name), values)
    check_scores(path, found, EPISODES)
    first = path.read_bytes()
    write_scores(path, scores())
    assert path.read_bytes() == first


def test_weights_are_kept_and_older_files_have_none(tmp_path: Path) -> None:
    path = scores_path(tmp_path, 12)
    write_scores(path, scores())
    assert read_scores(path).weight_N is None
    weight_N = np.array([0.5, 0.0, 0.25, 0.125, 0.125], dtype=np.float32)
    write_scores(path, replace(scores(), weight_N=weight_N))
    np.testing.assert_array_equal(read_scores(path).weight_N, weight_N)
    check_scores(path, read_scores(path), EPISODES)
    with pytest.raises(RunError, match="does not belong"):
        check_scores(path, replace(scores(), weight_N=weight_N[:3]), EPISODES)


def test_a_step_without_learning(tmp_path: Path) -> None:
    none = np.zeros(0, dtype=np.int64)
    empty = Scores(none, none, none, np.zeros(0, dtype=np.float32), np.zeros(0, dtype=np.float32))
    write_scores(tmp_path / "x.parquet", empty)
    assert read_scores(tmp_path / "x.parquet").responses() == []


def test_scores_of_other_episodes_are_refused(tmp_path: Path) -> None:
    for wrong in (EPISODES[::-1], EPISODES[:1], [EPISODES[0], episode(), episode(said([3]), said([4]))]):
        with pytest.raises(RunError, match="does not belong"):
            check_scores(tmp_path / "x.parquet", scores(), list(wrong))


def test_damaged_and_foreign_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "scores-000001.parquet"
    for content in (b"", b"PAR1", b"x" * 100):
        path.write_bytes(content)
        with pytest.raises(RunError, match="could not read"):
            read_scores(path)
    write_episodes(path, EPISODES)
    with pytest.raises(RunError, match="could not read"):
        read_scores(path)
    with pytest.raises(RunError, match="could not read"):
        read_scores(tmp_path / "none.parquet")
