"""`isentrope report`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isentrope.cli.options import named_rows


def report(
    runs: Annotated[list[Path] | None, typer.Argument(metavar="RUN", help="Run folders.", show_default=False)] = None,
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
    """Write the report page of a run, or of several one page that compares them.

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
