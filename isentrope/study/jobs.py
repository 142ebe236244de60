"""The jobs of a study: one job for each warm-up, then one for each cell and seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from isentrope.config.load import load_config
from isentrope.config.schema import RunConfig
from isentrope.core.errors import ConfigError, TaskError
from isentrope.engines.registry import check_training
from isentrope.methods.options import option_problems
from isentrope.study.cells import Cell
from isentrope.study.plan import WARMUP, Study, run_folder
from isentrope.worlds.registry import world_options


@dataclass(frozen=True)
class Job:
    name: str  # "grpo/seed-0"
    folder: Path
    command: tuple[str, ...]  # for isentrope: train RECIPE --out ...
    steps: int
    needs: str = ""  # the name of the job that has to be done before
    settings: tuple[str, ...] = ()
    config: RunConfig = field(default_factory=RunConfig)  # what the settings come to


def make_jobs(study: Study, out: Path, only: Sequence[str] = ()) -> list[Job]:
    """All jobs: warm-ups, then by rank, and in a rank the first seed of every cell, then the second: a study that is
    cut short has as many seeds everywhere. One ConfigError lists what is wrong with any cell's settings."""
    unknown = [name for name in only if all(cell.name != name for cell in study.cells)]
    if unknown:
        names = ", ".join(cell.name for cell in study.cells)
        raise ConfigError(f"--only {unknown[0]}: the study has no such cell; there are {names}")
    cells = [cell for cell in study.cells if not only or cell.name in only]
    problems: dict[str, list[str]] = {}
    jobs: list[Job] = []
    for name in dict.fromkeys(cell.warmup for cell in cells if cell.warmup):
        warmup, folder = study.warmups[name], out / WARMUP / name
        config = _resolved(warmup, f"warmups.{name}", problems)
        if config is not None:
            command = _command("sft", warmup.recipe, folder, warmup.settings)
            jobs.append(Job(f"{WARMUP}/{name}", folder, command, 0, "", warmup.settings, config))
    checked = {cell.name: _resolved(cell, cell.name, problems) for cell in cells}
    turns = [(cell.rank, number, cell, seed) for cell in cells for number, seed in enumerate(cell.seeds)]
    for _, _, cell, seed in sorted(turns, key=lambda turn: turn[:2]):
        if (config := checked[cell.name]) is not None:
            jobs.append(_job(cell, seed, config, out))
    if problems:
        told = [f"{study.file or study.name}: cells that cannot be run"]
        for text, names in problems.items():
            told.append(f"- {', '.join(names[:4])}{' and others' if len(names) > 4 else ''}: {text}")
        raise ConfigError("\n".join(told))
    return jobs


def _job(cell: Cell, seed: int, config: RunConfig, out: Path) -> Job:
    folder, settings = run_folder(out, cell.name, seed), (*cell.settings, f"run.seed={seed}")
    config, needs = replace(config, run=replace(config.run, seed=seed)), ""
    if cell.warmup:
        path, here = (out / WARMUP / cell.warmup).resolve(), Path.cwd()
        # from here where it lies below, so that a study that is moved along with its surroundings goes on
        model = str(path.relative_to(here) if path.is_relative_to(here) else path)
        settings, needs = (*settings, f"policy.model={model}"), f"{WARMUP}/{cell.warmup}"
        config = replace(config, policy=replace(config.policy, model=model))
    command = _command("train", cell.recipe, folder, settings)
    return Job(f"{cell.name}/{folder.name}", folder, command, config.run.steps, needs, settings, config)


def _command(what: str, recipe: Path | None, folder: Path, settings: Sequence[str]) -> tuple[str, ...]:
    sets = [part for setting in settings for part in ("--set", setting)]
    return (what, *([str(recipe)] if recipe else []), "--out", str(folder), "--resume", *sets)


def _resolved(of: Cell, name: str, problems: dict[str, list[str]]) -> RunConfig | None:
    try:
        config = load_config(of.recipe, of.settings, option_problems)
        check_training(config)
        world_options(config.task.world)
        return config
    except (ConfigError, TaskError) as error:
        problems.setdefault(str(error), []).append(name)
        return None
