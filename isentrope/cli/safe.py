"""Text that somebody else wrote, made fit for a terminal.

A task's text could move the cursor, rename the window or reorder what is read. Brackets are kept, since worlds use
them (`search[red shoes]`); so print the result as `shown(text)`, never inside rich markup.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # rich is not needed for --help
    from rich.text import Text

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
