"""`isentrope claims`: the papers' claims, and what our runs say of them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isentrope.analysis.tables import rich_table
from isentrope.cli.options import print_or_write
from isentrope.core.text import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from isentrope.papers.computed import Computed
    from isentrope.papers.ledger import Ledger


class Form(StrEnum):
    text = "text"
    md = "md"
    json = "json"


def claims(
    studies: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="STUDY",
            help="Folders of isentrope study, or of its compact form, as under docs/runs.",
            show_default=False,
        ),
    ] = None,
    explain: Annotated[
        str | None, typer.Option("--explain", metavar="CLAIM", help="Print a claim, its rule and how it is measured.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="CLAIM", help="This claim alone; may be repeated.")
    ] = None,
    details: Annotated[
        bool, typer.Option("--details", help="Every setting of every claim, and why; with --only always so.")
    ] = False,
    computed: Annotated[
        bool, typer.Option("--computed/--no-computed", help="Check the mathematical ones as well; takes a second.")
    ] = True,
    form: Annotated[Form, typer.Option("--format", "-f", help="How to write it.")] = Form.text,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write it to a file; text as Markdown.")
    ] = None,
) -> None:
    """Hold the papers' claims against studies.

    Each holds, does not hold, is undecided, or is not testable there. Rules are fixed before the runs, and each
    language model has a verdict of its own. Without a study it lists the claims, and what a study must have for each.
    """
    from isentrope.papers.ledger import make_ledger, read_studies
    from isentrope.papers.registry import CLAIMS, claim_of, read_book
    from isentrope.papers.words import explain as explained

    if explain is not None:
        claim = claim_of(explain)
        typer.echo(_wrapped(explained(claim, read_book().get(claim.id, []))), nl=False)
        return
    chosen = [claim_of(name) for name in only or ()] or CLAIMS
    ledger = make_ledger(read_studies(studies or ()), chosen)
    checked: Sequence[Computed] = ()
    if computed and not only:
        from isentrope.papers.computed import compute

        checked = compute()
    if form is Form.text and out is None:
        _show(ledger, checked, details or bool(only) or not studies)
        return
    from isentrope.papers.ledger import to_json, to_markdown

    print_or_write((to_json if form is Form.json else to_markdown)(ledger, checked), out)


def _wrapped(text: str) -> str:
    """As wide as the terminal; whole lines where there is none."""
    import textwrap

    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        return text
    lines: list[str] = []
    for line in text.splitlines():
        indent = " " * (14 if line.startswith("    ") else 2)  # below the words: 4 and a name of 10
        lines += textwrap.wrap(line, console.width, subsequent_indent=indent, break_on_hyphens=False) or [""]
    return "\n".join(lines) + "\n"


def _show(ledger: Ledger, checked: Sequence[Computed], details: bool) -> None:
    from rich.console import Console
    from rich.text import Text

    from isentrope.papers.ledger import summary
    from isentrope.papers.record import Verdict
    from isentrope.papers.words import MARKS, brief, comment, counts_of, effects

    colours = {Verdict.holds: "green", Verdict.fails: "red", Verdict.open: "yellow", Verdict.untestable: "dim"}
    console = Console()
    rows: list[list[str | Text]] = []
    for line in ledger.lines:
        for found in line.findings:
            counts = [counts_of(found)] if found.runs else []
            model = f"\n{found.model}" if found.model else ""
            verdict = shown(f"{MARKS[found.verdict]} {found.verdict}{model}", colours[found.verdict])
            told = shown("\n".join([*effects(found), *counts, comment(found)] if details else brief(found)))
            rows.append([line.claim.id, shown(line.claim.says), verdict, told])
    console.print(rich_table(("", "claim", "verdict", "found: effect [95 % interval]"), rows, show_lines=True))
    if checked:
        small = [
            (one.id, one.says, shown(f"{MARKS[one.verdict]} {one.verdict}", colours[one.verdict]), one.apart)
            for one in checked
        ]
        console.print(rich_table(("by computation", "statement", "verdict", "sides differ by"), small))
    console.print(shown(summary(ledger)))
    more = (
        "--only S3: all that was found of a claim; --explain S3: its rule and how it is measured; --details: all of all"
    )
    console.print(shown(more), style="dim")
