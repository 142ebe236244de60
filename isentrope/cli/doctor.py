"""`isentrope doctor`: diagnoses runs; without a run, checks this machine (machine.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from isentrope.cli.completion import complete_run
from isentrope.cli.options import terminal
from isentrope.core.errors import ConfigError
from isentrope.core.text import plain, shown


def doctor(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RUNS",
            help="Run folders; none: look at the machine.",
            show_default=False,
            autocompletion=complete_run,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings about the runs as JSON.")] = False,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="Look at what processes on this machine can do together.")
    ] = False,
    folder: Annotated[
        Path, typer.Option("--folder", metavar="DIR", help="With --cluster: where runs are to be written.")
    ] = Path("runs"),
) -> None:
    """Diagnose runs; without a run: see what works here.

    It says what happened in a run and what to try. A run is told from its metrics.jsonl, config.toml, events.jsonl and
    episodes, as far as they are there. Nothing is written. Exit code 1 only if no run was given and training, or
    with --cluster a process, cannot work here.
    """
    if cluster:
        from isentrope.cli.cluster_machine import look_at_cluster

        if runs:
            raise ConfigError("--cluster looks at this machine, not at runs: leave one of the two out")
        look_at_cluster(folder)
    elif runs:
        _look_at_runs(runs, as_json)
    else:
        from isentrope.cli.machine import look_at_machine

        look_at_machine()


def _look_at_runs(runs: list[Path], as_json: bool) -> None:
    import json
    from textwrap import wrap

    from isentrope.core.errors import RunError
    from isentrope.diagnosis.doctor import Diagnosis, diagnose
    from isentrope.diagnosis.remedies import Finding
    from isentrope.report.story import open_run

    found: list[Diagnosis] = []
    for run in runs:
        try:
            found.append(diagnose(open_run(run)))
        except RunError as error:
            if len(runs) == 1:
                raise
            found.append(Diagnosis(run.name, "unknown", (Finding("state/unreadable", f"{error}.", "bad"),)))
    if as_json:
        typer.echo(json.dumps([diagnosis.data() for diagnosis in found], indent=2))
        return
    console = terminal()
    for number, (run, diagnosis) in enumerate(zip(runs, found, strict=True)):
        if number:
            console.print()
        console.print(shown(str(run), "bold"))
        # a number and its percent sign stay on one line
        lines = wrap(plain(diagnosis.words()).replace(" %", "\u00a0%"), min(100, console.width))
        typer.echo("\n".join(lines))
