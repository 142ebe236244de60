"""`isentrope build-repairs`: repair tasks out of packages that ship tests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isentrope.cli.options import terminal
from isentrope.core.text import shown

if TYPE_CHECKING:
    from rich.console import Console

    from isentrope.worlds.code_repair.build import Builder
    from isentrope.worlds.code_repair.problem import Repair


NAMED_WHOLE = 10  # tests named with the reason why they are more than calls


def build_repairs(
    archives: Annotated[
        list[str], typer.Argument(metavar="ARCHIVE...", help="Source archives (.tar.gz, .zip) or folders, with tests.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Where the tasks go, one a line.")],
    count: Annotated[int, typer.Option("--count", min=1, help="Tasks in all, evenly over the archives.")] = 100,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Which bugs are tried first.")] = 0,
    seconds: Annotated[float, typer.Option("--seconds", min=1.0, help="A test run that takes longer is stopped.")] = 60,
    sandbox: Annotated[str, typer.Option("--sandbox", help="bubblewrap or docker.")] = "bubblewrap",
    image: Annotated[str, typer.Option("--image", help="docker: an image with Python and pytest.")] = "",
) -> None:
    """Put bugs into packages and keep those that a test notices.

    Everything runs in the sandbox. A bug is kept if tests that passed twice fail now, twice alike.
    """
    from isentrope.core.errors import TaskError
    from isentrope.sandbox.base import Limits
    from isentrope.worlds.code_repair.build import Builder, check_archives
    from isentrope.worlds.code_repair.problem import write_repairs

    console = terminal()
    check_archives(archives)
    builders = [Builder(archive, seed, Limits(seconds=seconds), sandbox, image) for archive in archives]
    made: list[Repair] = []
    for place, builder in enumerate(builders):
        made += _build(builder, (count - len(made)) // (len(builders) - place), console)
        if made:
            write_repairs(made, out)  # what is there survives an interruption
    if not made:
        raise TaskError("no bug was noticed by any test: choose packages with more tests")
    console.print(shown(f"{len(made)} tasks in {out}", "bold green"))


def _build(builder: Builder, wanted: int, console: Console) -> list[Repair]:
    """The tasks of one archive, with a bar; then one line that says how many bugs were tried, and why not all count."""
    from collections import Counter

    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    made: list[Repair] = []
    whys: Counter[str] = Counter()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("tasks"),
               TimeElapsedColumn())  # fmt: skip
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        bar = progress.add_task(shown(f"{builder.package}: running its tests").plain, total=wanted)
        stable = builder.stable_tests()
        for tried in builder.tries(stable) if wanted else ():
            if isinstance(tried, str):
                whys[tried] += 1
            else:
                made.append(tried)
            total = len(made) + sum(whys.values())
            progress.update(bar, completed=len(made), description=shown(f"{builder.package}: bug {total}").plain)
            if len(made) >= wanted:
                break
    reasons = ", ".join(f"{number} {why}" for why, number in sorted(whys.items()))
    line = f"{builder.package}: {len(stable)} tests, {len(made)} tasks of {len(made) + sum(whys.values())} bugs tried"
    console.print(shown(f"{line} ({reasons})" if reasons else line))
    for text in _weaker(builder, made):
        console.print(shown(text))
    return made


def _weaker(builder: Builder, made: list[Repair]) -> list[str]:
    """How the tasks are graded, and which tests are run whole for them, and why."""
    from collections import Counter

    ways = Counter(repair.grading for repair in made)
    whole = {test: why for repair in made for test, why in builder.reasons(repair).items()}
    lines = [f"  graded by {', '.join(f'{way}: {count}' for way, count in sorted(ways.items()))}"] if made else []
    lines += [f"  run whole: {test} ({why})" for test, why in sorted(whole.items())[:NAMED_WHOLE]]
    more = len(whole) - NAMED_WHOLE
    return [*lines, f"  ... and {more} more tests are run whole"] if more > 0 else lines
