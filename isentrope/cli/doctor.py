"""`isentrope doctor`: what is here, what works, what to do about the rest."""

from __future__ import annotations

import typer


def doctor() -> None:
    """Look at the machine: versions, extras, device, memory, disk, helper programs.

    Exit code 1 if training cannot run.
    """
    from rich.console import Console
    from rich.table import Table

    from isentrope.cli.health import examine
    from isentrope.cli.safe import shown

    styles = {"ok": "green", "missing": "yellow", "warning": "yellow", "broken": "bold red"}
    table = Table("", "", "", "what to do", box=None, show_header=False)
    broken = False
    for title, signs in examine().items():
        table.add_row(shown(title, "bold"))
        for sign in signs:
            table.add_row(
                shown(f"  {sign.name}"), shown(sign.state, styles[sign.state]), shown(sign.detail), shown(sign.advice)
            )
            broken = broken or sign.state == "broken"
    Console(highlight=False).print(table)
    if broken:
        raise typer.Exit(1)
