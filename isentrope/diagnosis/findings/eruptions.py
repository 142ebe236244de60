"""Findings about entropy: its eruptions, what went before and came with them; or that it stayed quiet."""

from __future__ import annotations

from statistics import fmean, median

from isentrope.core.text import count, nats, percent, sentence, steps_listed
from isentrope.diagnosis.phases import FALL_SHARE, SMOOTH, PhaseDetector, Rise, find_rises
from isentrope.diagnosis.remedies import Finding, to_calm
from isentrope.runs.curves import ENOUGH, Curve
from isentrope.runs.folder import Run

AROUND = 2  # steps before and after the peak
LEAST = 0.1  # a part with a smaller share of the rise is not mentioned
PARTS = {"other": "tags, stray text and thoughts that were never closed", "think": "thoughts", "action": "actions"}


def where(course: Run, rise: Rise, evidence: dict[str, float]) -> list[str]:
    """What each part adds to the entropy of a whole response, before the eruption and at its peak: its tokens times
    their mean entropy. A part that fell has no share in the rise. Nothing where a run did not measure it."""
    before, peak = _sums(course, rise.onset - 1 - 2 * AROUND, rise.onset - 1), _sums(course, *_around(rise))
    grown = {part: max(0.0, peak[part] - before[part]) for part in PARTS if part in before and part in peak}
    total = sum(grown.values())
    if len(grown) < len(PARTS) or total <= 0:
        return []
    shares = {part: grown[part] / total for part in PARTS}
    evidence |= {f"rise/{part}": share for part, share in shares.items()}
    told = sorted((part for part in PARTS if shares[part] >= LEAST), key=lambda part: -shares[part])
    said = [f"{percent(shares[part])} of the rise was in {PARTS[part]}" for part in told[:1]]
    said += [f"{percent(shares[part])} in {PARTS[part]}" for part in told[1:]]
    return [f"about {', '.join(said)}"]


def in_few(course: Run, rise: Rise, evidence: dict[str, float]) -> list[str]:
    """Whether most of it was in a few responses: then it is noise in them, and the policy is no more open elsewhere."""
    curve = course.curve("entropy/concentration")
    before, peak = curve.before(rise.onset).values, curve.between(*_around(rise)).values
    if not before or not peak or fmean(peak) - fmean(before) < LEAST:
        return []
    was, became = fmean(before), fmean(peak)
    evidence |= {"concentration/before": was, "concentration/peak": became}
    return [f"at the peak {percent(became)} of all entropy was in one response of 20 ({percent(was)} before)"]


def _around(rise: Rise) -> tuple[int, int]:
    """The first and last step of the peak, none of which lies before the onset."""
    return max(rise.onset, rise.peak - AROUND), rise.peak + AROUND


def _sums(course: Run, first: int, last: int) -> dict[str, float]:
    """Nats of a response by part; empty if anything was not measured."""

    def mean(key: str) -> float | None:
        values = course.curve(key).between(first, last).values
        return fmean(values) if values else None

    whole, thought, action = (mean(f"response/{key}") for key in ("tokens", "think_tokens", "action_tokens"))
    entropies = {part: mean(f"entropy/{part}") for part in PARTS}
    if whole is None or thought is None or action is None:
        return {}
    tokens = {"think": thought, "action": action, "other": max(0.0, whole - thought - action)}
    return {part: tokens[part] * entropy for part, entropy in entropies.items() if entropy is not None}


NEAR = 20  # steps around an onset in which another event belongs to it
WORTH = 0.03  # a share that moved by less is not mentioned
TOLD = 3  # eruptions told in full; further ones are counted
COMPANIONS = {
    "degeneracy/duplication": "duplication of sentences",
    "degeneracy/loops": "looping text",
    "degeneracy/hallucinated": "hallucinated actions",
    "degeneracy/repeated_actions": "repeated actions",
}


def entropy_findings(course: Run, phases: PhaseDetector) -> list[Finding]:
    entropy = course.curve("entropy/token")
    eruptions = phases.eruptions
    if len(entropy) < ENOUGH:
        return []
    if not eruptions:
        return [_quiet(entropy)]
    unlikely = -course.curve("likelihood/valid")
    falls = find_rises(unlikely.steps, unlikely.values)
    ends = [after.onset - 1 for after in eruptions[1:]] + [course.last_step]  # of what belongs to each
    found = [_erupted(course, rise, falls, end) for rise, end in zip(eruptions[:TOLD], ends, strict=False)]
    if len(eruptions) > TOLD:
        onsets = [rise.onset for rise in eruptions[TOLD:]]
        claim = f"{count(len(onsets), 'more eruption')} followed, at {steps_listed(onsets)}."
        found.append(Finding("eruptions/more", sentence(claim), "bad", {"count": len(onsets)}, tuple(onsets)))
    if (forecast := phases.forecast()) is not None:
        spread = f" ({forecast.shortest} to {forecast.longest})" if forecast.shortest < forecast.longest else ""
        coming = forecast.step > course.last_step
        following = f"; at that pace the next begins around step {forecast.step}" if coming else ""
        claim = f"Eruptions began {forecast.period:g} steps apart{spread}{following}."
        evidence = {"period": forecast.period, "next": float(forecast.step), "periods": float(forecast.periods)}
        found.append(Finding("eruptions/period", claim, "note", evidence, (forecast.step,)))
    return found


