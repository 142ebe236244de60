"""`isentrope table`: results side by side, as the papers print them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from isentrope.cli.options import print_or_write


class At(StrEnum):
    last = "last"
    best = "best"


class Form(StrEnum):
    text = "text"
    md = "md"
    latex = "latex"
    csv = "csv"
    json = "json"


def table(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RESULT_OR_RUN", help="Files of isentrope eval --out, or run folders.", show_default=False
        ),
    ] = None,
    row: Annotated[
        list[str] | None,
        typer.Option("--row", metavar="NAME=PATH", help="A row of several seeds; PATH may have * in it; repeat it."),
    ] = None,
    split: Annotated[list[str] | None, typer.Option("--split", help="A split; may be repeated.")] = None,
    at: Annotated[At, typer.Option("--at", help="Which evaluation of a run is shown by type.")] = At.last,
    last: Annotated[
        float, typer.Option("--last", help="Succ.: share of a run's steps that counts as converged.")
    ] = 0.2,
    from_step: Annotated[
        int | None, typer.Option("--from-step", min=1, help="Succ.: from this step on, instead of --last.")
    ] = None,
    against: Annotated[
        str | None, typer.Option("--against", metavar="ROW", help="Show each row's difference to this one.")
    ] = None,
    rows: Annotated[
        Path | None,
        typer.Option("--rows", metavar="FILE.toml", help="The papers' figures: papers/rows are ours."),
    ] = None,
    paper: Annotated[str | None, typer.Option("--paper", help="Of --rows, this paper alone, e.g. aem.")] = None,
    paper_task: Annotated[str | None, typer.Option("--paper-task", help="Of --rows, this task alone.")] = None,
    paper_model: Annotated[
        str | None, typer.Option("--paper-model", help="Of --rows, models with this in their name.")
    ] = None,
    form: Annotated[Form, typer.Option("--format", "-f", help="How to write it.")] = Form.text,
    intervals: Annotated[bool, typer.Option("--intervals", help="Intervals for the types too.")] = False,
    more: Annotated[bool, typer.Option("--more", help="Score, return, turns, valid actions and tokens too.")] = False,
    mixed: Annotated[bool, typer.Option("--mixed", help="Allow a row whose seeds were tested differently.")] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write it here.")] = None,
) -> None:
    """Put results side by side, as the papers print them.

    Success by type, over all, Succ.* and Succ., a row for each method.
    """
    if not 0 < last <= 1:
        raise typer.BadParameter(f"{last} is not above 0 and at most 1", param_hint="--last")
    from isentrope.analysis.compare import Choices, make_tables
    from isentrope.analysis.result_table import read_printed, render, with_papers
    from isentrope.analysis.rows import read_rows
    from isentrope.analysis.success import Window
    from isentrope.config.recipes import find_recipe

    choices = Choices(tuple(split or ()), at.value, Window(last, from_step), against, mixed, more)
    tables = make_tables(read_rows(sources or (), row or ()), choices)
    if rows is not None:
        printed = read_printed(find_recipe(rows), paper=paper, task=paper_task, model=paper_model)
        tables = [with_papers(one, printed) for one in tables]
    elif paper or paper_task or paper_model:
        raise typer.BadParameter("give the papers' figures with --rows FILE.toml", param_hint="--paper")
    print_or_write(render(tables, form.value, intervals), out)
