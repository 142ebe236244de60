"""Measures of a run in a study, and their titles in tables. A measure is None where the run did not record it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean, median

from isentrope.analysis.success import NOT_TRAINING, Points, Window, best, converged, seconds_of, steps_to, tokens_by
from isentrope.diagnosis.phases import find_phases
from isentrope.study.plan import Plan
from isentrope.study.read import StudyRun

ENTROPY = "entropy/token"


def variance(values: Sequence[float]) -> float | None:
    """How much a curve moves, trends included; None with fewer than two numbers."""
    if len(values) < 2:
        return None
    mean = fmean(values)
    return fmean((value - mean) ** 2 for value in values)


def tokens_per_step(run: StudyRun) -> Points:
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
    return median(seconds_of(row, NOT_TRAINING) for row in rows) if rows else None


def all_seconds(run: StudyRun) -> float | None:
    return sum(seconds_of(row) for row in run.timings) if run.timings else None


def success(run: StudyRun, plan: Plan) -> Points:
    return run.series(f"eval/{plan.split}/success")


def converged_success(run: StudyRun, plan: Plan) -> float | None:
    return converged(*success(run, plan), run.steps, Window(plan.converged))


def first_success(run: StudyRun, plan: Plan) -> float | None:
    steps, values = success(run, plan)
    return values[0] if steps and steps[0] == 0 else None


def steps_to_threshold(run: StudyRun, plan: Plan) -> int | None:
    return steps_to(*success(run, plan), plan.threshold)


def tokens_to_threshold(run: StudyRun, plan: Plan) -> float | None:
    reached = steps_to_threshold(run, plan)
    return None if reached is None else tokens_by(*tokens_per_step(run), reached)


Of = Callable[[StudyRun, Plan], float | None]


def late(key: str) -> Of:
    """The mean over the last part of the run."""
    return lambda run, plan: converged(*run.series(key), run.steps, Window(plan.converged))


def of_values(key: str, number: Callable[[Sequence[float]], float | None], least: int = 1) -> Of:
    """A number of all values of a metric, where there are at least so many."""
    return lambda run, _: number(values) if len(values := run.series(key)[1]) >= least else None


@lru_cache(maxsize=16)  # several measures of a run ask for them
def eruptions(steps: tuple[int, ...], entropies: tuple[float, ...]) -> tuple[float, ...]:
    """The amplitudes, in nats, of the eruptions that the phase detector finds in an entropy curve."""
    return tuple(rise.amplitude for rise in find_phases(steps, entropies).eruptions)


def of_eruptions(number: Callable[[Sequence[float]], float]) -> Of:
    """A number of the amplitudes of a run's eruptions."""
    return lambda run, _: number(eruptions(*points)) if (points := run.series(ENTROPY))[0] else None


@dataclass(frozen=True)
class Measure:
    key: str
    title: str
    meaning: str
    of: Of
    places: int = 0  # after the point
    scale: float = 1.0  # what it is multiplied by where it is shown
    counted: bool = False  # a seed may never get there: the median over seeds, and how many did

    @property
    def most(self) -> float:
        """No value is above it, and none below 0."""
        return 1.0 if self.scale == 100 else math.inf


def measured(run: StudyRun, plan: Plan) -> dict[str, float]:
    """All measures that the run has."""
    found = {measure.key: measure.of(run, plan) for measures in MEASURES.values() for measure in measures}
    return {key: value for key, value in found.items() if value is not None}


def _late(key: str, title: str, meaning: str, metric: str, places: int) -> Measure:
    """A share in the last part of the run, in percent."""
    return Measure(key, title, f"{meaning}, late, percent", late(metric), places, 100)


# by the table that shows them
MEASURES = {
    "results": (
        Measure("start", "Start", "success before the first step, percent", first_success, 1, 100),
        Measure("succ_best", "Succ.*", "success of a run's best evaluation after step 0, percent",
                lambda run, plan: best(*success(run, plan)), 1, 100),
        Measure("succ", "Succ.", "mean success of the evaluations in the last part of a run, percent",
                converged_success, 1, 100),
        Measure("steps_to", "Steps to", "first evaluated step with success at the threshold: median over seeds",
                steps_to_threshold, counted=True),
        Measure("tokens_to", "Tokens to", "millions of tokens sampled by then: median over seeds",
                tokens_to_threshold, 3, 1e-6, counted=True),
    ),
    "entropy": (
        Measure("entropy", "Entropy", "mean token entropy over all steps, nats", of_values(ENTROPY, fmean), 4),
        Measure("entropy_late", "Late", "mean token entropy in the last part, nats", late(ENTROPY), 4),
        Measure("entropy_variance", "Variance", "variance of the token entropy over the steps, nats² · 10⁻³",
                of_values(ENTROPY, variance), 2, 1e3),
        Measure("entropy_range", "Range", "largest minus smallest token entropy, nats",
                of_values(ENTROPY, lambda values: max(values) - min(values), least=2), 4),
        Measure("eruptions", "Eruptions", "eruptions of the token entropy in a run",
                of_eruptions(lambda heights: float(len(heights))), 1),
        Measure("amplitude", "Amplitude", "largest eruption, nats; 0 for a run without",
                of_eruptions(lambda heights: max(heights, default=0.0)), 4),
    ),
    "degeneracy": (
        _late("duplication", "Duplicates", "sentences that stand more than once in their response",
              "degeneracy/duplication", 2),
        _late("loops", "Loops", "responses in which a stretch is repeated in a row", "degeneracy/loops", 2),
        _late("hallucinated", "Made up", "actions that name what is not there", "degeneracy/hallucinated", 2),
        _late("repeated", "Repeated", "turns with the action of the turn before", "degeneracy/repeated_actions", 1),
        _late("valid", "Valid", "turns whose response was a valid action", "valid_ratio", 1),
        Measure("response_tokens", "Tokens", "tokens of a response, late", late("response/tokens"), 1),
    ),
    "cost": (
        Measure("step_seconds", "s/step", "seconds of a training step, median", lambda run, _: step_seconds(run), 2),
        Measure("seconds", "Seconds", "seconds of a run, evaluations included", lambda run, _: all_seconds(run)),
        Measure("tokens", "Tokens", "millions of tokens sampled in training",
                lambda run, _: sum(tokens) if (tokens := tokens_per_step(run)[1]) else None, 3, 1e-6),
    ),
}  # fmt: skip
