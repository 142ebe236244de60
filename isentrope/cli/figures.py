"""`isentrope figures`: figures for papers."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from isentrope.cli.options import named_rows


class Form(StrEnum):
    svg = "svg"
    pdf = "pdf"


def figures(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where the files go.")],
    runs: Annotated[list[Path] | None, typer.Argument(metavar="RUN", help="Run folders.", show_default=False)] = None,
    row: Annotated[
        list[str] | None,
        typer.Option("--row", metavar="NAME=PATH", help="Runs to draw as seeds of one line; PATH may have * in it."),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", "-m", metavar="KEY", help="A metric, e.g. entropy/token; may be repeated; else all."),
    ] = None,
    form: Annotated[Form, typer.Option("--format", "-f", help="PDF needs matplotlib: isentrope[figures].")] = Form.svg,
) -> None:
    """Draw figures for a paper: one metric to a file, a line for each run, seeds as their mean with a band."""
    rows = named_rows(row or ())
    if not runs and not rows:
        raise typer.BadParameter("give one or more run folders", param_hint="RUN")
    from isentrope.report.compare import read_groups
    from isentrope.report.overlay import write_figures

    for path in write_figures(read_groups(runs or (), rows), metric or (), out, form.value):
        typer.echo(str(path))
