"""Rises of a curve, computed anew from the whole of it at every step, without any part of the detector."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import median


def naive_rises(values: list[float]) -> list[tuple[int, int, int | None]]:
    """(onset, noticed, over) of each rise; positions count from 0."""
    told: list[tuple[int, int, int | None]] = []
    start, before = 0, 0.0  # the first number after the last rise; the level before the rise under way
    top, top_at, slow_top, slow_at = 0.0, 0, 0.0, 0
    for t in range(len(values)):
        floor = max(0.02 * max(trailing(values, i, 5) for i in range(t + 1)), 1e-9)
        now, slow = trailing(values, t, 5), trailing(values, t, 15)
        recent = noise_of(values[max(0, t - 40) : t + 1], floor)
        if told and told[-1][2] is None:
            three = median(values[t - 2 : t + 1])
            if three > top:
                top, top_at = three, t
            if slow > slow_top:
                slow_top, slow_at = slow, t
            own = max(recent, noise_of(values[max(0, t - 54, told[-1][0]) : t + 1], floor))
            fell, since = fallen(top, now, before, 3 * own, floor), t - top_at
            if times(top, before, floor) < 5 * own:
                fell, since = fallen(slow_top, slow, before, 3 * own * 1.25 * math.sqrt(2 / 15), floor), t - slow_at
            if (fell and since >= 3) or since >= 25:
                told[-1] = (*told[-1][:2], t)
                start = t
            continue
        if t < 5:
            continue
        onset, count = quick_onset(values, start, t, recent, floor), 5
        if onset is None:
            onset, count = slow_onset(values, start, t, floor), 15
        if onset is None:
            continue
        before = median(values[max(0, t - 54, onset - count) : onset])
        top = max((median(values[i - 1 : i + 2]) for i in range(max(onset, 1), t)), default=values[t])
        top_at, slow_top, slow_at = t, slow, t
        told.append((onset, t, None))
    return told


def trailing(values: list[float], t: int, count: int) -> float:
    return median(values[max(0, t - count + 1) : t + 1])


def times(a: float, b: float, floor: float) -> float:
    return math.log((a + floor) / (b + floor))


def noise_of(values: list[float], floor: float) -> float:
    steps = [times(b, a, floor) for a, b in pairwise(values)]
    if len(steps) < 2:
        return math.inf
    deviation = 1.4826 * median(abs(s - median(steps)) for s in steps) / math.sqrt(2)
    return math.sqrt((len(steps) * deviation**2 + 5 * 0.1**2) / (len(steps) + 5)) * (1 + 2 / len(steps))


def risen(now: float, low: float, limit: float, floor: float) -> bool:
    return now - low >= max(0.3 * low, 1e-3) and times(now, low, floor) >= limit


def fallen(top: float, now: float, before: float, limit: float, floor: float) -> bool:
    return top - now >= (top - before) / 3 and times(top, now, floor) >= limit


def quick_onset(values: list[float], start: int, t: int, noise: float, floor: float) -> int | None:
    smooth = [trailing(values, i, 5) for i in range(t + 1)]
    low_at = min(range(max(start, t - 24), t + 1), key=lambda i: (smooth[i], i))
    low, now = smooth[low_at], smooth[t]
    if not risen(now, low, 5 * noise, floor):
        return None
    near, since = min(noise, 0.5 * times(now, low, floor)), max(0, low_at - 2)
    bar = low + (now - low) / 10
    still = [i for i in range(since, t + 1) if values[i] <= bar or times(values[i], low, floor) <= near]
    return min((still[-1] if still else since) + 1, t)


def slow_onset(values: list[float], start: int, t: int, floor: float) -> int | None:
    first = max(start, t - 54)
    past = values[first : max(first, t - 14)]
    if len(past) < 15:
        return None
    low, now = median(past), trailing(values, t, 15)
    wander = 1.4826 * median(abs(times(value, low, floor)) for value in past)
    limit = 5 * 1.25 * max(wander, noise_of(past, floor)) * math.sqrt(1 / 15 + 1 / len(past))
    if not risen(now, low, limit, floor):
        return None

    def parted(place: int) -> int:
        high = sum(times(value, low, floor) > 0.5 * times(now, low, floor) for value in values[place : t + 1])
        return 2 * high - (t + 1 - place)

    return max(range(first + 1, t + 1), key=lambda place: (parted(place), place))
