"""Writes the tables of docs/claims.md: `python -m isentrope.claims.docs`. The text around them is written by hand.

The studies are those whose numbers are kept under docs/runs, all of them.
"""

from __future__ import annotations

import re
from pathlib import Path

from isentrope.claims.book import CLAIMS, PAPERS
from isentrope.claims.computed import compute
from isentrope.claims.ledger import Ledger, make_ledger, read_studies
from isentrope.claims.record import Claim
from isentrope.claims.registry import read_book
from isentrope.claims.render import runs_to_markdown, to_markdown
from isentrope.claims.words import compared, rule
from isentrope.study.compact import COMPACT

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "claims.md"
NOT_YET = "**The study has not been made yet.** No study is kept under `docs/runs`, so nothing is decided."


def kept_studies(docs: Path = DOCS) -> list[Path]:
    return sorted(path.parent for path in (docs / "runs").glob(f"*/{COMPACT}"))


def kept_ledger(docs: Path = DOCS) -> Ledger:
    return make_ledger(read_studies(kept_studies(docs)))


def tables(docs: Path = DOCS) -> dict[str, str]:
    """What stands between `<!-- name -->` and `<!-- /name -->`."""
    ledger, folders = kept_ledger(docs), kept_studies(docs)
    links = {study: f"runs/{path.name}" for study, path in zip(ledger.studies, folders, strict=True)}
    return {
        "ledger": to_markdown(ledger, compute()) if folders else f"{NOT_YET}\n\n{to_markdown(ledger, compute())}",
        "runs": runs_to_markdown(ledger, links) if folders else NOT_YET + "\n",
        "rules": rules(),
    }


def rules() -> str:
    """Every claim with its rule."""
    book, lines = read_book(), list[str]()
    for paper, title in PAPERS.items():
        lines += [f"### {paper}", "", f"*{title}*", ""]
        for claim in (claim for claim in CLAIMS if claim.paper == paper):
            since = book[claim.id][-1].date[:10] if book.get(claim.id) else "not recorded"
            lines += [*_rule(claim, since), ""]
    return "\n".join(lines)


def _rule(claim: Claim, since: str) -> list[str]:
    lines = [f"**{claim.id}.** {claim.says}", ""]
    for part in claim.parts:
        name = part.name if part.counts else f"{part.name} (no voice)"
        lines.append(f"- *{name}*: {compared(part)}; {part.measure.words}. It {rule(part, claim)}.")
    tail = f"At least {claim.least_seeds} seeds and {claim.least_steps} steps. Needs {claim.needs}. "
    return [*lines, "", f"{tail}{claim.caveat} Rule of {since}.".replace("  ", " ")]


def filled(page: str, texts: dict[str, str]) -> str:
    for name, text in texts.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        page, count = pattern.subn(lambda found, text=text: f"{found[1]}{text}{found[2]}", page)
        if count != 1:
            raise ValueError(f"the page has {count} places for the table {name}, not 1")
    return page


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), tables()), encoding="utf-8")
