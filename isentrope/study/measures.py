"""What is measured of a run; each function gives None where the run cannot tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median

from isentrope.study.plan import Plan
from isentrope.study.read import StudyRun
from isentrope.study.statistics import best, converged, eruptions, spread, steps_to, tokens_by

ENTROPY = "entropy/token"
_NOT_TRAINING = ("seconds/evaluate", "seconds/checkpoint", "seconds/store")  # what a method does not change


def success(run: StudyRun, plan: Plan) -> tuple[tuple[int, ...], tuple[float, ...]]:
    return run.series(f"eval/{plan.split}/success")


def tokens_per_step(run: StudyRun) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Tokens that were sampled at each step, those of groups that were played and dropped included."""
    groups, size = (run.config.get(f"rollout.{name}") for name in ("groups", "group_size"))
    if not isinstance(groups, int) or not isinstance(size, int):
        return (), ()
    dropped = dict(zip(*run.series("resample/dropped"), strict=True))
    steps, tokens = run.series("episode/tokens")
    return steps, tuple(each * size * (groups + dropped.get(at, 0.0)) for at, each in zip(steps, tokens, strict=True))


def step_seconds(run: StudyRun) -> float | None:
    """Seconds that a training step takes: the median over steps, evaluations, checkpoints and storing left out."""
    rows = [row for row in run.timings if row.get("kind", "train") == "train"]
    return median(_seconds(row, _NOT_TRAINING) for row in rows) if rows else None


def all_seconds(run: StudyRun) -> float | None:
    return sum(_seconds(row) for row in run.timings) if run.timings else None


def _seconds(row: Mapping[str, object], but: Sequence[str] = ()) -> float:
    """Of all stages of a row; they follow each other."""
    found = [value for key, value in row.items() if key.startswith("seconds/") and key not in but]
    return sum(float(value) for value in found if isinstance(value, int | float))


def best_success(run: StudyRun, plan: Plan) -> float | None:
    return best(*success(run, plan))


def converged_success(run: StudyRun, plan: Plan) -> float | None:
    return converged(*success(run, plan), run.steps, plan.converged)


def first_success(run: StudyRun, plan: Plan) -> float | None:
    steps, values = success(run, plan)
    return values[0] if steps and steps[0] == 0 else None


def steps_to_threshold(run: StudyRun, plan: Plan) -> float | None:
    return steps_to(*success(run, plan), plan.threshold)


def tokens_to_threshold(run: StudyRun, plan: Plan) -> float | None:
    reached = steps_to(*success(run, plan), plan.threshold)
    return None if reached is None else tokens_by(*tokens_per_step(run), reached)


def late(key: str) -> Callable[[StudyRun, Plan], float | None]:
    """The mean over the last part of the run."""
    return lambda run, plan: converged(*run.series(key), run.steps, plan.converged)


def entropy_spread(name: str) -> Callable[[StudyRun, Plan], float | None]:
    def of(run: StudyRun, _: Plan) -> float | None:
        found = spread(run.series(ENTROPY)[1])
        return None if found is None else float(getattr(found, name))

    return of


def entropy_eruptions(name: str) -> Callable[[StudyRun, Plan], float | None]:
    def of(run: StudyRun, _: Plan) -> float | None:
        steps, values = run.series(ENTROPY)
        return float(getattr(eruptions(steps, values), name)) if steps else None

    return of


def mean_entropy(run: StudyRun, _: Plan) -> float | None:
    values = run.series(ENTROPY)[1]
    return fmean(values) if values else None


def all_tokens(run: StudyRun, _: Plan) -> float | None:
    tokens = tokens_per_step(run)[1]
    return sum(tokens) if tokens else None
