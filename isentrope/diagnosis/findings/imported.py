"""Findings about a run that another program made: what its reward did, and what nobody can know of it.

A rule that needs what was not logged must not guess. So of the causes only those are named whose numbers are all there,
and advice is given in the names of the program that made the run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from isentrope.core.text import count, listed, percent, sentence
from isentrope.diagnosis.facts import Facts
from isentrope.diagnosis.remedies import Finding
from isentrope.runs.curves import ENOUGH
from isentrope.runs.folder import Run
from isentrope.runs.origin import Imported

# Causes that no claim about success stands behind: the rest need to know how many episodes a step has.
_BY_NUMBERS_ALONE = ("cause/stale_sampler", "cause/critic", "cause/not_finite")
# Whether a rate fits is told by the size of the model, which no log has; instruments beside a trainer record it.
_BY_SIZE = ("cause/rate_low", "cause/rate_high", "cause/frozen")
# What a claim takes for zero where it was not measured.
_MEASURED: Mapping[str, tuple[str, ...]] = {
    "cause/critic": ("return/std",),
    "cause/small_group": ("advantage/zero_groups",),
    "cause/temperature_low": ("advantage/zero_groups",),
}
_CUT = ("completions/clipped_ratio", "train/completions/clipped_ratio", "response_length/clip_ratio")
_MANY_CUT = 0.5
_LAST = 5

_TRL = {
    "learn.lr": "learning_rate", "learn.kl": "beta", "learn.grad_clip": "max_grad_norm", "learn.warmup": "warmup_steps",
    "rollout.temperature": "temperature", "rollout.group_size": "num_generations", "agent.max_response":
    "max_completion_length", "learn.loss.clip_high": "epsilon_high", "run.dtype=float32": "bf16=False",
}  # fmt: skip
_ACTOR = "actor_rollout_ref.actor."
_VERL = {
    "learn.lr": f"{_ACTOR}optim.lr", "learn.kl": f"{_ACTOR}kl_loss_coef", "learn.grad_clip": f"{_ACTOR}grad_clip",
    "learn.warmup": f"{_ACTOR}optim.lr_warmup_steps", "rollout.temperature": "actor_rollout_ref.rollout.temperature",
    "rollout.group_size": "actor_rollout_ref.rollout.n", "agent.max_response": "data.max_response_length",
    "learn.loss.clip_high": f"{_ACTOR}clip_ratio_high", "critic.lr": "critic.optim.lr",
}  # fmt: skip
_PLAIN = {
    "learn.lr": "learning rate", "learn.kl": "weight of the KL term", "learn.grad_clip": "clip of the gradient",
    "learn.warmup": "warm-up of the rate", "rollout.temperature": "sampling temperature", "rollout.group_size":
    "more episodes a group", "agent.max_response": "limit of length for responses",
}  # fmt: skip
_THEIRS: Mapping[str, Mapping[str, str]] = {"trl": _TRL, "verl": _VERL}
_OURS = re.compile(
    r"isentrope |--resume|\b(?:run|task|agent|policy|engine|rollout|learn|critic|method|eval|sft|instruments)\.[a-z_]+"
)
_IN_BRACKETS = re.compile(r" \((?:learn\.resample=3, or algorithm dapo|rollout\.group_size[^)]*)\)")


def may_be_named(cause: Finding, facts: Facts) -> bool:
    """Whether all that a cause rests on was logged."""
    if any(not len(facts.course.curve(key)) for key in _MEASURED.get(cause.name, ())):
        return False
    if cause.name in _BY_NUMBERS_ALONE:
        return True
    imported = facts.course.imported
    sized = imported is not None and imported.watched and facts.parameters > 0
    return facts.outcome is not None and (sized or cause.name not in _BY_SIZE)


def imported_findings(facts: Facts) -> list[Finding]:
    course, imported = facts.course, facts.course.imported
    if imported is None:
        return []
    return [*_reward(course), *_cut(course), *_unread(imported), _unknown(facts, imported)]


def _reward(course: Run) -> list[Finding]:
    reward = course.curve("return/mean")
    if len(reward) < ENOUGH:
        return []
    start, end, margin, (at, best) = reward.start, reward.end, reward.margin, reward.best
    evidence = {"start": start, "end": end, "best": best}
    step = reward.steps[-1]
    if best - start > margin and best - end > max(margin, 0.5 * (best - start)):
        claim = f"The mean reward rose from {start:.3g} to {best:.3g} around step {at} and was {end:.3g} in the end."
        return [
            Finding("reward/fell", claim, "warning", evidence, (at, step), (f"a checkpoint from around step {at}",))
        ]
    if abs(end - start) <= margin:
        claim = f"The mean reward went from {start:.3g} to {end:.3g}, which may be noise."
        return [Finding("reward/noise", claim, "note", evidence, (step,))]
    verb, severity = ("rose", "note") if end > start else ("fell", "warning")
    claim = f"The mean reward {verb} from {start:.3g} to {end:.3g}."
    return [Finding(f"reward/{verb}", claim, severity, evidence, (step,))]


def _cut(course: Run) -> list[Finding]:
    """Responses that reach the limit of length, as the program itself counts them."""
    for key in _CUT:
        last = course.curve(key).tail(_LAST)
        if len(last) == _LAST and _MANY_CUT <= fmean(last.values) <= 1:
            share = fmean(last.values)
            claim = f"In the last {_LAST} steps {percent(share)} of the responses were cut at the limit of length."
            return [
                Finding(
                    "responses/cut", claim, "warning", {"share": share}, last.steps, ("a larger agent.max_response",)
                )
            ]
    return []


def _unread(imported: Imported) -> list[Finding]:
    if not imported.problems:
        return []
    told = "; ".join(text.rstrip(".") for text in imported.problems[:3])
    return [Finding("state/unread", f"Of the log this is to be known: {told}.", "note")]


def _unknown(facts: Facts, imported: Imported) -> Finding:
    """What the doctor would need and does not have. It says nothing about that."""
    course = facts.course
    missing: list[str] = []
    if not facts.steps and not course.splits:
        missing.append("whether tasks were solved")
    elif facts.steps and facts.outcome is None:
        missing.append("of how many episodes success is a share")
    wanted = {
        "entropy/token": "the entropy of the policy",
        "kl/k3": "how far it is from where it began",
        "advantage/zero_groups": "in how many groups all did equally well",
        "grad_norm": "the norm of the gradient",
    }
    missing += [words for key, words in wanted.items() if not len(course.curve(key))]
    if not course.episode_files:
        missing.append("what was asked and answered")
    if imported.watched:
        return _watched(course, imported, missing)
    missing.append("which settings ran" if not course.config else "settings beyond those that were given")
    claim = (
        f"This run was imported ({imported.what}, {count(len(course.of_kind('train')), 'step')}). "
        f"The log does not tell {listed(missing)}, so nothing is said of that"
    )
    return Finding("state/imported", sentence(claim), "note", {"missing": float(len(missing))})


def _watched(course: Run, imported: Imported, missing: Sequence[str]) -> Finding:
    claim = f"{imported.program} trained this run, and our instruments watched it"
    claim += f" ({count(len(course.of_kind('train')), 'step')})."
    claim += f" They could not see {listed(list(missing))}, so nothing is said of that." if missing else ""
    return Finding("state/watched", claim, "note", {"missing": float(len(missing))})


# -- advice


def event_in_words_of(event: Mapping[str, Any], names: str) -> dict[str, Any]:
    """An alarm whose advice can be followed in a program."""
    advice = [in_words_of(part, names) for part in str(event["remedy"]).split("; ")]
    return {**event, "remedy": "; ".join(filter(None, advice))}


def in_their_words(findings: Sequence[Finding], imported: Imported) -> tuple[Finding, ...]:
    """Findings whose advice can be followed in the program that made the run."""
    return tuple(
        replace(finding, remedy=tuple(filter(None, (in_words_of(text, imported.names) for text in finding.remedy))))
        for finding in findings
    )


def in_words_of(remedy: str, names: str) -> str:
    """A remedy by a program's names of settings; empty where it has no such setting."""
    text = _IN_BRACKETS.sub("", remedy)
    theirs = _THEIRS.get(names, _PLAIN)
    for ours in sorted(theirs, key=len, reverse=True):
        text = re.sub(rf"\b{re.escape(ours)}(?![\w.])", theirs[ours], text)
    return "" if _without(text, theirs) else text


def _without(text: str, theirs: Mapping[str, str]) -> bool:
    """Whether a setting of ours, or a command, is left in it."""
    for name in theirs.values():
        text = text.replace(name, "")
    return _OURS.search(text) is not None
