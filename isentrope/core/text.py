"""Formats numbers in sentences, and makes text of unknown origin safe for a terminal.

A task's text could move the cursor, rename the window or reorder what is read. `plain` keeps brackets, since worlds use
them (`search[red shoes]`); so print the result as `shown(text)`, never inside rich markup.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

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


def mentions(words: str, *texts: str) -> bool:
    """Whether each of the words begins a word of the texts, in any case: `rate` is in `learning rate`, not in
    `separate`. An empty search finds everything."""
    inside = " ".join(texts).lower()
    return all(re.search(rf"(?<![^\W_]){re.escape(word)}", inside) for word in words.lower().split())


_ESCAPE_SEQUENCES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"  # OSC and the other strings: title, clipboard, links
    r"|\x1b[ -/]*[0-~]"  # two-character escapes
    r"|\x9b[0-?]*[ -/]*[@-~]",  # CSI as one byte
    re.DOTALL,
)
_UNSEEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")  # controls, direction marks, surrogates, private use, unassigned


def plain(text: str) -> str:
    """`text` without escape sequences and without characters that are not seen but act; line breaks and tabs stay."""
    text = _ESCAPE_SEQUENCES.sub("", text.replace("\r\n", "\n"))
    return "".join(char for char in text if char in "\n\t" or unicodedata.category(char) not in _UNSEEN)


def shown(text: str, style: str = "") -> Text:
    """`plain(text)` for rich: no markup, no emoji codes, no highlighting."""
    from rich.text import Text

    return Text(plain(text), style=style)
