"""The losses as torch would differentiate them when written down token by token, and slopes without torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor


def clipped_at(ratio: Tensor, advantage: Tensor, low: float, high: float) -> Tensor:
    free = ratio * advantage
    if ratio.item() > 1 + high:
        limited = (1 + high) * advantage
    elif ratio.item() < 1 - low:
        limited = (1 - low) * advantage
    else:
        limited = free
    return -free if free.item() <= limited.item() else -limited


def policy_gradient(logp: Tensor, advantage: Tensor) -> Tensor:
    return torch.stack([-advantage[i] * logp[i] for i in range(len(logp))])


def clipped(logp: Tensor, old: Tensor, advantage: Tensor, low: float, high: float) -> Tensor:
    ratios = [torch.exp(logp[i] - old[i]) for i in range(len(logp))]
    return torch.stack([clipped_at(ratio, advantage[i], low, high) for i, ratio in enumerate(ratios)])


def sequence(
    logp: Tensor, old: Tensor, advantage: Tensor, turns: Sequence[int], low: float, high: float
) -> list[Tensor]:
    """GSPO (arXiv:2507.18071, Eq. 5) as it stands: one loss per response, whose tokens share one advantage; the
    gradient goes through the mean log-ratio."""
    losses: list[Tensor] = []
    for turn in sorted(set(turns)):
        inside = [i for i in range(len(turns)) if turns[i] == turn]
        ratio = torch.exp(torch.stack([logp[i] - old[i] for i in inside]).mean())
        losses.append(clipped_at(ratio, advantage[inside[0]], low, high))
    return losses


def sequence_token(
    logp: Tensor, old: Tensor, advantage: Tensor, turns: Sequence[int], low: float, high: float
) -> Tensor:
    """GSPO-token (Eq. 13-14): the response's ratio as a number, times a one that carries the token's gradient."""
    losses: list[Tensor] = []
    for i, turn in enumerate(turns):
        inside = [j for j in range(len(turns)) if turns[j] == turn]
        number = torch.exp(torch.stack([logp[j] - old[j] for j in inside]).mean()).item()
        ratio = number * torch.exp(logp[i]) / torch.exp(logp[i]).item()
        losses.append(clipped_at(ratio, advantage[i], low, high))
    return torch.stack(losses)


def value(predicted: Tensor, old: Tensor, target: Tensor, clip: float) -> Tensor:
    losses: list[Tensor] = []
    for v, v_old, goal in zip(predicted, old, target, strict=True):
        free = (v - goal) ** 2 / 2
        near = abs(v.item() - v_old.item()) <= clip
        edge = v_old + clip if v.item() > v_old.item() else v_old - clip
        limited = (edge - goal) ** 2 / 2
        losses.append(free if clip == 0 or near or free.item() >= limited.item() else limited)
    return torch.stack(losses)


def kl(logp: Tensor, ref: Tensor, estimator: str) -> Tensor:
    d = logp - ref
    return {"k1": d, "k2": d * d / 2, "k3": torch.exp(ref) / torch.exp(logp) - 1 + d}[estimator]


def gradient(loss: Callable[[Tensor], Tensor], at: Sequence[float]) -> np.ndarray:
    """Gradient of the summed loss by autograd, in float64."""
    inputs = torch.tensor(at, dtype=torch.float64).requires_grad_()
    (loss(inputs).sum() + 0 * inputs.sum()).backward()  # the second term: a loss may be constant everywhere
    assert inputs.grad is not None
    return inputs.grad.numpy()


def slopes(total: Callable[[list[float]], float], at: Sequence[float], step: float = 1e-6) -> list[float]:
    """Gradient of a number by central differences."""
    found: list[float] = []
    for i in range(len(at)):
        up, down = list(at), list(at)
        up[i] += step
        down[i] -= step
        found.append((total(up) - total(down)) / (2 * step))
    return found
