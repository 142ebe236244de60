"""verl's functions as an oracle: how to get them, and how to turn our flat tokens into their padded rows and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

INSTALL = "needs verl's functions: pip install -e '.[verl]' && pip install --no-deps verl==0.9.1"


def core_algos() -> Any:
    """The module with the estimators and losses; the test file is left out where it is not installed."""
    return pytest.importorskip("verl.trainer.ppo.core_algos", reason=INSTALL)


def actor(core: Any, low: float = 0.2, high: float = 0.2, dual: float = 1e9) -> Any:
    """Settings of an actor. `dual` is their third clip, for negative advantages; so large it never binds."""
    return core.ActorConfig(
        strategy="fsdp",
        rollout_n=1,
        use_dynamic_bsz=True,
        clip_ratio=low,
        clip_ratio_low=low,
        clip_ratio_high=high,
        clip_ratio_c=dual,
    )


@dataclass(frozen=True)
class Rows:
    """A batch as padded rows: one response to a row, or an episode with the task's words in between."""

    mask: Tensor  # rows × columns, float64: 1 on response tokens
    episode_N: np.ndarray
    turn_N: np.ndarray
    row_N: np.ndarray
    rng: np.random.Generator

    def pad(self, values_N: Any) -> Tensor:
        """Our flat tokens in their rows. What stands outside the mask is noise: it must not matter."""
        matrix = torch.from_numpy(self.rng.normal(size=tuple(self.mask.shape)))
        matrix[self.mask.bool()] = torch.as_tensor(values_N, dtype=torch.float64)
        return matrix

    def flat(self, matrix: Tensor) -> np.ndarray:
        return matrix[self.mask.bool()].numpy()

    def on_last_tokens(self, numbers: np.ndarray) -> np.ndarray:
        """One number per row, on the row's last response token."""
        values = np.zeros(len(self.row_N))
        values[[int(np.flatnonzero(self.row_N == row)[-1]) for row in range(len(self.mask))]] = numbers
        return values

    def normal(self, scale: float = 1.0) -> Tensor:
        return torch.from_numpy(scale * self.rng.normal(size=len(self.row_N)))


def responses(seed: int) -> Rows:
    """Ragged episodes, every response a row of its own."""
    rng = np.random.default_rng(seed)
    turns = rng.integers(1, 4, size=7)
    lengths = rng.integers(1, 9, size=int(turns.sum()))
    rows = np.repeat(np.arange(len(lengths)), lengths)
    mask = torch.zeros(len(lengths), int(lengths.max()) + 2, dtype=torch.float64)
    for row, length in enumerate(lengths):
        mask[row, :length] = 1
    return Rows(mask, np.repeat(np.arange(7), turns)[rows], rows, rows, rng)


def episodes(seed: int) -> Rows:
    """Ragged episodes, each one row: responses, and between them tokens that the policy did not write."""
    rng = np.random.default_rng(seed)
    marks: list[list[int]] = []
    turn_N: list[int] = []
    for _ in range(7):
        row: list[int] = []
        for _ in range(int(rng.integers(1, 4))):
            length = int(rng.integers(1, 6))
            turn_N += [turn_N[-1] + 1 if turn_N else 0] * length
            row += [1] * length + [0] * int(rng.integers(1, 4))
        marks.append(row)
    mask = torch.zeros(len(marks), max(map(len, marks)), dtype=torch.float64)
    for number, row in enumerate(marks):
        mask[number, : len(row)] = torch.tensor(row, dtype=torch.float64)
    rows = np.repeat(np.arange(len(marks)), [sum(row) for row in marks])
    return Rows(mask, rows, np.array(turn_N), rows, rng)
