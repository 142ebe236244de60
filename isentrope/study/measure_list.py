"""The measures of a study, and what each is called in a table."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from isentrope.study import measures as m
from isentrope.study.plan import Plan
from isentrope.study.read import StudyRun


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
    Measure("start", "Start", "success before the first step, percent", m.first_success, 100, places=1),
    Measure(
        "succ_best", "Succ.*", "success of a run's best evaluation after step 0, percent", m.best_success, 100, places=1
    ),
    Measure(
        "succ",
        "Succ.",
        "mean success of the evaluations in the last part of a run, percent",
        m.converged_success,
        100,
        places=1,
    ),
    Measure(
        "steps_to",
        "Steps to",
        "first evaluated step with success at the threshold: median over seeds",
        m.steps_to_threshold,
        counted=True,
    ),
    Measure(
        "tokens_to",
        "Tokens to",
        "millions of tokens sampled by then: median over seeds",
        m.tokens_to_threshold,
        1e-6,
        places=3,
        counted=True,
    ),
    Measure("entropy", "Entropy", "mean token entropy over all steps, nats", m.mean_entropy, places=4, table="entropy"),
    Measure(
        "entropy_late",
        "Late",
        "mean token entropy in the last part, nats",
        m.late(m.ENTROPY),
        places=4,
        table="entropy",
    ),
    Measure(
        "entropy_variance",
        "Variance",
        "variance of the token entropy over the steps, nats² · 10⁻³",
        m.entropy_spread("variance"),
        1e3,
        places=2,
        table="entropy",
    ),
    Measure(
        "entropy_range",
        "Range",
        "largest minus smallest token entropy, nats",
        m.entropy_spread("range"),
        places=4,
        table="entropy",
    ),
    Measure(
        "eruptions",
        "Eruptions",
        "eruptions of the token entropy in a run",
        m.entropy_eruptions("count"),
        places=1,
        table="entropy",
    ),
    Measure(
        "amplitude",
        "Amplitude",
        "largest eruption, nats; 0 for a run without",
        m.entropy_eruptions("largest"),
        places=4,
        table="entropy",
    ),
    Measure(
        "duplication",
        "Duplicates",
        "sentences that stand more than once in their response, late, percent",
        m.late("degeneracy/duplication"),
        100,
        places=2,
        table="degeneracy",
    ),
    Measure(
        "loops",
        "Loops",
        "responses in which a stretch is repeated in a row, late, percent",
        m.late("degeneracy/loops"),
        100,
        places=2,
        table="degeneracy",
    ),
    Measure(
        "hallucinated",
        "Made up",
        "actions that name what is not there, late, percent",
        m.late("degeneracy/hallucinated"),
        100,
        places=2,
        table="degeneracy",
    ),
    Measure(
        "repeated",
        "Repeated",
        "turns with the action of the turn before, late, percent",
        m.late("degeneracy/repeated_actions"),
        100,
        places=1,
        table="degeneracy",
    ),
    Measure(
        "valid",
        "Valid",
        "turns whose response was a valid action, late, percent",
        m.late("valid_ratio"),
        100,
        places=1,
        table="degeneracy",
    ),
    Measure(
        "response_tokens",
        "Tokens",
        "tokens of a response, late",
        m.late("response/tokens"),
        places=1,
        table="degeneracy",
    ),
    Measure(
        "step_seconds",
        "s/step",
        "seconds of a training step, median",
        lambda run, _: m.step_seconds(run),
        places=2,
        table="cost",
    ),
    Measure(
        "seconds",
        "Seconds",
        "seconds of a run, evaluations included",
        lambda run, _: m.all_seconds(run),
        places=0,
        table="cost",
    ),
    Measure("tokens", "Tokens", "millions of tokens sampled in training", m.all_tokens, 1e-6, places=3, table="cost"),
)
