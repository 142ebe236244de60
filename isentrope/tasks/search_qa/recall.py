"""How good is the search? The share of a question's supporting passages that the question itself finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from isentrope.tasks.search_qa.world import SearchQAWorld


@dataclass(frozen=True)
class Recall:
    questions: int
    shares: dict[int, float]  # by the number of passages looked at


def recall(world: SearchQAWorld, split: str, depths: Sequence[int], most: int = 10_000) -> dict[str, Recall]:
    """For each data set, over its questions that name their passages: found titles / supporting titles, averaged.

    Only the first `most` questions of the split are asked.
    """
    instances = [world.instance(split, index) for index in range(min(most, world.size(split)))]
    asked = [(one.kind, question) for one in instances if (question := world.question(one)).titles]
    hits = world.retriever().search([question.text for _, question in asked], max(depths))
    found: dict[str, list[list[float]]] = {}
    for (kind, question), row in zip(asked, hits, strict=True):
        titles = [hit.passage.title for hit in row]
        shares = [len(set(question.titles).intersection(titles[:depth])) / len(question.titles) for depth in depths]
        found.setdefault(kind, []).append(shares)
    return {
        kind: Recall(len(rows), {depth: sum(row[i] for row in rows) / len(rows) for i, depth in enumerate(depths)})
        for kind, rows in sorted(found.items())
    }
