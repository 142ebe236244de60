"""The instruments once more, in plain loops."""

from __future__ import annotations

import math

from isentrope.core.types import Episode, Turn

BROKEN = ("task_error", "time_limit", "worker_died", "garbage", "engine_error")


def mean(values: list[float]) -> float | None:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else None


def entropy_by_turn(episodes: list[Episode], first: int) -> float | None:
    values: list[float] = []
    for one in episodes:
        for number, each in enumerate(one.turns, start=1):
            inside = first <= number if first == 32 else first <= number < 2 * first
            found = mean(each.entropies.tolist())
            if inside and found is not None:
                values.append(found)
    return mean(values)


def token_values(episodes: list[Episode], name: str, solved: bool | None = None, kind: str = "") -> list[float]:
    chosen = [one for one in episodes if not kind or one.kind == kind]
    if solved is True:
        chosen = [one for one in chosen if one.success]
    if solved is False:
        chosen = [one for one in chosen if not one.success and one.stop not in BROKEN]
    return [value for one in chosen for each in one.turns for value in getattr(each, name).tolist()]


def looping(ids: list[int]) -> bool:
    """Whether some stretch of at most 32 tokens stands at least three times in a row, over at least 12 tokens."""
    for start in range(len(ids)):
        for period in range(1, 33):
            end = start + period
            while end < len(ids) and ids[end] == ids[end - period]:
                end += 1
            if end - start >= 3 * period and end - start >= 12:
                return True
    return False


def repeated(episodes: list[Episode]) -> float | None:
    values: list[float] = []
    for one in episodes:
        for number in range(1, len(one.turns)):
            before, now = one.turns[number - 1].action, one.turns[number].action
            values.append(1.0 if now is not None and now == before else 0.0)
    return mean(values)


def forecast(turns: list[Turn], advantages: list[list[float]], learnt: list[list[bool]]) -> float | None:
    terms: list[float] = []
    for each, a, used in zip(turns, advantages, learnt, strict=True):
        for place in range(len(a)):
            if used[place]:
                surprisal = -float(each.logprobs[place])
                terms.append(a[place] * (surprisal - float(each.entropies[place])))
    return mean(terms)


def correlation(pairs: list[tuple[float, float]]) -> float:
    n = len(pairs)
    p, d = sum(a for a, _ in pairs) / n, sum(b for _, b in pairs) / n
    top = sum((a - p) * (b - d) for a, b in pairs)
    return top / math.sqrt(sum((a - p) ** 2 for a, _ in pairs) * sum((b - d) ** 2 for _, b in pairs))
