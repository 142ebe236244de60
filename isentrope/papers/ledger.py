"""The ledger: every claim with its verdicts, one for each language model, and the age of its rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from isentrope.core.errors import RunError
from isentrope.papers.judge import find
from isentrope.papers.record import Claim, Finding, Verdict
from isentrope.papers.registry import CLAIMS, Book, notes_on, present, read_book
from isentrope.papers.select import place
from isentrope.study.read import StudyData, read_study


@dataclass(frozen=True)
class Line:
    claim: Claim
    findings: tuple[Finding, ...]  # by model; one without a model, if there are no runs
    since: str  # when the rule last changed; empty: never recorded


@dataclass(frozen=True)
class Ledger:
    studies: tuple[str, ...]
    lines: tuple[Line, ...]

    @property
    def findings(self) -> list[Finding]:
        return [found for line in self.lines for found in line.findings]

    @property
    def models(self) -> list[str]:
        return sorted({found.model for found in self.findings if found.model or found.parts})

    def counts(self, model: str) -> dict[Verdict, int]:
        counted = Counter(found.verdict for found in self.findings if found.model == model)
        return {verdict: counted[verdict] for verdict in Verdict}

    @property
    def runs(self) -> int:
        return len({run for found in self.findings for run in found.runs})


def make_ledger(studies: Sequence[StudyData], claims: Sequence[Claim] = CLAIMS, book: Book | None = None) -> Ledger:
    book, now = read_book() if book is None else book, present()
    begun = {f"{study.name}/{run.name}": run.begun for study in studies for run in study.runs}
    placed, lines = place(studies), list[Line]()
    for claim in claims:
        noted = [
            replace(found, rule_notes=notes_on(claim, book, now, [begun[run] for run in found.runs]))
            for found in find(claim, placed)
        ]
        entries = book.get(claim.id, ())
        lines.append(Line(claim, tuple(noted), entries[-1].date if entries else ""))
    return Ledger(tuple(study.name for study in studies), tuple(lines))


def read_studies(paths: Sequence[Path]) -> list[StudyData]:
    """Studies by their folders or compact files. Two of one name cannot be told apart."""
    studies = [read_study(path) for path in paths]
    twice = [name for name, count in Counter(study.name for study in studies).items() if count > 1]
    if twice:
        raise RunError(f"two of the studies are called {twice[0]}; give each of them once")
    return studies
