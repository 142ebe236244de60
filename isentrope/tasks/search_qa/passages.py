"""Passages: what a search finds, and how they are read from a corpus file or a server's answer.

{"id": "7", "contents": "\\"Title\\"\\nText"}       as Search-R1 has them
{"id": "7", "title": "Title", "text": "Text"}     as most others do
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isentrope.errors import TaskError
from isentrope.tasks.search_qa.files import read_records

MAX_TITLE = 200  # characters of a title that are shown


@dataclass(frozen=True)
class Passage:
    id: str
    title: str
    text: str

    @property
    def contents(self) -> str:
        """Title and text as Search-R1 writes them."""
        return f'"{self.title}"\n{self.text}'

    def shown(self, number: int, limit: int) -> str:
        """For the agent: the number and title on one line, the text on the next, whatever stands in them."""
        return f"[{number}] {shortened(self.title, MAX_TITLE)}\n{shortened(self.text, limit)}"


@dataclass(frozen=True)
class Hit:
    passage: Passage
    score: float


def clean(text: str) -> str:
    """One line of text that can be encoded: half surrogates, which a JSON file can hold, become question marks."""
    return " ".join(text.encode("utf-8", "replace").decode("utf-8").replace("\0", " ").split())


def shortened(text: str, limit: int) -> str:
    """At most `limit` characters, cut between words where there is a space in the last third."""
    if len(text) <= limit:
        return text
    cut = text[: limit - 1]
    space = cut.rfind(" ", limit * 2 // 3)
    return (cut[:space] if space > 0 else cut).rstrip() + "…"


def read_passage(record: Mapping[str, Any], number: int, where: str) -> Passage:
    contents, title, text = (record.get(key) for key in ("contents", "title", "text"))
    name = str(record.get("id", record.get("_id", number)))
    if isinstance(text, str):
        return Passage(name, clean(title) if isinstance(title, str) else "", clean(text))
    if not isinstance(contents, str):
        raise TaskError(f"{where}: a passage needs contents, or title and text; it has {', '.join(record)[:200]!r}")
    first, _, rest = contents.strip().partition("\n")
    return Passage(name, clean(first).strip('"'), clean(rest))


def read_corpus(path: Path) -> Iterator[Passage]:
    for number, (where, record) in enumerate(read_records(path)):
        yield read_passage(record, number, where)
