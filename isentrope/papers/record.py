"""Records of claims and findings. All are frozen: a rule is a record that can be digested.

Both editions of the rules use these records. Premises, logarithms, expected sizes and words for directions came with
the second edition; `ground` is of the first alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from isentrope.core.stats import Interval
from isentrope.study.read import StudyRun


class Verdict(StrEnum):
    holds = "holds"
    fails = "does not hold"
    open = "undecided"
    untestable = "not testable here"


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
    spread: float = 0.0  # expected standard deviation between runs of one cell, as the pocket model's runs had it
    spread_lm: float = 0.0  # the same of a language model's; 0: not known, taken as the other
    alike: tuple[float, float] = (-math.inf, math.inf)  # cells with a mean in it differ about as much from run to run
    by_kind: bool = False  # a success on fixed games, also told by kind of game: games are a source of variance

    def __call__(self, run: StudyRun) -> float | None:
        return self.function(run, **dict(self.options))


Fitness = Callable[[StudyRun], str | None]  # why a run cannot speak to the claim, or None
Ground = Callable[[Sequence[float]], str | None]  # why the controls' numbers leave no room for an effect, or None


class Arm(StrEnum):
    """Arms of a part: one of them, each of the two by itself, or both as one group."""

    treated = "treated"
    control = "control"
    both = "both"
    pooled = "pooled"


@dataclass(frozen=True)
class Premise:
    """What must be so for a part to be tested at all: a number, over the runs of an arm, on one side of a border.

    The 90 % interval of its mean decides: beyond the border the premise is met, short of it it fails, and in between it
    is not clear, which leaves the part undecided.
    """

    name: str
    runs: Select | Arm  # runs of their own, or an arm of the part
    measure: Measure
    border: float
    remedy: str  # what would make the part testable
    upwards: bool = True  # at least the border; False: at most
    against: Select | None = None  # the number is a ratio of the means of both; with `clear` a difference
    clear: bool = False  # instead of a border: the 95 % interval of the difference leaves out 0, else it fails
    counted: bool = False  # a count over these very runs, no estimate: the mean itself decides


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
    compare: str = "difference"  # first edition also "relative": divided by the control's number
    shares: bool = False  # the number is 0 or 1: Wilson's interval instead
    upwards: bool = True
    counts: bool = True  # False: shown, and without a voice in the verdict
    unit: str = ""  # "times ...": the number is a logarithm, told as a factor
    fit: Fitness | None = None
    ground: Ground | None = None
    premises: tuple[Premise, ...] = ()
    means: tuple[str, str] = ("", "")  # what an effect above 0 says, and what one below it says
    control_measure: Measure | None = None  # if the controls are measured otherwise
    expect: float = 0.0  # a true effect of this size is what the power is told for

    def measure_of(self, control: bool) -> Measure:
        return self.control_measure if control and self.control_measure is not None else self.measure


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
class PremiseFinding:
    name: str
    met: bool | None  # None: the runs do not tell
    told: str  # the number, in words
    remedy: str


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
    held: Interval | None = None  # by which it can hold: wider than `interval` where there are several settings
    levels: tuple[float, float] = (0.0, 0.0)  # of `held` and of `strict`
    error: float = 0.0  # standard error of `value`
    freedom: float = 0.0  # degrees of freedom of its Student's distribution
    how: str = ""  # paired or not, and what else the interval is made of
    premises: tuple[PremiseFinding, ...] = ()
    direction: str = ""  # what the effect says, in words
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
    rule_notes: tuple[str, ...] = ()  # when the rule is younger than runs it is applied to
    model: str = ""  # the language model that the runs train, with its size; of the second edition

    @property
    def runs(self) -> tuple[str, ...]:
        return tuple(sorted({run for part in self.parts for run in (*part.runs, *part.controls)}))


def by_part(said: Iterable[tuple[str, str]]) -> str:
    """What is said, and of which part. What is said of all of them is said once, without their names."""
    names: dict[str, list[str]] = {}
    for text, part in said:
        if text and part not in names.setdefault(text, []):
            names[text].append(part)
    return next(iter(names)) if len(names) == 1 else "; ".join(f"{', '.join(of)}: {text}" for text, of in names.items())
