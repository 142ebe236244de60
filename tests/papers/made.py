"""Studies made by hand, with known answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from isentrope.papers.select import model_of
from isentrope.study.cells import Cell
from isentrope.study.plan import Plan, Study
from isentrope.study.read import DONE, StudyData, StudyRun

SEEDS = (0, 1, 2, 3, 4)
SIX = (*SEEDS, 5)  # the fewest seeds that decide a share
# what differs from seed to seed, in spreads; the second is what the runs of a method differ by from the others
_SHARED, _OWN = (0.9, -1.1, 0.4, -0.6, 0.4), (-0.5, 1.3, -1.1, 0.7, -0.4)


def shaken(level: float, spread: float, seed: int, own: bool = True) -> float:
    """A level with what the seed adds to it: sums to about 0 over the seeds."""
    return level + spread * ((_OWN if own else _SHARED)[seed % 5])


def made_run(
    seed: int,
    algorithm: str = "grpo",
    method: str = "none",
    variant: str = "full",
    steps: int = 100,
    success: float | None = None,
    first: float | None = None,
    train: Mapping[str, Sequence[float | None] | float] | None = None,
    timings: Mapping[str, float] | None = None,
    status: str = DONE,
    begun: str = "2030-01-01T00:00:00Z",
    **tags: str,
) -> StudyRun:
    """A run whose metrics are constant or given step by step (None: not measured there). `first`: success at step 0."""
    told = {"algorithm": algorithm, "method": method} | ({"variant": variant} if variant != "full" else {}) | tags
    rows: list[dict[str, object]] = [{"step": step, "kind": "train"} for step in range(1, steps + 1)]
    for key, values in (train or {}).items():
        for place, row in enumerate(rows):
            value = values if isinstance(values, int | float) else values[place]
            if value is not None:
                row[key] = value
    evals = [{"step": step, "kind": "eval", "eval/unseen/success": success} for step in range(0, steps + 1, 10)]
    if first is not None:
        evals[0]["eval/unseen/success"] = first
    return StudyRun(
        cell="-".join(told.values()),
        tags=told,
        seed=seed,
        status=status,
        config={"run.steps": steps},
        train=tuple(rows),
        evals=tuple(evals) if success is not None else (),
        timings=tuple({"step": row["step"], "kind": "train", **(timings or {})} for row in rows),
        begun=begun,
    )


def of_model(runs: Iterable[StudyRun], model: str, parameters: int = 0, start: str = "") -> list[StudyRun]:
    """The same runs, made with a model."""
    return [
        replace(run, config={**run.config, "policy.model": model}, parameters=parameters, start=start) for run in runs
    ]


def made_study(runs: Iterable[StudyRun], name: str = "made") -> StudyData:
    runs = tuple(runs)
    tags = {run.cell: run.tags for run in runs}
    seeds = {cell: tuple(sorted({run.seed for run in runs if run.cell == cell})) for cell in tags}
    cells = tuple(Cell(cell, tags[cell], (), seeds[cell]) for cell in tags)
    return StudyData(Study(Plan(name=name), cells), runs)


def probed(value: float, steps: int, every: int = 10) -> list[float | None]:
    return [value if step == 1 or step % every == 0 else None for step in range(1, steps + 1)]


def hills(steps: int, onsets: Sequence[int], height: float, low: float = 0.4, wide: int = 12) -> list[float]:
    """An entropy curve: from 1 down to `low` in 30 steps, then hills, each up and down in `wide` steps a side."""
    curve = [max(low, 1 - (1 - low) * step / 30) for step in range(1, steps + 1)]
    for onset in onsets:
        for step in range(onset, min(steps, onset + 2 * wide)):
            up = (step - onset + 1) / wide
            curve[step - 1] = low + height * max(0.0, up if up <= 1 else 2 - up)
    return curve


def learnt(steps: int, low: float = 0.2, high: float = 0.5) -> list[float]:
    """Success in training that rises over the first half of the steps, and no further."""
    return [low + (high - low) * min(1.0, 2 * step / steps) for step in range(1, steps + 1)]


def with_train(run: StudyRun, key: str, values: Sequence[float | None] | float) -> StudyRun:
    """The same run with another course of a metric; None: not measured there."""
    told = [values] * len(run.train) if isinstance(values, int | float) else values
    rows = [{**row, key: value} for row, value in zip(run.train, told, strict=True)]
    return replace(run, train=tuple({name: one for name, one in row.items() if one is not None} for row in rows))


def without(run: StudyRun, key: str) -> StudyRun:
    """The same run without a metric of its training."""
    return with_train(run, key, [None] * len(run.train))


def solving(run: StudyRun, success: float) -> StudyRun:
    """The same run with this success in all of its evaluations."""
    return replace(run, evals=tuple({**row, "eval/unseen/success": success} for row in run.evals))


def in_setting(study: StudyData, **where: str) -> StudyData:
    """The same runs, played elsewhere: tags that say where are added."""
    name = "-".join(where.values())
    runs = [replace(run, cell=f"{run.cell}-{name}", tags={**run.tags, **where}) for run in study.runs]
    return made_study(runs, study.name)


def label(model: str) -> str:
    """How a model is told that did not record its size."""
    run = of_model([made_run(0)], model)[0]
    return model_of(made_study([run]), run)


POCKET = label("pocket")
