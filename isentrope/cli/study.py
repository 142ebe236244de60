"""`isentrope study`: a grid of runs as a queue, and its tables."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from isentrope.cli.completion import complete_setting, complete_study
from isentrope.config.recipes import find_recipe
from isentrope.core.command import command

if TYPE_CHECKING:
    from isentrope.study.plan import Study
    from isentrope.study.read import StudyData
    from isentrope.study.run import How

_NAMED_FILES = 24  # a large study writes a hundred curves


class Form(StrEnum):
    text = "text"
    md = "md"
    latex = "latex"
    html = "html"
    csv = "csv"


StudyArgument = Annotated[
    Path,
    typer.Argument(
        metavar="STUDY",
        help="A study file (TOML), or the name of one of ours such as studies/quick; "
        "for --tables also a study's folder or compact form.",
        autocompletion=complete_study,
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="DIR",
        help="The study's folder; by default runs/NAME. With --tables of a folder or compact form: where they go.",
    ),
]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        "-s",
        metavar="KEY=VALUE",
        help="Change one setting of all runs and warm-ups; may be repeated.",
        autocompletion=complete_setting,
    ),
]
EarlierOption = Annotated[
    Path | None,
    typer.Option(
        "--earlier", metavar="DIR", help="Runs that are done there, in folders or compact, are not made again."
    ),
]


def study(
    file: StudyArgument,
    out: OutOption = None,
    side_by_side: Annotated[
        int, typer.Option("--side-by-side", "-n", min=0, help="Runs at a time; 0: as many as the device holds.")
    ] = 0,
    minutes: Annotated[
        float, typer.Option("--minutes", min=0, help="Stop after so long; call again to go on. 0: as the file says.")
    ] = 0.0,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="CELL", help="This cell alone; may be repeated.")
    ] = None,
    settings: SettingsOption = None,
    earlier: EarlierOption = None,
    retry: Annotated[bool, typer.Option("--retry", help="Try runs that failed again.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check every cell, list them with their settings, run nothing.")
    ] = False,
    tables: Annotated[bool, typer.Option("--tables", help="Make the tables and curves of what there is.")] = False,
    form: Annotated[
        Form | None, typer.Option("--format", "-f", help="With --tables: print this one instead of writing them all.")
    ] = None,
    compact: Annotated[
        Path | None,
        typer.Option("--compact", metavar="DIR", help="Write all numbers of all runs there, in one small file."),
    ] = None,
) -> None:
    """Run many trainings as one study: a grid, with seeds.

    A study that was stopped goes on where it was. Each run is a process of its own. One that fails is recorded, and the
    others go on. Watch them with isentrope watch.
    """
    if only and (tables or compact or form):
        raise typer.BadParameter("it says what to run; tables and the compact form have all cells", param_hint="--only")
    file = file if file.is_dir() else find_recipe(file)
    if file.suffix != ".toml":
        _check_read_only(file, out, tables, form, compact)
        _results(file, form, compact, earlier, out)
        return
    plan = _plan(file, settings or [])
    folder = out or Path("runs") / plan.name
    if dry_run:
        _dry(plan, folder, side_by_side, tuple(only or ()), _earlier(earlier))
    elif tables or compact or form:
        _results(folder, form, compact, earlier)
    else:
        from isentrope.study.run import How

        how = How(side_by_side, minutes, tuple(only or ()), retry, _earlier(earlier))
        words = [file, *(("--out", out) if out else ()), *(("--earlier", earlier) if earlier else ())]
        words += [word for setting in settings or [] for word in ("--set", setting)]
        _run(plan, folder, how, shlex.join(str(word) for word in words))


def _check_read_only(file: Path, out: Path | None, tables: bool, form: Form | None, compact: Path | None) -> None:
    """Of a study's folder or compact form only results are made."""
    if not (tables or compact or form):
        raise typer.BadParameter(
            f"{file} is not a .toml file; of a study's folder or compact form: --tables, --compact", param_hint="STUDY"
        )
    if out is not None and (compact or form):
        other = "--compact names the folder that it writes to" if compact else "--format prints and writes no files"
        raise typer.BadParameter(
            f"{other}; --out says where --tables writes: leave one of the two off", param_hint="--out"
        )


def _run(plan: Study, folder: Path, how: How, words: str) -> None:
    """`words` name the study on the command line."""
    from isentrope.study.queue import WAITING
    from isentrope.study.read import FAILED
    from isentrope.study.run import run_study
    from isentrope.study.show import Show

    show = Show()
    show.say(f"{plan.name}: folder {folder}; watch it with: {command('watch', folder)}")
    try:
        queue = run_study(plan, folder, how, show)
    except KeyboardInterrupt:
        show.say(f"to go on: {command('study')} {words}")
        raise
    show.say(
        f"to go on: {command('study')} {words}" if queue.of(WAITING) else f"tables: {command('study')} {words} --tables"
    )
    if failed := queue.of(FAILED):
        names = ", ".join(entry.job.name for entry in failed[:5]) + (" and others" if len(failed) > 5 else "")
        show.say(f"{len(failed)} failed ({names}): the .log beside each says how; --retry tries them again")
        raise typer.Exit(1)


def _plan(file: Path, settings: Sequence[str]) -> Study:
    from isentrope.study.plan import laid_over, read_plan

    return laid_over(read_plan(file), settings)


def _earlier(path: Path | None) -> StudyData | None:
    """What was run before, elsewhere. A study that has nothing there yet begins anew, and says so."""
    from isentrope.study.read import read_study

    if path is not None and not path.exists():
        typer.echo(f"--earlier {path}: nothing there, so nothing counts as done before", err=True)
        return None
    return read_study(path) if path is not None else None


def _dry(plan: Study, folder: Path, side_by_side: int, only: tuple[str, ...], earlier: StudyData | None) -> None:
    from rich.console import Console

    from isentrope.study.jobs import make_jobs
    from isentrope.study.run import check_begun, done_before
    from isentrope.study.show import show_plan

    jobs = make_jobs(plan, folder, only)
    check_begun(jobs)
    if earlier is not None:
        done_before(jobs, earlier)  # refuses other settings
    show_plan(plan, jobs, folder, side_by_side, Console(), earlier)


def _results(
    folder: Path, form: Form | None, compact: Path | None, earlier: Path | None, out: Path | None = None
) -> None:
    from isentrope.core.text import plain
    from isentrope.study.plan import results_folder
    from isentrope.study.read import left_behind, merged, read_study, write_over
    from isentrope.study.results import render, write_results

    data = read_study(folder)
    before = _earlier(earlier)
    if before is not None and earlier is not None:
        data = merged(data, before)
        if missing := left_behind(data, before, earlier):
            typer.echo(f"{missing}; the study file does not name them", err=True)
    if compact is not None:
        typer.echo(str(write_over(data, compact)))
    elif form is not None:
        typer.echo(plain(render(data, form.value)), nl=False)
    else:
        typer.echo(plain(render(data, "text")), nl=False)
        paths = write_results(data, out or results_folder(folder, data.name))
        for path in paths[:_NAMED_FILES]:
            typer.echo(str(path), err=True)
        if len(paths) > _NAMED_FILES:
            typer.echo(f"and {len(paths) - _NAMED_FILES} curves in {paths[0].parent}", err=True)
