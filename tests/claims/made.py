"""Studies made by hand, with known answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from isentrope.study.cells import Cell
from isentrope.study.plan import Plan, Study
from isentrope.study.read import DONE, StudyData, StudyRun

SEEDS = (0, 1, 2, 3, 4)
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
    train: Mapping[str, Sequence[float | None] | float] | None = None,
    timings: Mapping[str, float] | None = None,
    status: str = DONE,
    begun: str = "2030-01-01T00:00:00Z",
    **tags: str,
) -> StudyRun:
    """A run whose metrics are constant or given step by step (None: not measured there)."""
    told = {"algorithm": algorithm, "method": method} | ({"variant": variant} if variant != "full" else {}) | tags
    rows: list[dict[str, object]] = [{"step": step, "kind": "train"} for step in range(1, steps + 1)]
    for key, values in (train or {}).items():
        for place, row in enumerate(rows):
            value = values if isinstance(values, int | float) else values[place]
            if value is not None:
                row[key] = value
    evals = [{"step": step, "kind": "eval", "eval/unseen/success": success} for step in range(0, steps + 1, 10)]
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
