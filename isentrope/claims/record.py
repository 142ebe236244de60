"""What a claim is, and what is found of it. Everything here is frozen: a rule is a record that can be digested."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from isentrope.study.read import StudyRun


class Verdict(StrEnum):
    holds = "holds"
    fails = "does not hold"
    open = "undecided"


@dataclass(frozen=True)
class Select:
    """Which runs, by their tags. A tuple of values means any of them."""

    algorithm: str | tuple[str, ...] = "grpo"
    method: str = "none"
    variant: str = "full"
    alpha: str = "0.1"

    def words(self) -> str:
        names = (self.algorithm,) if isinstance(self.algorithm, str) else self.algorithm
        text = " or ".join(name.upper() if name != "gigpo" else "GiGPO" for name in names)
        if self.method != "none":
            text += f" with {self.method}"
        if self.variant != "full":
            text += f" ({self.variant})"
        return text + (f", α = {self.alpha}" if self.method == "seal" else "")


Number = Callable[..., float | None]  # of a run and options


@dataclass(frozen=True)
class Measure:
    """One number of a run: a named function with its options. None where the run cannot tell."""

    function: Number
    words: str
    keys: tuple[str, ...]  # of docs/metrics.md
    options: tuple[tuple[str, float | str], ...] = ()

    def __call__(self, run: StudyRun) -> float | None:
        return self.function(run, **dict(self.options))


Fitness = Callable[[StudyRun], str | None]  # why a run cannot speak to the claim, or None
Ground = Callable[[Sequence[float]], str | None]  # why the controls' numbers leave no room for an effect, or None


@dataclass(frozen=True)
class Part:
    """One comparison, with its numbers.

    The claim says that the effect is above `border` and at least `least` (below and at most, if `upwards` is False).
    """

    name: str
    runs: Select
    measure: Measure
    border: float
    least: float
    against: tuple[Select, ...] = ()  # controls: the first of these that has runs; none: the effect is the number
    compare: str = "difference"  # or "relative": divided by the control's number
    shares: bool = False  # the number is 0 or 1: Wilson's interval instead
    upwards: bool = True
    counts: bool = True  # False: shown, and without a voice in the verdict
    unit: str = ""
    fit: Fitness | None = None
    ground: Ground | None = None


@dataclass(frozen=True)
class Claim:
    id: str
    paper: str
    says: str  # in our words
    parts: tuple[Part, ...]
    least_steps: int
    needs: str  # cells, instruments and settings that a study must have
    caveat: str = ""
    least_seeds: int = 3
    confidence: float = 0.95

    @property
    def voices(self) -> int:
        return sum(part.counts for part in self.parts)


@dataclass(frozen=True)
class Interval:
    low: float
    high: float


@dataclass(frozen=True)
class PartFinding:
    """What one comparison found in one setting."""

    part: str
    setting: str
    verdict: Verdict
    reason: str
    counts: bool = True
    value: float | None = None
    interval: Interval | None = None  # of 95 %
    strict: Interval | None = None  # by which a part alone can refute the claim
    seeds: tuple[int, ...] = ()
    runs: tuple[str, ...] = ()
    controls: tuple[str, ...] = ()
    decides: str = ""  # what would decide it
    notes: tuple[str, ...] = ()
    unit: str = ""


@dataclass(frozen=True)
class Finding:
    claim: str
    verdict: Verdict
    reason: str
    parts: tuple[PartFinding, ...] = ()
    decides: str = ""
    rule_notes: tuple[str, ...] = field(default=())  # when the rule is younger than runs it is applied to

    @property
    def runs(self) -> tuple[str, ...]:
        return tuple(sorted({run for part in self.parts for run in (*part.runs, *part.controls)}))
