"""`isentrope metrics`: what is measured, and what a run measured."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from isentrope.cli.completion import complete_run
from isentrope.cli.listing import show_metrics
from isentrope.cli.options import FindOption, terminal
from isentrope.core.text import count, mentions, plain, shown

if TYPE_CHECKING:
    from rich.console import Console

    from isentrope.core.metric import Metric
    from isentrope.runs.columns import Columns

_KEY_SHOWN = 120  # characters of a name, which a damaged log may make as long as it likes


class Form(StrEnum):
    text = "text"
    csv = "csv"
    json = "json"


class Numbers(NamedTuple):
    """What a run has of one metric. The four values are of the steps at which it was a finite number."""

    metric: str
    unit: str
    meaning: str
    steps: int
    not_finite: int
    first: float | None
    last: float | None
    lowest: float | None
    highest: float | None


def metrics(
    run: Annotated[
        Path | None,
        typer.Argument(
            metavar="RUN",
            help="A run folder: show its numbers. Without: all that a run can measure.",
            show_default=False,
            autocompletion=complete_run,
        ),
    ] = None,
    find: FindOption = "",
    as_csv: Annotated[bool, typer.Option("--csv", help="Write CSV.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
) -> None:
    """List what is measured, or the numbers of a run.

    Without a RUN: every metric with its unit and its meaning. With a RUN: of each of its metrics the number of steps,
    the first and last value, the lowest and the highest. Damaged lines are left out, and counted.
    """
    if as_csv and as_json:
        raise typer.BadParameter("give one of --csv and --json", param_hint="--csv")
    form = Form.csv if as_csv else Form.json if as_json else Form.text
    if run is None:
        _list(find, form)
    else:
        _show(run, find, form)


def _list(find: str, form: Form) -> None:
    from isentrope.metrics.glossary import with_parts

    found = {
        source: [metric for metric in entries if mentions(find, metric.key, metric.meaning)]
        for source, entries in with_parts().items()
    }
    rows = [(source, *_words(metric)) for source, entries in found.items() for metric in entries]
    if form is not Form.text:
        _write(("from", "metric", "unit", "meaning"), rows, form)
        return
    console = terminal()
    if not rows:
        console.print(shown(f"No metric has {find!r} in its name or meaning."))
    for source, entries in found.items():
        if entries:
            console.print(shown(f"From {source}", "bold"))
            show_metrics(console, map(_words, entries))
    console.print("A name in braces stands for any. isentrope metrics RUN shows the numbers of a run.", style="dim")


def _words(metric: Metric) -> tuple[str, str, str]:
    return metric.key, metric.unit, metric.meaning


# -- of a run


def _show(run: Path, find: str, form: Form) -> None:
    from isentrope.core.errors import RunError
    from isentrope.runs.columns import read_columns
    from isentrope.runs.layout import METRICS, TIMINGS

    if not run.is_dir():
        raise RunError(f"{run} is not a run folder; give the folder that holds {METRICS}")
    if not (run / METRICS).exists():
        raise RunError(f"{run} has no {METRICS}: nothing was measured there; give a run folder, such as runs/first")
    logs = [read_columns(run / name) for name in (METRICS, TIMINGS)]
    _take_in_what_the_run_declared(run)
    rows = [row for columns, _ in logs for row in _numbers(columns) if mentions(find, row.metric, row.meaning)]
    if form is not Form.text:
        _write(Numbers._fields, rows, form)
    elif rows:
        _show_numbers(rows, terminal(), with_meanings=bool(find))
    else:
        terminal().print(shown(f"No metric of {run} has {find!r} in its name or meaning." if find else "No numbers."))
    for problem in filter(None, (problem for _, problem in logs)):
        typer.echo(plain(problem), err=True)


def _take_in_what_the_run_declared(run: Path) -> None:
    from isentrope.metrics.glossary import declare, declared_in
    from isentrope.runs.folder import about_or_nothing

    declare(declared_in(about_or_nothing(run)))


def _numbers(columns: Columns) -> Iterator[Numbers]:
    """In alphabetical order."""
    for key in sorted(columns.keys):
        _, values = columns.between(key, 0, columns.rows)
        finite = [value for value in values if value is not None and math.isfinite(value)]
        unit, meaning = _meaning(key)
        ends = (finite[0], finite[-1], min(finite), max(finite)) if finite else (None,) * 4
        yield Numbers(key, unit, meaning, len(values), len(values) - len(finite), *ends)


def _meaning(key: str) -> tuple[str, str]:
    """Unit and meaning; empty for a name that nobody declared."""
    from isentrope.metrics.glossary import entry_of, sentence

    try:
        return entry_of(key[:_KEY_SHOWN]).unit, sentence(key[:_KEY_SHOWN])
    except KeyError:
        return "", ""


def _show_numbers(rows: list[Numbers], console: Console, with_meanings: bool) -> None:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("metric", overflow="fold", style="cyan")
    for heading in ("steps", "first", "last", "lowest", "highest"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        values = ["-" if value is None else f"{value:.3g}" for value in row[5:]]
        table.add_row(shown(row.metric[:_KEY_SHOWN]), str(row.steps), *values)
    console.print(table)
    for row in rows:
        if row.not_finite:
            console.print(shown(f"{row.metric[:_KEY_SHOWN]}: {count(row.not_finite, 'value')} not finite", "yellow"))
    if with_meanings:
        console.print()
        show_metrics(console, [(row.metric[:_KEY_SHOWN], row.unit, row.meaning) for row in rows])
    else:
        console.print("--find WORDS shows some of them, with their meanings.", style="dim")


def _write(head: tuple[str, ...], rows: list[tuple[str, ...]] | list[Numbers], form: Form) -> None:
    from isentrope.analysis.tables import csv_text, one_line, spreadsheet_safe

    if form is Form.json:
        typer.echo(json.dumps([dict(zip(head, row, strict=True)) for row in rows], indent=2))
        return
    cells = [[spreadsheet_safe(one_line(cell)) if isinstance(cell, str) else cell for cell in row] for row in rows]
    typer.echo(plain(csv_text(head, cells)), nl=False)
