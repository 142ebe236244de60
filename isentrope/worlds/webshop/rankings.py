"""Compares the shop's search with rankings recorded from another engine."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from isentrope.core.errors import TaskError
from isentrope.worlds.webshop.visit import Stock

DEPTH = 10
_ASIN = re.compile(r"\w{1,10}")


@dataclass(frozen=True)
class Ranking:
    query: str
    recorded: tuple[str, ...]  # ASINs, best first, at most DEPTH
    ours: tuple[str, ...]

    @property
    def same_first(self) -> bool:
        return self.recorded[:1] == self.ours[:1]

    @property
    def overlap(self) -> float:
        """Share of the longer ranking that stands in the other one too, in whatever order."""
        longer = max(len(self.recorded), len(self.ours))
        return len(set(self.recorded) & set(self.ours)) / longer if longer else 1.0


def compare(stock: Stock, rankings: Iterable[tuple[str, tuple[str, ...]]]) -> Iterator[Ranking]:
    """As many results as were recorded, up to DEPTH; a recording without results means that there are none."""
    for query, recorded in rankings:
        depth = min(DEPTH, len(recorded)) or DEPTH
        ours = tuple(stock.product(position).asin for position in stock.search(query, depth))
        yield Ranking(query, recorded[:DEPTH], ours)


def read_rankings(path: Path) -> list[tuple[str, tuple[str, ...]]]:
    """One query a line: the query, a tab, then ASINs in order, with blanks or tabs between them."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"could not read the rankings {path}: {error}") from error
    found: list[tuple[str, tuple[str, ...]]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        query, tab, rest = line.partition("\t")
        asins = tuple(rest.split())
        wrong = next((asin for asin in asins if not _ASIN.fullmatch(asin)), None)
        if not tab or wrong is not None:
            what = "there is no tab in it" if not tab else f"{wrong!r:.40} is no ASIN"
            raise TaskError(
                f"{path}, line {number}: {what}; expected a query, a tab and ASINs separated by blanks or tabs"
            )
        found.append((query, asins))
    if not found:
        raise TaskError(f"{path} holds no ranking; expected lines of a query, a tab and ASINs")
    return found
