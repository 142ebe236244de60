"""`isentrope import`: a run made by another program becomes a run folder of ours."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isentrope.cli.options import terminal
from isentrope.core.command import command
from isentrope.core.text import count, plain, shown

if TYPE_CHECKING:
    from isentrope.imports.write import Imported


class NamesOf(StrEnum):
    auto = "auto"
    trl = "trl"
    verl = "verl"
    isentrope = "isentrope"
    none = "none"


def import_run(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="LOG",
            help="A log file or its folder: TensorBoard, W&B offline, trainer_state.json, JSONL, CSV, verl's console.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="DIR", help="The new run folder; without: runs/ and the log's name."),
    ] = None,
    names: Annotated[
        NamesOf, typer.Option("--names", help="Whose names the metrics have; auto: told by the names themselves.")
    ] = NamesOf.auto,
    own: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="OURS=THEIRS",
            help="A metric of ours and its name there, or a TOML file of them; may be repeated.",
        ),
    ] = None,
    step: Annotated[
        str, typer.Option("--step", metavar="NAME", help="JSONL, CSV, W&B: the name under which the step stands.")
    ] = "",
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set", "-s", metavar="KEY=VALUE", help="What you know of its settings, e.g. rollout.group_size=8."
        ),
    ] = None,
) -> None:
    """Make a run folder of a run that another program logged.

    doctor, report, watch, metrics, table and figures then work on it as far as its numbers go; the doctor says what it
    cannot know. Names of TRL and verl become ours, all others stay as they are. The log is read only, and never
    trusted: of one that is cut or damaged what is whole is taken, and what is missing is said.
    """
    from isentrope.config.load import load_config, read_overrides
    from isentrope.imports.names import BUILT_IN, chosen, read_map, told_by
    from isentrope.imports.sources import find, read
    from isentrope.imports.write import check_is_free, write_run

    own_map = read_map(own or ())
    load_config(None, sets or ())  # which refuses what is no setting
    settings = read_overrides(sets or (), [])
    found_source = find(source)
    place = out or Path("runs") / _name_of(source)
    check_is_free(place)
    typer.echo(plain(f"reading {found_source.words} …"), err=True)
    series = read(found_source, step)
    program = told_by(series.keys) if names is NamesOf.auto else BUILT_IN[names.value]
    found, notes = chosen(series, program, own_map)
    typer.echo(f"writing {series.numbers:,} numbers …", err=True)
    made = write_run(
        place, source, found_source, series, program, found, own_map, notes, settings,
        lambda at: typer.echo(f"step {at:,} …", err=True),
    )  # fmt: skip
    _tell(made, program.title)


def _tell(made: Imported, title: str) -> None:
    console = terminal()
    kept = f"{count(made.ours, 'metric')} under our names ({title}'s), {made.others} under their own"
    console.print(shown(f"{made.folder}: {count(made.steps, 'step')}, {made.first} to {made.last}; {kept}"))
    notes = list(made.problems)
    if not made.ours:
        notes.append("none of them is one of ours: the doctor needs --map, such as --map entropy/token=NAME")
    for note in notes:
        console.print(shown(f"note: {note}", "yellow"))
    console.print(shown(f"See {command('doctor', made.folder)} and {command('report', made.folder)}"))


def _name_of(source: Path) -> str:
    """The name of a file without its ending, or of a folder; of event files that of their folder."""
    path = source.resolve()
    if path.name.startswith("events.out.tfevents") or path.name == "trainer_state.json":
        path = path.parent
    return (path.name if path.is_dir() else path.stem) or "imported"
