"""What the agent says: `search[...]` or `answer[...]`, or the same between tags."""

from __future__ import annotations

import re
from dataclasses import dataclass

from isentrope.tasks.search_qa.passages import clean

MAX_TEXT = 1000  # characters of a query or an answer

_FORMS = (
    re.compile(r"(search|answer)\s*\[(.*)\]", re.IGNORECASE | re.DOTALL),
    re.compile(r"<(search|answer)>(.*)</\1>", re.IGNORECASE | re.DOTALL),
)


@dataclass(frozen=True)
class Said:
    """A search, an answer, or a problem: why it was neither."""

    search: str = ""
    answer: str = ""
    problem: str = ""


def read_action(action: str) -> Said:
    match = next(filter(None, (form.fullmatch(action.strip()) for form in _FORMS)), None)
    if match is None:
        return Said(problem="That is no action here. Use search[what to look for] or answer[the answer].")
    name, text = match[1].lower(), clean(match[2])
    if not text:
        return Said(problem=f"There is nothing between the brackets of {name}.")
    if len(text) > MAX_TEXT:
        return Said(problem=f"That is too long: at most {MAX_TEXT} characters.")
    return Said(search=text) if name == "search" else Said(answer=text)
