"""Credit for single steps and tokens, with loops and no cleverness: GiGPO's parts, GAE, whitening, overlong shaping."""

from __future__ import annotations

from collections.abc import Sequence

from tests.reference.naive import all_equal, grpo, mean_of, unbiased_std


def discounted_returns(rewards: Sequence[float], episodes: Sequence[int], discount: float) -> list[float]:
    returns: list[float] = []
    for t in range(len(rewards)):
        later = [k for k in range(t, len(rewards)) if episodes[k] == episodes[t]]
        returns.append(sum(discount ** (k - t) * rewards[k] for k in later))
    return returns


def exact_anchors(groups: Sequence[int], anchors: Sequence[str]) -> list[int]:
    """For every turn the place of the first turn in the same state."""
    places: list[int] = []
    for u in range(len(groups)):
        places.append(next(v for v in range(u + 1) if groups[v] == groups[u] and anchors[v] == anchors[u]))
    return places


def matching_words(a: Sequence[str], b: Sequence[str]) -> int:
    """Ratcliff and Obershelp: the longest common part (the first in `a`, then in `b`), then left and right of it."""
    best_i, best_j, best = 0, 0, 0
    for i in range(len(a)):
        for j in range(len(b)):
            length = 0
            while i + length < len(a) and j + length < len(b) and a[i + length] == b[j + length]:
                length += 1
            if length > best:
                best_i, best_j, best = i, j, length
    if best == 0:
        return 0
    left = matching_words(a[:best_i], b[:best_j])
    return left + best + matching_words(a[best_i + best :], b[best_j + best :])


def similarity(a: str, b: str) -> float:
    one, other = a.split(" "), b.split(" ")
    return 2 * matching_words(one, other) / (len(one) + len(other))


def similar_anchors(groups: Sequence[int], texts: Sequence[str], threshold: float) -> list[int]:
    """For every turn the place of the turn that opened its cluster."""
    openers: list[int] = []
    places: list[int] = []
    for u in range(len(groups)):
        place = u
        for opener in openers:
            if groups[opener] == groups[u] and similarity(texts[opener], texts[u]) >= threshold:
                place = opener
                break
        if place == u:
            openers.append(u)
        places.append(place)
    return places


def step_advantages(returns: Sequence[float], anchors: Sequence[int], divide_by_std: bool) -> list[float]:
    """(x - mean) / (std + 1e-6), the std unbiased, among the turns of one state; 0 for a turn alone in its state."""
    advantages: list[float] = []
    for value, anchor in zip(returns, anchors, strict=True):
        others = [other for other, state in zip(returns, anchors, strict=True) if state == anchor]
        if len(others) < 2 or all_equal(others):
            advantages.append(0.0)
        else:
            centred = value - mean_of(others)
            advantages.append(centred / (unbiased_std(others) + 1e-6) if divide_by_std else centred)
    return advantages


def gigpo(
    rewards: Sequence[float],
    episodes: Sequence[int],
    groups: Sequence[int],
    states: Sequence[int],
    discount: float,
    weight: float,
    divide_by_std: bool,
) -> list[float]:
    """The published form, a number for every turn: A_episode + ω A_step, both divided or neither. `groups` are those of
    the episodes, `states` those of the turns."""
    return _two_parts(rewards, episodes, groups, states, discount, weight, divide_by_std, divide_by_std)


def gigpo_mixed(
    rewards: Sequence[float],
    episodes: Sequence[int],
    groups: Sequence[int],
    states: Sequence[int],
    discount: float,
    weight: float,
    divide_by_std: bool,
) -> list[float]:
    """As `gigpo`, but the step part is never divided."""
    return _two_parts(rewards, episodes, groups, states, discount, weight, divide_by_std, False)


def _two_parts(
    rewards: Sequence[float],
    episodes: Sequence[int],
    groups: Sequence[int],
    states: Sequence[int],
    discount: float,
    weight: float,
    divide_episodes: bool,
    divide_steps: bool,
) -> list[float]:
    returns = [sum(r for r, owner in zip(rewards, episodes, strict=True) if owner == i) for i in range(len(groups))]
    whole = grpo(returns, groups, divide_episodes)
    steps = step_advantages(discounted_returns(rewards, episodes, discount), states, divide_steps)
    return [whole[owner] + weight * step for owner, step in zip(episodes, steps, strict=True)]


def gae(
    rewards: Sequence[float], values: Sequence[float], chains: Sequence[int], discount: float, lam: float
) -> tuple[list[float], list[float]]:
    """A_n = Σ_k (γλ)^k δ_(n+k), the sum written out for every token."""
    deltas: list[float] = []
    for n in range(len(rewards)):
        inside = n + 1 < len(rewards) and chains[n + 1] == chains[n]
        deltas.append(rewards[n] + (discount * values[n + 1] if inside else 0.0) - values[n])
    advantages: list[float] = []
    for n in range(len(rewards)):
        later = [k for k in range(n, len(rewards)) if chains[k] == chains[n]]
        advantages.append(sum((discount * lam) ** (k - n) * deltas[k] for k in later))
    return advantages, [a + v for a, v in zip(advantages, values, strict=True)]


def rewards_on_last_tokens(turn_rewards: Sequence[float], turns: Sequence[int]) -> list[float]:
    """A turn's reward stands on the last token of its response, the other tokens have none."""
    rewards: list[float] = []
    for n, turn in enumerate(turns):
        last = n + 1 == len(turns) or turns[n + 1] != turn
        rewards.append(turn_rewards[turn] if last else 0.0)
    return rewards


def turn_credit(
    turn_rewards: Sequence[float],
    values: Sequence[float],
    turns: Sequence[int],
    episodes: Sequence[int],
    discount: float,
    lam: float,
) -> tuple[list[float], list[float]]:
    """Bootstrapped across the turns of an episode. `turns` and `episodes` are those of every token."""
    return gae(rewards_on_last_tokens(turn_rewards, turns), values, episodes, discount, lam)


def token_credit(
    turn_rewards: Sequence[float],
    values: Sequence[float],
    turns: Sequence[int],
    episodes: Sequence[int],
    discount: float,
    lam: float,
) -> tuple[list[float], list[float]]:
    """Within a turn only: every turn is a chain of its own and ends with the return of the whole episode."""
    finals: list[float] = []
    for turn in range(len(turn_rewards)):
        owner = episodes[list(turns).index(turn)]
        finals.append(
            sum(turn_rewards[other] for other in {t for t, e in zip(turns, episodes, strict=True) if e == owner})
        )
    return gae(rewards_on_last_tokens(finals, turns), values, turns, discount, lam)


def whiten(advantages: Sequence[float]) -> list[float]:
    if len(advantages) < 2 or all_equal(advantages):
        return [0.0] * len(advantages)
    mean, std = mean_of(advantages), unbiased_std(advantages)
    return [(advantage - mean) / (std + 1e-8) for advantage in advantages]


def overlong_penalty(length: int, limit: int, buffer: int) -> float:
    if length <= limit - buffer:
        return 0.0
    if length <= limit:
        return (limit - buffer - length) / buffer
    return -1.0
