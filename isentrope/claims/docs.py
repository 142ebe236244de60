"""Writes the claims' pages and figures from the studies kept under docs/runs: `python -m isentrope.claims.docs`.

Tables stand between marks, `<!-- name -->` and `<!-- /name -->`; the text around them is written by hand. Figures are
SVG files in docs/claims.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from isentrope.charts.text import filled
from isentrope.claims.book import CLAIMS, PAPERS
from isentrope.claims.computed import compute
from isentrope.claims.figure_list import FIGURES
from isentrope.claims.figures import STUDY, draw
from isentrope.claims.first.judge import find as find_first
from isentrope.claims.first.rules import first_edition
from isentrope.claims.forest import forest
from isentrope.claims.ledger import Ledger, make_ledger, read_studies
from isentrope.claims.numbers import cells_of, numbers
from isentrope.claims.pages import (
    computed_to_markdown,
    editions_table,
    ledger_table,
    page_of,
    runs_to_markdown,
    state,
    verdicts,
)
from isentrope.claims.record import Claim, Part, Verdict
from isentrope.claims.registry import read_book
from isentrope.claims.select import matches, place
from isentrope.claims.words import compared, power_in_words, premise_in_words, rule
from isentrope.runs.atomic import write_atomically
from isentrope.study.compact import COMPACT
from isentrope.study.read import DONE, StudyData

DOCS = Path(__file__).resolve().parents[2] / "docs"
OVERVIEW = "overview.svg"
FIRST_STUDIES = ("alfworld", "household", "noise", "quick")  # that the first edition was applied to
NOT_YET = "**The study has not been made yet.** No study is kept under `docs/runs`, so nothing is decided.\n"


def kept_studies(docs: Path = DOCS) -> dict[str, StudyData]:
    """The studies under docs/runs that concern a claim, by their folders; others are there for another purpose."""
    return _with_claims(_all_studies(docs))


def _all_studies(docs: Path = DOCS) -> dict[str, StudyData]:
    folders = sorted(path.parent for path in (docs / "runs").glob(f"*/{COMPACT}"))
    return {folder.name: data for folder, data in zip(folders, read_studies(folders), strict=True)}


def _with_claims(studies: Mapping[str, StudyData]) -> dict[str, StudyData]:
    return {name: data for name, data in studies.items() if _concerns_a_claim(data)}


def _concerns_a_claim(data: StudyData) -> bool:
    wanted = {select for claim in CLAIMS for part in claim.parts for select in (part.runs, *part.against)}
    return any(matches(select, one) for one in place([data]) for select in wanted)


def figures(studies: Sequence[StudyData]) -> dict[str, str]:
    """Every figure by the name of its file."""
    made = {OVERVIEW: forest([data for data in studies if _concerns_a_claim(data)])}
    wanted = [one for several in FIGURES.values() for one in several]
    for data in studies:
        made |= {f"{one.name}.svg": draw(data, one) for one in wanted if one.study == data.name}
    return {name: text for name, text in made.items() if text is not None}


def tables(kept: Mapping[str, StudyData]) -> dict[str, dict[str, str]]:
    """What stands between the marks, by page and by mark."""
    studies = list(kept.values())
    ledger = make_ledger(studies)
    done = {data.name: (sum(run.status == DONE for run in data.runs), len(data.runs)) for data in studies}
    head = f"{state(done)} " if studies else f"{NOT_YET}\n"
    pages = {
        "claims.md": {
            "ledger": head + ledger_table(ledger),
            "editions": editions_table(ledger, _first_verdicts(studies)) if studies else NOT_YET,
            "computed": computed_to_markdown(compute()),
            "runs": runs_to_markdown(ledger, {data.name: f"runs/{folder}" for folder, data in kept.items()}),
        },
        "claims/rules.md": {"rules": rules()},
    }
    return pages | {f"claims/{page_of(paper)}": _paper(paper, ledger, studies) for paper in PAPERS}


def _first_verdicts(studies: Sequence[StudyData]) -> dict[str, Verdict]:
    """What the first edition says of the studies that it judged when it was frozen."""
    kept = [data for data in studies if data.name in FIRST_STUDIES]
    return {claim.id: find_first(claim, kept).verdict for claim in first_edition()}


def _paper(paper: str, ledger: Ledger, studies: Sequence[StudyData]) -> dict[str, str]:
    shown = cells_of([figure for figure in FIGURES[paper] if figure.study == STUDY])
    told = [numbers(data, shown) for data in studies if data.name == STUDY]
    return {"numbers": told[0] if told else NOT_YET, "verdicts": verdicts(ledger, paper)}


def rules() -> str:
    """Every claim with its rule."""
    book, lines = read_book(), list[str]()
    for paper, title in PAPERS.items():
        lines += [f"## {paper}", "", f"*{title}*", ""]
        for claim in (claim for claim in CLAIMS if claim.paper == paper):
            since = book[claim.id][-1].date[:10] if book.get(claim.id) else "not recorded"
            lines += [*_rule(claim, since), ""]
    return "\n".join(lines)


def _rule(claim: Claim, since: str) -> list[str]:
    lines = [f"### {claim.id}", "", claim.says, ""]
    for part in claim.parts:
        lines += _part(part, claim)
    tail = f"At least {claim.least_seeds} seeds and {claim.least_steps} steps. Needs {claim.needs}. "
    return [*lines, "", f"{tail}{claim.caveat} Rule of {since}.".replace("  ", " ")]


def _part(part: Part, claim: Claim) -> list[str]:
    name = part.name if part.counts else f"{part.name} (no voice)"
    control = f" (of the controls: {part.control_measure.words})" if part.control_measure else ""
    lines = [f"- *{name}*: {compared(part)}; {part.measure.words}{control}. It {rule(part, claim)}."]
    lines += [f"  - Premise: {premise_in_words(premise)}." for premise in part.premises]
    return lines + [f"  - Power: {told}." for told in power_in_words(part, claim)]


def made(docs: Path = DOCS) -> dict[Path, str]:
    """All pages and figures as they are to be, by path. Pages keep what was written by hand."""
    every = _all_studies(docs)
    files = {docs / "claims" / name: text for name, text in figures(list(every.values())).items()}
    for page, texts in tables(_with_claims(every)).items():
        files[docs / page] = filled((docs / page).read_text(encoding="utf-8"), texts)
    return files


def write(docs: Path = DOCS) -> list[Path]:
    """Write all, and take away figures that are no longer made."""
    files = made(docs)
    for path, text in files.items():
        write_atomically(path, text.encode())
    for path in (docs / "claims").glob("*.svg"):
        if path not in files:
            path.unlink()
    return list(files)


if __name__ == "__main__":
    for written in write():
        print(written.relative_to(DOCS.parent))