def _quiet(entropy: Curve) -> Finding:
    start, end = entropy.start, entropy.end
    evidence = {"start": start, "end": end}
    values = f"from {nats(start)} to {nats(end)} nats a token"
    if abs(end - start) <= 0.1 * start:
        claim = f"Entropy stayed where it was, {nats(start)} nats a token at the start and {nats(end)} at the end."
    elif abs(end - start) <= entropy.margin:
        claim = f"Entropy went {values}, which may be noise, without an eruption."
    elif end < start:
        claim = f"Entropy sank {values}, without an eruption."
    else:
        claim = f"Entropy rose slowly, {values}, without an eruption."
    return Finding("entropy/quiet", claim, "note", evidence, (entropy.steps[-1],))


def _erupted(course: Run, rise: Rise, falls: list[Rise], end: int) -> Finding:
    """`falls` are those of the likelihood; `end` is the last step before the next eruption, or of the run."""
    evidence = {
        "onset": rise.onset, "peak": rise.peak, "before": rise.before, "top": rise.top, "amplitude": rise.amplitude,
    }  # fmt: skip
    claim = f"Entropy erupted at step {rise.onset}"
    if near := [fall.onset for fall in falls if abs(fall.onset - rise.onset) <= NEAR]:
        fell = min(near, key=lambda step: abs(step - rise.onset))
        evidence["likelihood_fell"] = fell
        after = rise.onset - fell
        when = f"{count(abs(after), 'step')} {'after' if after > 0 else 'before'}" if after else "at the step at which"
        claim += f", {when} the likelihood of valid responses began to fall"
    times = f", {rise.top / rise.before:.1f} times as much," if rise.before > 0 else ""
    claim += f". It rose from {nats(rise.before)} to {nats(rise.top)} nats a token at step {rise.peak}{times} "
    claim += f"and {_afterwards(rise, course.curve('entropy/token').between(rise.peak, end))}."
    parts = where(course, rise, evidence) + in_few(course, rise, evidence) + _interference(course, rise, evidence)
    parts += _companions(course, rise, end, evidence) + _meanwhile(course, rise, evidence)
    if parts:
        claim += " " + sentence("; ".join(parts))
    severity = "warning" if rise.back is not None else "bad"
    return Finding("eruption", claim, severity, evidence, (rise.onset, rise.peak), to_calm(course))


def _afterwards(rise: Rise, entropy: Curve) -> str:
    """`entropy` is the curve from the peak to the end of what belongs to the eruption."""
    if rise.back is not None:
        return f"had subsided by step {rise.back}"
    if rise.over is None:
        return "has not come down since"
    level = median(entropy.tail(SMOOTH).values) if len(entropy) else rise.top
    if rise.top - level < FALL_SHARE * rise.amplitude:
        return "stayed there"
    return f"was down to {nats(level)} by step {entropy.steps[-1]}"


def _interference(course: Run, rise: Rise, evidence: dict[str, float]) -> list[str]:
    """The last probe before the peak: how much episodes with negative and positive advantage interfered."""
    negative = course.curve("probe/interference/negative")
    positive = course.curve("probe/interference/positive")
    shared = sorted(set(negative.steps) & set(positive.steps))
    early = [step for step in shared if rise.onset - NEAR <= step <= rise.peak]
    if not early:
        return []
    step = max([s for s in early if s <= rise.onset] or early[:1])
    bad, good = negative.between(step, step).values[0], positive.between(step, step).values[0]
    evidence |= {"interference_negative": bad, "interference_positive": good}
    told = f"interference was {bad:.2g} for negative episodes, {good:.2g} for positive ones"
    if bad > 0 and good > 0:
        told = f"negative episodes interfered {bad / good:.1f} times as much as positive ones"
    return [f"at the probe of step {step} {told}"]


def _companions(course: Run, rise: Rise, last: int, evidence: dict[str, float]) -> list[str]:
    """What degenerated with it. Whether that stayed is asked of the last steps before the next eruption."""
    parts: list[str] = []
    for key, words in COMPANIONS.items():
        curve = course.curve(key)
        before, during = curve.before(rise.onset), curve.between(rise.onset, rise.back or last)
        if not len(before) or not len(during):
            continue
        low, high = median(before.values), during.highest_of_three()
        now = median(curve.between(rise.onset, last).tail(3).values)
        if high - low < WORTH:
            continue
        evidence |= {f"{key}/before": low, f"{key}/top": high, f"{key}/last": now}
        stayed = now - low >= (high - low) / 2
        end = "and stayed" if stayed else f"and went back to {percent(now)}"
        parts.append(f"{words} rose from {percent(low)} to {percent(high)} {end}")
    return parts


def _meanwhile(course: Run, rise: Rise, evidence: dict[str, float]) -> list[str]:
    """Success and valid actions in the steps before the onset and in the five from the peak on."""
    parts: list[str] = []
    for key, words in (("success/all", "success"), ("valid_ratio", "the share of valid actions")):
        curve = course.curve(key)
        before, after = curve.before(rise.onset), curve.between(rise.peak, rise.peak + 4)
        if not len(before) or not len(after):
            continue
        was, became = fmean(before.values), fmean(after.values)
        if abs(became - was) <= max(2 * WORTH, curve.margin):
            continue
        evidence |= {f"{key}/before": was, f"{key}/after": became}
        parts.append(f"{words} went from {percent(was)} before to {percent(became)} at the peak")
    return parts
