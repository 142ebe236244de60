"""`isentrope doctor`: what is here and works; `isentrope doctor RUN`: what happened in a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from isentrope.instruments.diagnosis_data import Course


def doctor(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RUNS", help="Run folders; none: look at the machine.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings about the runs as JSON.")] = False,
) -> None:
    """Say what happened in a run and what to try; without a run, what works on this machine.

    A run is told from its metrics.jsonl, config.toml, events.jsonl and episodes, as far as they are there. Nothing is
    written. Exit code 1 only if no run was given and training cannot work here.
    """
    if runs:
        _look_at_runs(runs, as_json)
    else:
        _look_at_machine()


def _look_at_runs(runs: list[Path], as_json: bool) -> None:
    import json
    from textwrap import wrap

    from rich.console import Console

    from isentrope.cli.safe import plain, shown
    from isentrope.errors import RunError
    from isentrope.instruments.diagnosis import Diagnosis, diagnose
    from isentrope.instruments.diagnosis_data import Finding

    found: list[Diagnosis] = []
    for run in runs:
        try:
            found.append(diagnose(course_of(run)))
        except RunError as error:
            if len(runs) == 1:
                raise
            found.append(Diagnosis(run.name, "unknown", (Finding("state/unreadable", f"{error}.", "bad"),)))
    if as_json:
        typer.echo(json.dumps([diagnosis.data() for diagnosis in found], indent=2))
        return
    console = Console(highlight=False)
    for number, (run, diagnosis) in enumerate(zip(runs, found, strict=True)):
        if number:
            console.print()
        console.print(shown(str(run), "bold"))
        # a number and its percent sign stay on one line
        lines = wrap(plain(diagnosis.words()).replace(" %", "\u00a0%"), min(100, console.width))
        typer.echo("\n".join(lines))


def course_of(path: Path) -> Course:
    """A run folder, read for a diagnosis."""
    from isentrope.report import story
    from isentrope.report.read import read_run

    run = read_run(path)
    story.check_run(run)
    return story.course_of(run)


def _look_at_machine() -> None:
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
