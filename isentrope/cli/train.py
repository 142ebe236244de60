"""`isentrope train`, `isentrope sft` and `isentrope rft`."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import typer

from isentrope.cli.options import (
    FromStepOption,
    OutFolder,
    RecipeArgument,
    ResumeOption,
    SetOption,
    TrustOption,
    recipe_or_recorded,
    say_loading_by,
)
from isentrope.config.schema import RunConfig
from isentrope.core.command import command
from isentrope.core.errors import ConfigError, RunError
from isentrope.core.signals import Interrupted
from isentrope.engines.registry import check_training
from isentrope.runs.layout import recorded_config

_RUNS = Path("runs")


def train(
    recipe: RecipeArgument = None,
    *,
    out: OutFolder = None,
    sets: SetOption = None,
    resume: ResumeOption = False,
    from_step: FromStepOption = None,
    trust: TrustOption = False,
) -> None:
    """Train a policy by reinforcement learning."""
    out = _folder(out, recipe, resume, "train")
    config = _settings(recipe, out, sets, resume, trust, from_step)
    from isentrope.loop.train import train as run_training

    with _resumable("train", recipe, out, sets, trust):
        run_training(config, out, resume=resume, from_step=from_step)


def sft(
    recipe: RecipeArgument = None,
    *,
    out: OutFolder = None,
    sets: SetOption = None,
    resume: ResumeOption = False,
    from_step: FromStepOption = None,
    trust: TrustOption = False,
) -> None:
    """Warm a policy up: imitate games of the world's expert."""
    out = _folder(out, recipe, resume, "sft")
    config = _settings(recipe, out, sets, resume, trust, from_step)
    from isentrope.loop.imitate import warm_up

    with _resumable("sft", recipe, out, sets, trust):
        warm_up(config, out, resume=resume, from_step=from_step)


def rft(
    recipe: RecipeArgument = None,
    *,
    out: OutFolder = None,
    sets: SetOption = None,
    resume: ResumeOption = False,
    from_step: FromStepOption = None,
    trust: TrustOption = False,
) -> None:
    """Imitate the policy's own successes.

    It plays, and learns from the games it solved.
    """
    for change in sets or ():
        key, _, value = change.partition("=")
        if key.strip() == "sft.source" and value.strip("\"' ") != "own":
            raise ConfigError(
                f"--set {change}: isentrope rft imitates the policy's own games; for an expert's use isentrope sft"
            )
    out = _folder(out, recipe, resume, "rft")
    config = _settings(recipe, out, [*(sets or ()), "sft.source=own"], resume, trust, from_step)
    from isentrope.loop.imitate import warm_up

    with _resumable("rft", recipe, out, sets, trust):
        warm_up(config, out, resume=resume, from_step=from_step)


def _folder(out: Path | None, recipe: Path | None, resume: bool, kind: str) -> Path:
    """The run folder: without --out a new one below runs, named after the recipe, which is said."""
    if out is not None:
        return out
    name = (recipe.stem if recipe is not None else "first") + ("" if kind == "train" else f"-{kind}")
    free = next(path for n in count(1) if not os.path.lexists(path := _RUNS / (name if n == 1 else f"{name}-{n}")))
    if resume:
        begun = sorted(_RUNS.glob("*"), key=lambda path: path.stat().st_mtime, reverse=True)
        last = next((path for path in begun if recorded_config(path) is not None), free)
        raise ConfigError(f"--resume: say which run goes on, with --out: {command(kind, '--resume', '--out', last)}")
    typer.echo(f"no --out was given, so the run goes to {free}: as with --out {free}", err=True)
    return free


@contextmanager
def _resumable(kind: str, recipe: Path | None, out: Path, sets: Sequence[str] | None, trust: bool) -> Generator[None]:
    """A run that a signal ends says by which words it goes on: those that began it."""
    try:
        yield
    except Interrupted:
        words = [kind, *([recipe] if recipe else []), "--out", out]
        words += [word for change in sets or () for word in ("--set", change)]
        typer.echo(f"to go on: {command(*words, *(['--trust'] if trust else []), '--resume')}", err=True)
        raise


def _settings(
    recipe: Path | None,
    out: Path,
    sets: Sequence[str] | None,
    resume: bool,
    trust: bool,
    from_step: int | None = None,
) -> RunConfig:
    """The recipe's; those of the run in `out` where it is to be resumed without one."""
    if from_step is not None and not resume:
        raise ConfigError(f"--from-step {from_step} says where a run goes on: add --resume")
    if resume and recipe is None and not sets and recorded_config(out) is None:
        raise RunError(f"nothing to resume at {out}: no run was begun there; give a recipe to begin one")
    recorded = out if resume else None
    say_loading_by(recipe, recorded, sets)
    config = recipe_or_recorded(recipe, recorded, sets, trust)
    check_training(config)
    return config
