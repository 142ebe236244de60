"""Which runs speak to a part of a claim.

A setting is everything that tags say besides what a method is: task, model and so on, and with it the study and the
number of steps, since schedules depend on it. Runs are only ever compared within a setting, seed by seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from isentrope.claims.record import Claim, Part, Select
from isentrope.study.read import DONE, FAILED, StudyData, StudyRun

DEFAULTS = {"algorithm": "", "method": "none", "variant": "full", "alpha": "0.1"}  # what a cell without the tag is
CHOSEN = (*DEFAULTS, "order", "temperature", "leave_out", "cell")  # tags that say what is compared; all others where

Unit = tuple[str, int]  # algorithm and seed: what is paired


@dataclass(frozen=True)
class Placed:
    """A run and where it belongs."""

    run: StudyRun
    setting: str
    name: str  # with the study's name in front

    def tag(self, key: str) -> str:
        return self.run.tags.get(key) or DEFAULTS.get(key, "")

    @property
    def unit(self) -> Unit:
        return self.tag("algorithm"), self.run.seed


def place(studies: Sequence[StudyData]) -> list[Placed]:
    """All runs, in an order that does not depend on the one given."""
    placed = [
        Placed(run, setting_of(study.name, run.tags, run.steps), f"{study.name}/{run.name}")
        for study in studies
        for run in study.runs
    ]
    return sorted(placed, key=lambda one: one.name)


def setting_of(study: str, tags: Mapping[str, str], steps: int) -> str:
    """In words. A run that has not begun does not know its steps: it is nowhere yet."""
    rest = [f"{key} {value}" for key, value in sorted(tags.items()) if key not in CHOSEN and value]
    return ", ".join([study, *rest, *([f"{steps} steps"] if steps else [])])


def matches(wanted: Select, one: Placed) -> bool:
    algorithms = (wanted.algorithm,) if isinstance(wanted.algorithm, str) else wanted.algorithm
    if one.tag("algorithm") not in algorithms:
        return False
    if one.tag("method") != wanted.method or one.tag("variant") != wanted.variant:
        return False
    return _same_number(one.tag("alpha"), wanted.alpha)


def chosen(part: Part, here: Sequence[Placed]) -> list[Placed]:
    return [one for one in here if matches(part.runs, one)]


def controls(part: Part, here: Sequence[Placed]) -> list[Placed]:
    """Of the kinds of controls that the rule names, the first that there are runs of."""
    for wanted in part.against:
        found = [one for one in here if matches(wanted, one)]
        if found:
            return found
    return []


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


def _same_number(found: str, wanted: str) -> bool:
    try:
        return float(found) == float(wanted)
    except ValueError:
        return False
