"""`isentrope report` and `isentrope figures`: the page of a run, comparisons, and figures for papers."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from isentrope.cli.completion import complete_metric
from isentrope.cli.options import RunsArgument, named_rows


class Form(StrEnum):
    svg = "svg"
    pdf = "pdf"


def figures(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where the files go.")],
    runs: RunsArgument = None,
    row: Annotated[
        list[str] | None,
        typer.Option("--row", metavar="NAME=PATH", help="Runs to draw as seeds of one line; PATH may have * in it."),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            "-m",
            metavar="KEY",
            help="A metric, e.g. entropy/token; may be repeated; else all.",
            autocompletion=complete_metric,
        ),
    ] = None,
    form: Annotated[Form, typer.Option("--format", "-f", help="PDF needs matplotlib: isentrope[figures].")] = Form.svg,
) -> None:
    """Draw figures for a paper.

    One metric to a file, a line for each run, seeds as their mean with a band.
    """
    rows = named_rows(row or ())
    if not runs and not rows:
        raise typer.BadParameter("give one or more run folders", param_hint="RUN")
    from isentrope.report.compare import read_groups
    from isentrope.report.overlay import write_figures

    for path in write_figures(read_groups(runs or (), rows), metric or (), out, form.value):
        typer.echo(str(path))


def report(
    runs: RunsArgument = None,
    row: Annotated[
        list[str] | None,
        typer.Option("--row", metavar="NAME=PATH", help="Runs to compare as seeds of one line; PATH may have * in it."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="The page; of one run by default RUN/report.html."),
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Show the page in the browser.")] = False,
) -> None:
    """Write the report page of a run, or of several together.

    Runs that differ only in run.seed are drawn as one line, their mean, with a band.
    """
    from isentrope.report.compare import write_comparison
    from isentrope.report.page import write_report

    rows = named_rows(row or ())
    if not runs and not rows:
        raise typer.BadParameter("give one or more run folders", param_hint="RUN")
    if runs and len(runs) == 1 and not rows:
        page = write_report(runs[0], out)
    elif out is None:
        raise typer.BadParameter("several runs make one page: say where with --out page.html", param_hint="--out")
    else:
        page = write_comparison(runs or (), rows, out)
    typer.echo(str(page))
    if open_page:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())
