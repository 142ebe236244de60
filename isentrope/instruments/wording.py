"""Numbers as a reader wants them, in the sentences of alarms and diagnoses."""

from __future__ import annotations

from collections.abc import Sequence

_SMALL = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def percent(share: float) -> str:
    """A share as percent; below one percent with a decimal, so that it is not 0 unless it is."""
    number = 100 * share
    return f"{number:.1f} %" if 0 < abs(number) < 1 else f"{number:.0f} %"


def nats(value: float) -> str:
    return f"{value:.2g}" if abs(value) < 0.1 else f"{value:.2f}"


def count(number: int, what: str) -> str:
    """`four steps`, `1 step` as `one step`, `61 steps`."""
    said = _SMALL[number] if 0 <= number < len(_SMALL) else f"{number:,}"
    return f"{said} {what}{'' if number == 1 else 's'}"


def listed(parts: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""


def steps_listed(steps: Sequence[int]) -> str:
    """`step 4`, `steps 4, 8 and 12`."""
    return f"step{'' if len(steps) == 1 else 's'} {listed([str(step) for step in steps])}"


def sentence(text: str) -> str:
    """With a capital at the beginning and a full stop at the end."""
    return text[:1].upper() + text[1:].rstrip(".") + "."
