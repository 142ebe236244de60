"""Findings and remedies: what to try, given the settings that ran; what is on already is not advised."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from isentrope.diagnosis.alarms import WEIGH
from isentrope.runs.folder import Run

SEVERITIES = ("good", "note", "warning", "bad")


@dataclass(frozen=True)
class Finding:
    name: str
    claim: str  # one or a few plain sentences, with the numbers
    severity: str  # one of SEVERITIES
    evidence: dict[str, float] = field(default_factory=dict[str, float])
    steps: tuple[int, ...] = ()  # the steps that the claim names
    remedy: tuple[str, ...] = ()  # what to try, one thing each


def slower(course: Run) -> str:
    """`a smaller learning rate`, with the one that ran if it is known."""
    lr = course.amount("learn.lr")
    return "a smaller learning rate" + (f" (learn.lr is {lr:g})" if lr else "")


USUAL_KL = 0.01  # learn.kl of most recipes
COOL = 0.7  # a sampling temperature below this narrows what the policy tries
WEIGHING = "learn.aggregation=token or episode"
DIVIDE = ", or learn.advantage.divide_by_std=true"
PENALTY = "a penalty for invalid responses (task.invalid_reward is 0)"
LONG_WEIGH_LESS = ("turn", "sequence")  # aggregations in which a token of a long response weighs less
BONUSES = {"entropy_bonus": "coefficient", "ea": "alpha"}  # methods that push entropy up, and by which setting


FAR_TOO_HIGH = 10  # times the rate that fits: then nothing else is worth trying first
_SLOWER = ("a smaller learning rate", "a smaller learn.lr")


def rate_first(remedy: str, times: float | None) -> str:
    """An alarm's remedy, what to do about the learning rate before all else where the rate is so far beyond what fits.
    It is advised there even where the alarm does not name it."""
    if not remedy or times is None or times < FAR_TOO_HIGH:
        return remedy
    others = [part for part in remedy.split("; ") if not part.startswith(_SLOWER)]
    return "; ".join([_SLOWER[1], *others])


def slower_first(course: Run, finding: Finding, times: float | None) -> Finding:
    """The same of a finding that something went wrong."""
    if not finding.remedy or finding.severity not in ("warning", "bad") or times is None or times < FAR_TOO_HIGH:
        return finding
    return replace(finding, remedy=tuple(dict.fromkeys((slower(course), *finding.remedy))))


def to_calm(course: Run) -> tuple[str, ...]:
    """Against entropy that erupts. What pushes it up comes first."""
    pushing = {name: f"method.{name}.{key}" for name, key in BONUSES.items()}
    found = [_changed(course, "a smaller", key) for name, key in pushing.items() if name in course.methods]
    heat = temperature(course)
    if heat is not None and heat > 1:
        found.append(f"a lower sampling temperature (it is {heat:g})")
    found += weighing(course)
    if "aem" in course.methods:
        found.append("no aem")
    return (*found, slower(course), *_more_kl(course), *_seal(course))


def to_shorten(course: Run, where_lost: bool) -> tuple[str, ...]:
    """Against responses that grow, or that grow in episodes that are not solved and nowhere else."""
    found = weighing(course) if where_lost else []
    if not course.amount("learn.overlong"):
        found.append("learn.overlong=0.2, if long responses bring nothing")
    return tuple(found)


def to_widen(course: Run) -> tuple[str, ...]:
    """Against entropy that collapses. What keeps it down comes first."""
    heat = temperature(course)
    found = [f"a higher rollout.temperature (it is {heat:g})"] if heat is not None and heat < COOL else []
    raising = [name for name in ("entropy_bonus", "epo") if name in course.methods]
    found += [_changed(course, "a larger", f"method.{name}.coefficient") for name in raising]
    if absent := [name for name in ("entropy_bonus", "epo", "aem") if name not in course.methods]:
        found.append(" or ".join(absent))
    return (*found, slower(course), *_more_kl(course))


def in_the_doctors_words(course: Run, remedy: str) -> tuple[str, ...]:
    """An alarm's remedies as other findings word them, so that nothing is advised twice, without what is on already."""
    words = {"a smaller learn.lr": [slower(course)], "the method seal": _seal(course), WEIGH: weighing(course)}
    parts = [one for part in remedy.split("; ") for one in words.get(part, [part])]
    resampled = bool(course.amount("learn.resample"))
    return tuple(part for part in parts if not (resampled and part.startswith("dynamic sampling")))


