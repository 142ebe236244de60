"""Cosines within and between classes, and the linear probe."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from isentrope.metrics.probes.probes import cosines, probe_accuracy, similarity_metrics

Matrix = NDArray[np.float64]


def test_cosines_by_hand() -> None:
    means = np.array([[3.0, 0.0], [0.0, 5.0], [1.0, 1.0], [2.0, 2.0]])
    found = cosines(means, np.array([True, True, False, False]))
    assert found == pytest.approx(
        {"probe/similarity/solved": 0.0, "probe/similarity/failed": 1.0, "probe/similarity/between": 0.5**0.5}
    )


def naive_cosines(means: Matrix, solved: NDArray[np.bool_]) -> dict[str, float]:
    sums: dict[str, list[float]] = {}
    for i in range(len(means)):
        for j in range(i + 1, len(means)):
            cosine = float(means[i] @ means[j]) / float(np.linalg.norm(means[i]) * np.linalg.norm(means[j]))
            name = "between" if solved[i] != solved[j] else "solved" if solved[i] else "failed"
            sums.setdefault(f"probe/similarity/{name}", []).append(cosine)
    return {key: sum(values) / len(values) for key, values in sums.items()}


@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 4))
def test_cosines_against_loops_and_in_any_order(seed: int, count: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    means, solved = rng.normal(size=(count, size)), rng.random(count) < 0.5
    found, order = cosines(means, solved), rng.permutation(count)
    assert found == pytest.approx(naive_cosines(means, solved))
    assert cosines(means[order], solved[order]) == pytest.approx(found)
    assert cosines(7 * means, solved) == pytest.approx(found)


def test_a_missing_class_leaves_its_keys_out() -> None:
    means = np.random.default_rng(0).normal(size=(6, 3))
    failed = similarity_metrics(means, np.zeros(6, dtype=np.bool_), list(range(6)))
    assert set(failed) == {"probe/similarity/failed"}
    one = similarity_metrics(means, np.arange(6) == 2, [0] * 6)
    assert set(one) == {"probe/similarity/failed", "probe/similarity/between"}  # one game: nothing to ask about


def many(seed: int, games: int = 10, size: int = 6) -> tuple[Matrix, NDArray[np.bool_], list[int]]:
    rng = np.random.default_rng(seed)
    labels = rng.random(games * size) < 0.5
    return rng.normal(size=(games * size, 12)), labels, [i // size for i in range(games * size)]


def test_the_probe_finds_a_direction_and_nothing_where_there_is_none() -> None:
    means, solved, games = many(0)
    chance = probe_accuracy(means, solved, games)
    means[:, 3] += np.where(solved, 4.0, -4.0)
    assert probe_accuracy(means, solved, games) == 1.0
    assert chance is not None
    assert chance < 0.65


def test_a_game_is_never_on_both_sides() -> None:
    """States that say which game it is, with outcomes that go by the game: known games would be told right."""
    games = [i // 6 for i in range(60)]
    means = np.eye(10)[games] * 5 + np.random.default_rng(1).normal(size=(60, 10)) * 0.01
    solved = np.array([game % 2 == 0 for game in games])
    by_game, by_episode = probe_accuracy(means, solved, games), probe_accuracy(means, solved, list(range(60)))
    assert by_episode == 1.0
    assert by_game is not None
    assert by_game < 0.8


def naive_accuracy(means: Matrix, solved: NDArray[np.bool_], games: list[int]) -> float:
    """Ridge regression in its usual form, one weight per feature, fold by fold."""
    names = sorted(set(games), key=repr)
    right = 0
    for fold in range(min(5, len(names))):
        asked = [i for i, game in enumerate(games) if names.index(game) % 5 == fold]
        known = [i for i in range(len(games)) if i not in asked]
        centre, spread = means[known].mean(0), means[known].std(0)
        x = (means[known] - centre) / spread
        y = np.array([1.0 if solved[i] else -1.0 for i in known])
        penalty = float((x**2).sum()) / len(known)
        weight = np.linalg.inv(x.T @ x + penalty * np.eye(x.shape[1])) @ x.T @ (y - y.mean())
        for i in asked:
            right += (float((means[i] - centre) / spread @ weight + y.mean()) > 0) == bool(solved[i])
    return right / len(games)


@given(st.integers(0, 10**6), st.integers(2, 7), st.floats(0, 2))
def test_the_probe_against_its_usual_form_and_in_any_order(seed: int, count: int, strength: float) -> None:
    means, solved, games = many(seed, games=count, size=3)
    means[:, 0] += strength * solved
    found = probe_accuracy(means, solved, games)
    if solved.all() or not solved.any():
        assert found is None
        return
    assert found == pytest.approx(naive_accuracy(means, solved, games))
    order = np.random.default_rng(seed).permutation(len(games))
    assert probe_accuracy(means[order], solved[order], [games[i] for i in order]) == pytest.approx(found)


def test_accuracy_comes_with_the_share_of_the_larger_class() -> None:
    means, _, games = many(3)
    found = similarity_metrics(means, np.arange(60) < 45, games)
    assert found["probe/majority"] == 0.75
