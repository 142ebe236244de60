"""Text and numbers for charts and pages. What a model or a task wrote is untrusted: it is shown, never obeyed."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Mapping

_TOGETHER = re.compile(r"(?<![\w-])--[a-z][a-z-]*|\b\d[\d.]*e[-+]?\d+\b|\b\d[\d.]* %")
# Characters without a shape of their own: controls, formats (direction overrides among them), line and
# paragraph separators, surrogates, private and unassigned ones.
_UNSEEN = ("Cc", "Cf", "Zl", "Zp", "Cs", "Co", "Cn")


def visible(text: str) -> str:
    """The text with characters that would hide or reorder others written out, e.g. ⟨U+202E⟩."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(char) for char in text)


def safe(text: object) -> str:
    """Untrusted text, ready to stand in HTML or in a quoted attribute."""
    return html.escape(visible(str(text)), quote=True)


def unbroken(markup: str) -> str:
    """Safe text in which no line ends inside of an option (--resume), a number (1e-06) or a percentage (84 %)."""
    return _TOGETHER.sub(r'<span class="together">\g<0></span>', markup)


def clipped(text: str, limit: int) -> str:
    """The beginning of a long text, with a note of what is missing."""
    return text if len(text) <= limit else f"{text[:limit]} … ({len(text) - limit:,} more characters)"


def percent(value: float, digits: int = 0) -> str:
    return f"{100 * value:.{digits}f}%"


def short(value: float) -> str:
    """A number with three figures or so, e.g. 1234, 12.3, 0.0021, 2.5e-06."""
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 1e6 or size < 1e-3:
        return f"{value:.2g}" if size < 1e-3 else f"{value:.3g}"
    if size >= 100:
        return f"{value:,.0f}"
    return f"{value:.4f}".rstrip("0").rstrip(".") if size < 0.1 else f"{value:.3g}"


def signed(points: float, places: int = 1) -> str:
    shown = round(points, places) + 0.0  # a zero has no sign
    return f"{shown:+.{places}f}".replace("-", "−") if shown else f"{0:.{places}f}"


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def file_name(text: str) -> str:
    """The text as the name of a file, which stays in its folder."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.") or "figure"


def filled(page: str, texts: Mapping[str, str]) -> str:
    """A page of which a command makes a part: with these texts between `<!-- name -->` and `<!-- /name -->`, each on
    lines of its own; all else stays as it was written."""
    for name, text in texts.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        count = min(page.count(begin), page.count(end))
        if page.count(begin) != 1 or page.count(end) != 1:
            raise ValueError(f"the page has {count} places for <!-- {name} --> and {end}, not 1")
        new = begin + text.removesuffix("\n") + "\n" + end
        page = re.sub(f"{re.escape(begin)}.*?{re.escape(end)}", lambda _, new=new: new, page, flags=re.DOTALL)
    return page


def _shown(char: str) -> str:
    if char in "\n\t" or unicodedata.category(char) not in _UNSEEN:
        return char
    return f"⟨U+{ord(char):04X}⟩"
