"""`isentrope analyze`: recomputes the metrics of a run from its stored episodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from isentrope.cli.completion import complete_run
from isentrope.core.text import plain


def analyze(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.", autocompletion=complete_run)],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the numbers there, as lines of JSON.")
    ] = None,
    judge: Annotated[
        str | None,
        typer.Option("--judge", metavar="URL", help="Have a model judge episodes: an OpenAI-compatible server's /v1."),
    ] = None,
    judge_model: Annotated[
        str, typer.Option("--judge-model", metavar="NAME", help="The model's name there; empty: the first it lists.")
    ] = "",
    judge_episodes: Annotated[int, typer.Option("--judge-episodes", min=1, help="How many episodes to judge.")] = 32,
    judge_key_env: Annotated[
        str,
        typer.Option("--judge-key-env", metavar="NAME", help="Environment variable with the key, as engine.key_env."),
    ] = "auto",
) -> None:
    """Compute a run's numbers again from its stored episodes.

    They are compared with what the run wrote. Exit code 1 if a number differs.
    """
    from isentrope.metrics import recompute

    found = recompute.analyze(run)
    records = found.records
    for line in recompute.lines(found):
        typer.echo(plain(line))
    if judge is not None:
        from isentrope.metrics.judge import Judge, judge_run

        verdict = judge_run(run, Judge(judge, judge_model, judge_key_env), judge_episodes)
        for line in verdict.lines():
            typer.echo(plain(line))
        records = verdict.added_to(records)
    if out is not None:
        from isentrope.runs.atomic import write_atomically

        write_atomically(out, "".join(json.dumps(record) + "\n" for record in records).encode())
        typer.echo(plain(f"wrote {out}"))
    if found.differing:
        raise typer.Exit(1)
