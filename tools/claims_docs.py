"""Writes the claims' pages and figures from the studies kept under docs/runs: `python -m tools.claims_docs`.

Tables stand between marks, `<!-- name -->` and `<!-- /name -->`; the text around them is written by hand. Figures are
SVG files in docs/claims.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from isentrope.analysis.tables import markdown_table
from isentrope.charts.text import filled
from isentrope.core.stats import bootstrap
from isentrope.metrics.temperature import footnotes, marked
from isentrope.papers.computed import compute
from isentrope.papers.first.judge import find as find_first
from isentrope.papers.first.judge import first_edition
from isentrope.papers.ledger import (
    Ledger,
    computed_to_markdown,
    editions_table,
    ledger_table,
    make_ledger,
    page_of,
    read_studies,
    runs_to_markdown,
    safe_cell,
    state,
    verdicts,
)
from isentrope.papers.record import Claim, Part, Verdict
from isentrope.papers.registry import CLAIMS, PAPERS, read_book
from isentrope.papers.select import matches, place
from isentrope.papers.words import compared, power_in_words, premise_in_words, rule
from isentrope.runs.atomic import write_atomically
from isentrope.study.measures import measured
from isentrope.study.read import COMPACT, DONE, StudyData, StudyRun
from isentrope.study.tables import LEAST_SEEDS, entropy_notes
from tools.claims_figure_list import FIGURES
from tools.claims_figures import STUDY, Figure, differences, draw, forest

# -- the numbers behind a paper's page: a row for each cell that its figures show


_HEAD = ("cell", "seeds", "start", "half way", "Succ.", "against its baseline", "late entropy", "runs that erupt")
_LATE = _HEAD.index("late entropy")
_LEGEND = (
    "Success on {split} games in percent: before the first step, half way, and at the end (Succ.: mean of the "
    "evaluations in the last {share:g} % of the steps); the difference in Succ. to the baseline, in points, paired by "
    "seed; token entropy over that last part, in nats; runs in which the phase detector finds an eruption. In "
    "brackets: 95 % interval over seeds, from {least} seeds up; two seeds are both told."
)


def cells_of(figures: Sequence[Figure]) -> list[str]:
    return list(dict.fromkeys(cell for figure in figures for part in figure.parts for cell in part.cells))


def numbers(data: StudyData, cells: Sequence[str]) -> str:
    """Cells without a finished run are left out; entropies at another temperature than 1 are marked."""
    notes = entropy_notes(data)
    rows: list[list[str]] = []
    for cell in cells:
        runs = data.cell(cell, DONE)
        if runs:
            row = _row(data, cell, runs)
            row[_LATE] = marked(row[_LATE], notes.get(cell))
            rows.append([safe_cell(text) for text in row])
    plan = data.study.plan
    legend = _LEGEND.format(split=safe_cell(plan.split), share=100 * plan.converged, least=LEAST_SEEDS)
    heat = {cell: note for cell, note in notes.items() if cell in cells}
    told = [legend, *(safe_cell(f"{one}.") for one in footnotes(heat))]
    return f"{markdown_table(_HEAD, rows, figures=True)}\n\n{' '.join(told)}\n"


def _row(data: StudyData, cell: str, runs: Sequence[StudyRun]) -> list[str]:
    found = {run.seed: measured(run, data.study.plan) for run in runs}

    def column(key: str, scale: float, places: int, most: float) -> str:
        return over_seeds({seed: scale * one[key] for seed, one in found.items() if key in one}, places, 0.0, most)

    pairs = differences(data, cell)
    apart = over_seeds(pairs, 1, signed=True)
    half = {run.seed: 100 * value for run in runs if (value := _half_way(data, run)) is not None}
    erupting = sum(one.get("eruptions", 0) > 0 for one in found.values())
    return [
        cell,
        str(len(runs)),
        column("start", 100, 1, 100.0),
        over_seeds(half, 1, 0.0, 100.0),
        column("succ", 100, 1, 100.0),
        f"{apart} ({len(pairs)} of them)" if 0 < len(pairs) < len(runs) else apart,
        column("entropy_late", 1, 3, math.inf),
        f"{erupting} of {len(runs)}",
    ]


def _half_way(data: StudyData, run: StudyRun) -> float | None:
    """The last evaluation in the first half of the steps."""
    steps, values = run.series(f"eval/{data.study.plan.split}/success")
    before = [value for step, value in zip(steps, values, strict=True) if 0 < step <= run.steps / 2]
    return before[-1] if before else None


def over_seeds(
    values: Mapping[int, float], places: int, least: float = -math.inf, most: float = math.inf, signed: bool = False
) -> str:
    """The mean with its interval, which stays where values can be; with two seeds both; nothing for none."""

    def told(value: float) -> str:
        rounded = round(value, places) + 0.0  # a zero has no sign
        return f"{rounded:{'+' if signed and rounded else ''}.{places}f}".replace("-", "−")

    if len(values) < LEAST_SEEDS:
        return " and ".join(told(values[seed]) for seed in sorted(values))
    mean = bootstrap([values[seed] for seed in sorted(values)])
    assert mean.interval is not None
    ends = mean.interval.within(least, most)
    return f"{told(mean.value)} [{told(ends.low)}, {told(ends.high)}]"


DOCS = Path(__file__).resolve().parents[1] / "docs"
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
    lines += [f"    - Premise: {premise_in_words(premise)}." for premise in part.premises]
    return lines + [f"    - Power: {told}." for told in power_in_words(part, claim)]


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
