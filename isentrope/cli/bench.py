"""`isentrope bench`: runs the benchmarks that suit this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from isentrope.bench.suite import Machine, Outcome


def bench(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]", help="Which benches; none: all.", show_default=False)
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller sizes, fewer rounds: a first look.")] = False,
    only_list: Annotated[bool, typer.Option("--list", help="Say what would be run here, and run nothing.")] = False,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where results are kept, in a folder per run.")
    ] = Path("results/bench"),
    limit: Annotated[float, typer.Option("--limit", min=1, help="Seconds that one bench may take.")] = 1200.0,
) -> None:
    """Measure speed on this machine: each figure with the peer it was measured against, its ratio and its bar.

    What makes no sense here (no GPU, TRL not installed) is left out and named. docs/performance.md has the figures of
    known machines. Ends with 1 if a bar was missed or a bench failed.
    """
    import time

    from rich.console import Console

    from isentrope.bench.suite import chosen, run, this_machine

    console, machine, wanted = Console(highlight=False), this_machine(), chosen(names or ())
    if only_list:
        _list(console, [one.name for one in wanted], machine, quick)
        return
    folder = out / time.strftime("%Y-%m-%d-%H%M%S")
    outcomes: list[Outcome] = []
    for one in wanted:
        with console.status(f"{one.name}: {one.what} (up to {one.minutes:g} minutes)"):
            outcomes.append(run(one, machine, quick, folder, limit))
        _show(console, outcomes[-1])
    _sum_up(console, outcomes, folder)
    if any(one.failed or (one.result and not one.result.met) for one in outcomes):
        raise typer.Exit(1)


def _list(console: Console, names: Sequence[str], machine: Machine, quick: bool) -> None:
    from isentrope.analysis.tables import rich_table
    from isentrope.bench.suite import arguments, chosen

    rows: list[tuple[str, str, str]] = []
    for one in chosen(names):
        given = arguments(one, machine, quick)
        here = f"left out: {given}" if isinstance(given, str) else " ".join(["runs", *given])
        rows.append((one.name, one.what, here))
    console.print(rich_table(("bench", "measures", "here"), rows))


def _show(console: Console, outcome: Outcome) -> None:
    from isentrope.bench.results import table_of
    from isentrope.core.text import shown

    if outcome.result is not None:
        console.print(table_of(outcome.result))
        return
    state = "failed" if outcome.failed else "left out"
    console.print(shown(f"{outcome.bench.name}: {state}: {outcome.reason}"))


def _sum_up(console: Console, outcomes: Sequence[Outcome], folder: Path) -> None:
    from isentrope.core.text import shown

    rows = [row for one in outcomes if one.result for row in one.result.rows if row.met is not None]
    met = sum(bool(row.met) for row in rows)
    measured = [one for one in outcomes if one.result is not None]
    if not measured:
        console.print("Nothing was measured.")
        return
    result = measured[0].result
    assert result is not None
    seconds = sum(one.seconds for one in outcomes)
    told = f"{met} of {len(rows)} bars met" if rows else "no bars here"
    console.print(shown(f"{told}, {seconds:.0f} s. {result.machine}. Results: {folder}"))
