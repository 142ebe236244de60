"""`isentrope bench`: runs the benchmarks that suit this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isentrope.analysis.tables import rich_table
from isentrope.cli.completion import complete_bench
from isentrope.cli.options import terminal
from isentrope.core.text import shown

if TYPE_CHECKING:
    from isentrope.bench.suite import Outcome


def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME", help="Which benches; none: all.", show_default=False, autocompletion=complete_bench
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller sizes, fewer rounds: a first look.")] = False,
    only_list: Annotated[bool, typer.Option("--list", help="Say what would be run here, and run nothing.")] = False,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FOLDER", help="Where results are kept, in a folder per run.")
    ] = Path("results/bench"),
    limit: Annotated[float, typer.Option("--limit", min=1, help="Seconds that one bench may take.")] = 1200.0,
) -> None:
    """Measure speed on this machine.

    Each figure has the peer it was measured against, its ratio and its bar. What makes no sense here (no GPU, TRL or
    vLLM not installed) is left out and named. The figures of known machines: isentrope docs performance. Ends with 1 if
    a bar was missed or a bench failed.
    """
    import time

    from isentrope.bench.results import table_of
    from isentrope.bench.suite import arguments, chosen, run, this_machine

    console, machine, wanted = terminal(), this_machine(), chosen(names or ())
    if only_list:
        rows: list[tuple[str, str, str]] = []
        for one in wanted:
            given = arguments(one, machine, quick)
            here = f"left out: {given}" if isinstance(given, str) else " ".join(["runs", *given])
            rows.append((one.name, one.what, here))
        console.print(rich_table(("bench", "measures", "here"), rows))
        return
    folder = out / time.strftime("%Y-%m-%d-%H%M%S")
    outcomes: list[Outcome] = []
    for one in wanted:
        with console.status(f"{one.name}: {one.what} (up to {one.minutes:g} minutes)"):
            outcome = run(one, machine, quick, folder, limit)
        outcomes.append(outcome)
        state = "failed" if outcome.failed else "left out"
        if outcome.result:
            console.print(table_of(outcome.result))
        if outcome.reason:
            console.print(shown(f"{one.name}: {state}: {outcome.reason}"))
    results = [one.result for one in outcomes if one.result is not None]
    bars = [row.met for result in results for row in result.rows if row.met is not None]
    if results:
        told = f"{sum(bars)} of {len(bars)} bars met" if bars else "no bars here"
        seconds = sum(one.seconds for one in outcomes)
        console.print(shown(f"{told}, {seconds:.0f} s. {results[0].machine}. Results: {folder}"))
    else:
        console.print("Nothing was measured.")
    if any(one.failed for one in outcomes) or not all(result.met for result in results):
        raise typer.Exit(1)
