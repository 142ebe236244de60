"""Passages in a file that is looked into, not read: memory stays the same for a thousand or twenty million of them."""

from __future__ import annotations

import json
import mmap
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from isentrope.tasks.search_qa.passages import Passage

_TEXT, _ENDS = "passages.jsonl", "ends.npy"


class PassageFile:
    """Passages by number, from a folder that `write` filled."""

    def __init__(self, folder: Path) -> None:
        self._ends = np.load(folder / _ENDS, mmap_mode="r")
        with (folder / _TEXT).open("rb") as file:
            self._text = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: int) -> Passage:
        begin = int(self._ends[number - 1]) if number else 0
        return Passage(*json.loads(self._text[begin : int(self._ends[number])]))


def write(folder: Path, passages: Iterable[Passage]) -> Iterator[Passage]:
    """Write the passages as they pass through, so that one reading of the corpus serves for the index too."""
    ends, place = array("q"), 0
    with (folder / _TEXT).open("wb") as file:
        for passage in passages:
            place += file.write(json.dumps([passage.id, passage.title, passage.text]).encode() + b"\n")
            ends.append(place)
            yield passage
    np.save(folder / _ENDS, np.frombuffer(ends, dtype=np.int64))
