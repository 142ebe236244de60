"""Selects the runs that a part of a claim is tested on, and their numbers.

A setting is everything that tags say besides what a method is: task, model and so on, and with it the study and the
number of steps, since schedules depend on it. Runs are only ever compared within a setting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from statistics import fmean

from isentrope.papers.inference import Sample
from isentrope.papers.measures import success_by_kind
from isentrope.papers.record import Claim, Finding, Measure, Part, Select, Verdict
from isentrope.study.read import DONE, FAILED, StudyData, StudyRun

DEFAULTS = {"algorithm": "", "method": "none", "variant": "full", "alpha": "0.1"}  # what a cell without the tag is
CHOSEN = (*DEFAULTS, "order", "temperature", "leave_out", "cell")  # tags that say what is compared; all others where

SIZES = {"pocket": 858_624, "smollm2": 134_515_008}  # parameters of models whose runs did not record them


@dataclass(frozen=True)
class Placed:
    """A run and where it belongs."""

    run: StudyRun
    setting: str
    name: str  # with the study's name in front
    model: str = ""  # the language model and its size
    known: dict[Measure, float | None] = field(default_factory=dict[Measure, float | None], compare=False, repr=False)

    def tag(self, key: str) -> str:
        return self.run.tags.get(key) or DEFAULTS.get(key, "")

    @property
    def unit(self) -> tuple[str, int]:
        """What the first edition pairs."""
        return self.tag("algorithm"), self.run.seed

    def number(self, measure: Measure) -> float | None:
        """What the measure says of the run; computed once, since many parts ask for the same."""
        if measure not in self.known:
            self.known[measure] = measure(self.run)
        return self.known[measure]

    @property
    def start(self) -> str:
        """The weights it began from: their fingerprint, or the name of the warm-up where none was recorded."""
        return self.run.start or PurePath(str(self.run.config.get("policy.model", ""))).name


def place(studies: Sequence[StudyData]) -> list[Placed]:
    """All runs, in an order that does not depend on the one given."""
    return sorted((_placed(study, run) for study in studies for run in study.runs), key=lambda one: one.name)


def _placed(study: StudyData, run: StudyRun) -> Placed:
    """A planned run that has not begun does not know where it belongs: where the others of its cell do."""
    like = run if run.steps else next((one for one in study.cell(run.cell) if one.steps), run)
    rest = [f"{key} {value}" for key, value in sorted(run.tags.items()) if key not in CHOSEN and value]
    setting = ", ".join([study.name, *rest, *([f"{like.steps} steps"] if like.steps else [])])
    return Placed(run, setting, f"{study.name}/{run.name}", model_of(study, like))


def model_of(study: StudyData, run: StudyRun) -> str:
    """The model that a run trains, through its warm-up, and its number of parameters: `smollm2, 135 M`."""
    name = PurePath(str(run.config.get("policy.model", ""))).name
    warmup = study.warmups.get(name)
    base = PurePath(str(warmup.config.get("policy.model", name))).name if warmup else name
    base = run.tags.get("model") or base
    count = run.parameters or SIZES.get(base, 0)
    size = f"{count / 1e9:.3g} B" if count >= 1e9 else f"{count / 1e6:.3g} M"
    return f"{base}, {size}" if count else base


def matches(wanted: Select, one: Placed) -> bool:
    algorithms = (wanted.algorithm,) if isinstance(wanted.algorithm, str) else wanted.algorithm
    if one.tag("algorithm") not in algorithms:
        return False
    if one.tag("method") != wanted.method or one.tag("variant") != wanted.variant:
        return False
    try:
        return float(one.tag("alpha")) == float(wanted.alpha)
    except ValueError:
        return False


def same_by_definition(wanted: Select) -> tuple[Select, ...]:
    """A baseline and what equals it by definition: ActRe without its first stage is the bare algorithm."""
    plain = replace(wanted, method="none", variant="full")
    staged = replace(wanted, method="actre", variant="no_stage1")
    return (wanted, staged) if wanted == plain else (wanted, plain) if wanted == staged else (wanted,)


def pooled(wanted: Select, here: Sequence[Placed]) -> list[Placed]:
    """The runs of a kind, with those that are of the same kind by definition (A/A runs)."""
    return [one for one in here if any(matches(select, one) for select in same_by_definition(wanted))]


def samples(measure: Measure, runs: Sequence[Placed]) -> list[Sample]:
    """The numbers of runs that tell it, with what inference needs to know of each."""
    found: list[Sample] = []
    for one in runs:
        value = one.number(measure)
        if value is not None:
            kinds = success_by_kind(one.run) if measure.by_kind else None
            found.append(Sample(value, (*one.unit, one.start), kinds))
    return found


def cells_with(measure: Measure, runs: Sequence[Placed]) -> list[list[Sample]]:
    """The numbers of every cell, those left out whose mean lies where cells are not alike in spread."""
    cells: dict[str, list[Placed]] = {}
    for one in runs:
        cells.setdefault(one.run.cell, []).append(one)
    low, high = measure.alike
    found = [samples(measure, cell) for cell in cells.values()]
    return [cell for cell in found if len(cell) > 1 and low <= fmean(run.value for run in cell) <= high]


def usable(runs: Sequence[Placed], claim: Claim) -> list[Placed]:
    """Those that came to their end and are long enough."""
    return [one for one in runs if one.run.status == DONE and one.run.reached >= claim.least_steps]


def left_out(runs: Sequence[Placed], claim: Claim) -> tuple[str, ...]:
    """What a reader must know of the runs that have no voice."""
    failed = [one.name for one in runs if one.run.status == FAILED]
    under_way = sum(one.run.status not in (DONE, FAILED) for one in runs)
    short = sum(one.run.status == DONE and one.run.reached < claim.least_steps for one in runs)
    notes = [f"{len(failed)} failed: {', '.join(failed)}"] if failed else []
    notes += [f"{under_way} not finished"] if under_way else []
    return (*notes, *([f"{short} shorter than {claim.least_steps} steps"] if short else []))


def cells_of(part: Part) -> str:
    """The runs that a part compares, in words."""
    return " and ".join([part.runs.words(), *(select.words() for select in part.against[:1])])


def no_runs(claim: Claim) -> Finding:
    wanted = [select for part in claim.parts if part.counts for select in (part.runs, *part.against[:1])]
    cells = "; ".join(dict.fromkeys(select.words() for select in wanted))
    return Finding(claim.id, Verdict.open, "no runs", (), f"{claim.least_seeds} seeds of each of: {cells}")
