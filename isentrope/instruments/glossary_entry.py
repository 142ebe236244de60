"""What the glossary says about one key."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    key: str
    unit: str
    text: str

    def match(self, key: str) -> dict[str, str] | None:
        """The names that the parts in braces stand for, or None if this is not the key's entry."""
        pattern = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/\\s]+)", re.escape(self.key))
        found = re.fullmatch(pattern, key)
        return None if found is None else found.groupdict()
