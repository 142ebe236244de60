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


def success(run: StudyRun, plan: Plan) -> Points:
    return run.series(f"eval/{plan.split}/success")


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


def best_success(run: StudyRun, plan: Plan) -> float | None:
    return best(*success(run, plan))


def converged_success(run: StudyRun, plan: Plan) -> float | None:
    return converged(*success(run, plan), run.steps, Window(plan.converged))


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
    return lambda run, plan: converged(*run.series(key), run.steps, Window(plan.converged))


def entropy_variance(run: StudyRun, _: Plan) -> float | None:
    return variance(run.series(ENTROPY)[1])


def entropy_range(run: StudyRun, _: Plan) -> float | None:
    values = run.series(ENTROPY)[1]
    return max(values) - min(values) if len(values) > 1 else None


@lru_cache(maxsize=16)  # several measures of a run ask for them
def eruptions(steps: tuple[int, ...], entropies: tuple[float, ...]) -> tuple[float, ...]:
    """The amplitudes, in nats, of the eruptions that the phase detector finds in an entropy curve."""
    return tuple(rise.amplitude for rise in find_phases(steps, entropies).eruptions)


def eruption_count(run: StudyRun, _: Plan) -> float | None:
    steps, values = run.series(ENTROPY)
    return float(len(eruptions(steps, values))) if steps else None


def largest_eruption(run: StudyRun, _: Plan) -> float | None:
    """In nats; 0 if there was none."""
    steps, values = run.series(ENTROPY)
    return max(eruptions(steps, values), default=0.0) if steps else None


def mean_entropy(run: StudyRun, _: Plan) -> float | None:
    values = run.series(ENTROPY)[1]
    return fmean(values) if values else None


def all_tokens(run: StudyRun, _: Plan) -> float | None:
    tokens = tokens_per_step(run)[1]
    return sum(tokens) if tokens else None


@dataclass(frozen=True)
class Measure:
    key: str
    title: str
    meaning: str
    of: Callable[[StudyRun, Plan], float | None]
    scale: float = 1.0  # what it is multiplied by where it is shown
    places: int = 0  # after the point
    counted: bool = False  # a seed may never get there: the median over seeds, and how many did
    table: str = "results"  # the table that shows it

    @property
    def most(self) -> float:
        """No value is above it, and none below 0."""
        return 1.0 if self.scale == 100 else math.inf


def measured(run: StudyRun, plan: Plan) -> dict[str, float]:
    """All measures that the run has."""
    found = {measure.key: measure.of(run, plan) for measure in MEASURES}
    return {key: value for key, value in found.items() if value is not None}


MEASURES = (
    Measure("start", "Start", "success before the first step, percent", first_success, 100, places=1),
    Measure(
        "succ_best", "Succ.*", "success of a run's best evaluation after step 0, percent", best_success, 100, places=1
    ),
    Measure(
        "succ",
        "Succ.",
        "mean success of the evaluations in the last part of a run, percent",
        converged_success,
        100,
        places=1,
    ),
    Measure(
        "steps_to",
        "Steps to",
        "first evaluated step with success at the threshold: median over seeds",
        steps_to_threshold,
        counted=True,
    ),
    Measure(
        "tokens_to",
        "Tokens to",
        "millions of tokens sampled by then: median over seeds",
        tokens_to_threshold,
        1e-6,
        places=3,
        counted=True,
    ),
    Measure("entropy", "Entropy", "mean token entropy over all steps, nats", mean_entropy, places=4, table="entropy"),
    Measure(
        "entropy_late", "Late", "mean token entropy in the last part, nats", late(ENTROPY), places=4, table="entropy"
    ),
    Measure(
        "entropy_variance",
        "Variance",
        "variance of the token entropy over the steps, nats² · 10⁻³",
        entropy_variance,
        1e3,
        places=2,
        table="entropy",
    ),
    Measure(
        "entropy_range", "Range", "largest minus smallest token entropy, nats", entropy_range, places=4, table="entropy"
    ),
    Measure(
        "eruptions", "Eruptions", "eruptions of the token entropy in a run", eruption_count, places=1, table="entropy"
    ),
    Measure(
        "amplitude",
        "Amplitude",
        "largest eruption, nats; 0 for a run without",
        largest_eruption,
        places=4,
        table="entropy",
    ),
    Measure(
        "duplication",
        "Duplicates",
        "sentences that stand more than once in their response, late, percent",
        late("degeneracy/duplication"),
        100,
        places=2,
        table="degeneracy",
    ),
    Measure(
        "loops",
        "Loops",
        "responses in which a stretch is repeated in a row, late, percent",
        late("degeneracy/loops"),
        100,
        places=2,
        table="degeneracy",
    ),
    Measure(
        "hallucinated",
        "Made up",
        "actions that name what is not there, late, percent",
        late("degeneracy/hallucinated"),
        100,
        places=2,
        table="degeneracy",
    ),
    Measure(
        "repeated",
        "Repeated",
        "turns with the action of the turn before, late, percent",
        late("degeneracy/repeated_actions"),
        100,
        places=1,
        table="degeneracy",
    ),
    Measure(
        "valid",
        "Valid",
        "turns whose response was a valid action, late, percent",
        late("valid_ratio"),
        100,
        places=1,
        table="degeneracy",
    ),
    Measure(
        "response_tokens", "Tokens", "tokens of a response, late", late("response/tokens"), places=1, table="degeneracy"
    ),
    Measure(
        "step_seconds",
        "s/step",
        "seconds of a training step, median",
        lambda run, _: step_seconds(run),
        places=2,
        table="cost",
    ),
    Measure(
        "seconds",
        "Seconds",
        "seconds of a run, evaluations included",
        lambda run, _: all_seconds(run),
        places=0,
        table="cost",
    ),
    Measure("tokens", "Tokens", "millions of tokens sampled in training", all_tokens, 1e-6, places=3, table="cost"),
)
