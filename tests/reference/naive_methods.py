"""Every method once more, with loops and no cleverness: what the fast forms are compared with.

Numbers may be plain floats or torch scalars: what is written here can be differentiated as it stands.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import dropwhile
from typing import Any

import torch

from tests.reference.naive import mean_of, mean_over

Number = Any  # a float, or a torch scalar that carries a gradient


def entropy_bonus(
    entropies: Sequence[Number], episodes: Sequence[int], turns: Sequence[int], coefficient: float, mode: str = "turn"
) -> Number:
    return -coefficient * mean_over(entropies, episodes, turns, mode) if len(entropies) else 0.0


def epo_beta(k: int, steps: int, start: float, end: float, decay: float) -> float:
    """EPO's Eq. 7 as it is printed; with a single step the middle is the start, where nothing has decayed yet."""
    k, middle = min(k, steps), steps // 2
    if k <= middle:
        gone = 1 - math.exp(-decay * k / middle) if middle > 0 else 0.0
        return start + (1 - start) * gone
    gone = 1 - math.exp(-decay * (k - middle) / (steps - middle))
    return 1 + (end - 1) * gone


def epo_history(earlier: Sequence[Sequence[float]]) -> float | None:
    """The mean over earlier steps of the mean over a step's tokens; a step without tokens has no mean."""
    means = [mean_of(step) for step in earlier if len(step)]
    return mean_of(means) if means else None


def epo_penalty(entropy: Number, history: float, alpha: float, low: float, high: float, indicator: bool) -> Number:
    """Eq. 5, or the appendix's 0/α."""
    if entropy < low * history:
        return alpha if indicator else alpha * (low * history - entropy)
    if entropy > high * history:
        return alpha if indicator else alpha * (entropy - high * history)
    return 0.0


def epo_loss(
    entropies: Sequence[Number],
    episodes: Sequence[int],
    turns: Sequence[int],
    history: float | None,
    *,
    coefficient: float,
    beta: float,
    alpha: float,
    low: float,
    high: float,
    indicator: bool = False,
) -> Number:
    """- λ [L_H - β L_smooth], both averaged over tokens, turns and episodes."""
    if not len(entropies):
        return 0.0
    bonus = mean_over(entropies, episodes, turns, "turn")
    if history is None:
        return -coefficient * bonus
    penalties = [epo_penalty(entropy, history, alpha, low, high, indicator) for entropy in entropies]
    return -coefficient * (bonus - beta * mean_over(penalties, episodes, turns, "turn"))


def ea(advantages: Sequence[float], entropies: Sequence[float], alpha: float, kappa: float) -> list[float]:
    pairs = zip(advantages, entropies, strict=True)
    return [advantage + min(alpha * entropy, abs(advantage) / kappa) for advantage, entropy in pairs]


def aem_weights(
    entropies: Sequence[float], turns: Sequence[int], groups: Sequence[int], strength: float
) -> list[float]:
    """One weight per token, the same for all tokens of a response (Eq. 13 to 15)."""
    inside: dict[int, list[float]] = {}
    group_of: dict[int, int] = {}
    for entropy, turn, group in zip(entropies, turns, groups, strict=True):
        inside.setdefault(turn, []).append(entropy)
        group_of[turn] = group
    h = {turn: mean_of(values) for turn, values in inside.items()}
    weight: dict[int, float] = {}
    for turn in h:
        members = [other for other in h if group_of[other] == group_of[turn]]
        low, high = min(h[other] for other in members), max(h[other] for other in members)
        if high - low < 1e-6:
            weight[turn] = 1.0
            continue
        raw = {other: math.exp(-strength * (h[other] - low) / (high - low)) for other in members}
        weight[turn] = raw[turn] / mean_of(list(raw.values()))
    return [weight[turn] for turn in turns]