def weighing(course: Run) -> list[str]:
    """Against noise and length in episodes that fail: docs/claims/seal.md says what was seen of each."""
    if course.setting("learn.aggregation") not in LONG_WEIGH_LESS:
        return []
    if course.amount("task.invalid_reward") == 0:
        return [WEIGHING, PENALTY]
    # whether DIVIDE can be followed, and was seen to help: other advantages than these are never divided, and
    # gigpo_mixed only in one of its two parts, which would then be on different scales
    divisible = course.setting("learn.advantage.kind") in (None, "grpo", "gigpo")
    undivided = (
        course.setting("learn.advantage.divide_by_std") is False and course.setting("learn.aggregation") == "turn"
    )
    return [WEIGHING + (DIVIDE if divisible and undivided else "")]


def temperature(course: Run) -> float | None:
    """That training games were sampled at, as far as the settings tell."""
    if "higher_temperature" in course.methods:
        return course.amount("method.higher_temperature.temperature") or 1.2
    return course.amount("rollout.temperature")


def _seal(course: Run) -> list[str]:
    """The paper's remedy. It comes last: in our runs that erupt it did not help."""
    return [] if "seal" in course.methods else ["seal"]


def _changed(course: Run, how: str, name: str) -> str:
    value = course.amount(name)
    return f"{how} {name}" + (f" (it is {value:g})" if value is not None else "")


def _more_kl(course: Run) -> list[str]:
    """A policy that nothing holds near where it began."""
    return [f"learn.kl={USUAL_KL:g} (it is 0)"] if course.amount("learn.kl") == 0 else []


# -- advice that agrees with itself

_STEP = re.compile(r"^an? (smaller|lower|shorter|larger|higher|longer) ([\w.]+)")
_VALUE = re.compile(r"^([a-z_]+\.[\w.]+)=(\S+)")
_NAMED = {"learning": "learn.lr", "sampling": "rollout.temperature", "groups": "rollout.group_size"}
_WIDER = re.compile(r"^(?:an? |the methods? )?(?:entropy_bonus|epo|aem|higher_temperature)\b")
_CALMER = re.compile(
    r"^(?:no (?:entropy_bonus|epo|aem|ea|higher_temperature)\b|a smaller method\.|seal$|the method seal)"
)


def direction(course: Run, remedy: str) -> tuple[str, int] | None:
    """Which setting a remedy changes, and whether up (1) or down (-1); None where that cannot be said of it."""
    if _WIDER.match(remedy):
        return "entropy", 1
    if _CALMER.match(remedy):
        return "entropy", -1
    if remedy.startswith("larger groups"):
        return "rollout.group_size", 1
    if step := _STEP.match(remedy):
        name = _NAMED.get(step[2], step[2])
        return name, -1 if step[1] in ("smaller", "lower", "shorter") else 1
    if value := _VALUE.match(remedy):
        return _towards(course, value[1], value[2].rstrip(",;"))
    return None


def _towards(course: Run, name: str, value: str) -> tuple[str, int] | None:
    """Towards a value; 0 where the setting has it already."""
    now = course.setting(name)
    if str(now) == value:
        return name, 0
    try:
        return (
            (name, 1 if float(value) > float(now) else -1 if float(value) < float(now) else 0)
            if now is not None
            else None
        )
    except (TypeError, ValueError):
        return None


def in_order(findings: Sequence[Finding]) -> list[Finding]:
    """Causes as they are ranked, then the most serious first."""
    first = [finding for finding in findings if finding.name.startswith("cause/")]
    rest = [finding for finding in findings if not finding.name.startswith("cause/")]
    return first + sorted(rest, key=lambda finding: -SEVERITIES.index(finding.severity))


def reconciled(course: Run, findings: Sequence[Finding], stands: bool) -> tuple[Finding, ...]:
    """The findings without advice that contradicts what was advised before it, or that a setting has already. Where
    nothing moves the policy (`stands`) nothing is advised that would move it even less."""
    ways: dict[str, int] = {"learn.lr": 1, "learn.kl": -1, "learn.grad_clip": 1} if stands else {}
    kept: dict[int, tuple[str, ...]] = {}
    for finding in in_order(findings):
        remedies: list[str] = []
        for remedy in finding.remedy:
            way = direction(course, remedy)
            if way is not None and (way[1] == 0 or ways.setdefault(way[0], way[1]) != way[1]):
                continue
            remedies.append(remedy)
        kept[id(finding)] = tuple(remedies)
    return tuple(replace(finding, remedy=kept[id(finding)]) for finding in findings)
