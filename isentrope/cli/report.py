"""`isentrope report`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    open_page: Annotated[bool, typer.Option("--open", help="Show the page in the browser.")] = False,
) -> None:
    """Write the report page of a run."""
    from isentrope.report.page import write_report

    page = Path(write_report(run))
    typer.echo(str(page))
    if open_page:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())