def aem_left(advantages: Sequence[float], weights: Sequence[float], leave_out: str) -> list[float]:
    """Analysis A: which advantages remain. Falling: (A>0, w>1) and (A<0, w<1); rising: the two others."""
    left: list[float] = []
    for advantage, weight in zip(advantages, weights, strict=True):
        lowers = (advantage > 0 and weight > 1) or (advantage < 0 and weight < 1)
        raises = (advantage > 0 and weight < 1) or (advantage < 0 and weight > 1)
        out = lowers if leave_out == "falling" else raises
        left.append(0.0 if out else advantage)
    return left


def mixed_tokens(groups: Sequence[int], successes: Sequence[float]) -> list[bool]:
    """Whether the token's group has tokens of both outcomes."""
    pairs = list(zip(groups, successes, strict=True))
    return [len({won for other, won in pairs if other == group}) == 2 for group in groups]


def seal_logit(state: torch.Tensor, weights: Sequence[torch.Tensor]) -> torch.Tensor:
    """W2 · GELU(W1 h + b1) + b2, with GELU(x) = x Φ(x)."""
    first, first_bias, second, second_bias = weights
    total = second_bias[0]
    for row, bias, weight in zip(first, first_bias, second[0], strict=True):
        x = (row * state).sum() + bias
        total = total + weight * x * (1 + torch.erf(x / math.sqrt(2))) / 2
    return total


def seal_loss(logits: Sequence[torch.Tensor], labels: Sequence[float], counted: Sequence[bool]) -> torch.Tensor:
    """-[z log p + (1 - z) log(1 - p)], averaged over the tokens that count; 0 if none does."""
    total = torch.zeros((), dtype=torch.float64)
    for logit, won, counts in zip(logits, labels, counted, strict=True):
        p = 1 / (1 + torch.exp(-logit))
        if counts:
            total = total - (won * torch.log(p) + (1 - won) * torch.log(1 - p))
    return total / max(1, sum(counted))


def actre_stage(step: int, steps: int, switch: float, variant: str = "full") -> int:
    """`switch` is a share of the steps up to 1, above it the number of the last step of stage 1."""
    if variant == "no_stage1":
        return 2
    if variant == "no_stage2":
        return 1
    last = switch * steps if switch <= 1 else switch
    return 1 if step <= last + 1e-9 else 2  # 0.29 · 100 is a little less than 29


def quantile(values: Sequence[float], share: float) -> float:
    """Between two neighbours of the sorted values, on the straight line."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    left = math.floor(place)
    right = min(left + 1, len(ordered) - 1)
    return ordered[left] + (place - left) * (ordered[right] - ordered[left])


def entropy_temperatures(
    pieces: Sequence[bytes], entropies: Sequence[float], threshold: float | None, base: float, hot: float
) -> tuple[list[float], list[float]]:
    """(temperature of every token, entropies that the next threshold is taken from), from the whole response.

    A token may be hot if it begins behind the opening tag and before the closing tag is complete. It counts if it
    begins before the closing tag does, which is known once something follows that tag.
    """
    temperatures: list[float] = []
    counted: list[float] = []
    close = b"".join(pieces[:-1]).find(b"</action>")
    for j, entropy in enumerate(entropies):
        text = b"".join(pieces[:j])
        inside = b"<action>" in text and b"</action>" not in text
        if inside and len(text) < close:
            counted.append(entropy)
        temperatures.append(hot if inside and threshold is not None and entropy > threshold else base)
    return temperatures, counted


def candidates(begun: Sequence[bytes], written: dict[str, list[bytes]]) -> list[str]:
    """The actions that can still be said, given the token texts so far and how each action is written in full."""
    return [action for action, pieces in written.items() if pieces[: len(begun)] == list(begun)]


def branching(begun: Sequence[bytes], written: dict[str, list[bytes]]) -> bool:
    """Whether two or more tokens may come next, and one of them is more than opening tag.
    White space in front of a response is not part of it."""
    begun = list(dropwhile(lambda piece: not piece.strip(), begun))
    following = {written[action][len(begun)] for action in candidates(begun, written) if written[action][len(begun) :]}
    said = sum(len(piece) for piece in begun)
    return len(following) > 1 and any(said + len(piece) > len("<action>") for piece in following)
