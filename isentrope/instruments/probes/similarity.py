"""How alike the hidden states of solved and failed episodes are.

An episode is the mean, over its response tokens, of the final hidden state at the token (after the last norm): the
representation of SEAL's Figure 3. Cosines are averaged over all pairs of different episodes within a class, and over
all pairs of a solved and a failed one.

The linear probe is a ridge regression from the standardised means to +1 (solved) and -1 (failed); the sign decides.
It is always asked about games that it has not seen. All in closed form, so nothing is random.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
FOLDS = 5
RIDGE = 1.0  # times the mean squared length of the standardised features


def similarity_metrics(mean_ED: Matrix, solved_E: NDArray[np.bool_], games: Sequence[Hashable]) -> dict[str, float]:
    """`games` says which task instance each episode was played on. What cannot be measured has no key."""
    metrics = cosines(mean_ED, solved_E)
    accuracy = probe_accuracy(mean_ED, solved_E, games)
    if accuracy is not None:
        share = float(np.mean(solved_E))
        metrics |= {"probe/accuracy": accuracy, "probe/majority": max(share, 1 - share)}
    return metrics


def cosines(mean_ED: Matrix, solved_E: NDArray[np.bool_]) -> dict[str, float]:
    """Mean cosine within solved, within failed and between the two."""
    unit_ED = mean_ED / np.maximum(np.linalg.norm(mean_ED, axis=1, keepdims=True), 1e-12)
    metrics: dict[str, float] = {}
    for name, members in (("solved", solved_E), ("failed", ~solved_E)):
        count = int(members.sum())
        if count > 1:
            cosine_EE = unit_ED[members] @ unit_ED[members].T
            different = np.triu_indices(count, k=1)
            metrics[f"probe/similarity/{name}"] = float(cosine_EE[different].mean())
    if solved_E.any() and not solved_E.all():
        metrics["probe/similarity/between"] = float((unit_ED[solved_E] @ unit_ED[~solved_E].T).mean())
    return metrics


def probe_accuracy(mean_ED: Matrix, solved_E: NDArray[np.bool_], games: Sequence[Hashable]) -> float | None:
    """Share of the episodes whose outcome is told right by a probe that was trained on other games."""
    fold_E = _folds(games)
    if fold_E.max(initial=0) == 0 or solved_E.all() or not solved_E.any():
        return None
    label_E = np.where(solved_E, 1.0, -1.0)
    right = 0
    for fold in range(int(fold_E.max()) + 1):
        asked = fold_E == fold
        guess = _ridge(mean_ED[~asked], label_E[~asked], mean_ED[asked])
        right += int(np.sum((guess > 0) == solved_E[asked]))
    return right / len(label_E)


def _folds(games: Sequence[Hashable]) -> NDArray[np.int64]:
    """The fold of each episode: games are dealt out in a fixed order, and all episodes of one go together."""
    number = {game: i for i, game in enumerate(sorted(set(games), key=repr))}
    return np.array([number[game] % FOLDS for game in games], dtype=np.int64)


def _ridge(known_ED: Matrix, label_E: Matrix, asked_ED: Matrix) -> Matrix:
    """Predictions for `asked_ED`. Solved among episodes, not among features: there are far fewer of them."""
    mean_D, spread_D = known_ED.mean(0), known_ED.std(0)
    scale_D = np.where(spread_D > 1e-9, spread_D, np.inf)  # a feature that never differs says nothing
    known, asked = (known_ED - mean_D) / scale_D, (asked_ED - mean_D) / scale_D
    gram_EE = known @ known.T
    penalty = RIDGE * max(float(np.trace(gram_EE)) / len(known), 1e-12)
    weight_E = cast("Any", np.linalg).solve(gram_EE + penalty * np.eye(len(known)), label_E - label_E.mean())
    return asked @ (known.T @ weight_E) + label_E.mean()
