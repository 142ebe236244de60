"""Causes that lie in the update: rates, what holds or pushes the policy, and weights that do not arrive."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from statistics import median

from isentrope.core.text import listed, nats, percent
from isentrope.diagnosis.causes import chain
from isentrope.diagnosis.causes.suspect import suspect
from isentrope.diagnosis.facts import Facts
from isentrope.diagnosis.remedies import BONUSES, USUAL_KL, Finding, slower

FAR, JUMP = 0.15, 0.02  # nats a token: to the policy of the beginning; within one step
HELD = 2e-3  # nats a token: healthy runs of 626 had moved 1.5e-3 by steps 8 to 12
APART, AHEAD = 1e-3, 1e-2  # nats a token of sampler and trainer: more than rounding; with episodes of a step before
OFF = 2  # times the largest return: no value that a critic estimates is so far


def stale_sampler(facts: Facts) -> Finding | None:
    """The engine that samples does not have the weights that learn.

    Two passes over the same weights differ by rounding, in the first step already; that is no staleness. How much is
    bounded: in bfloat16 a logit is off by a few hundredths, which makes some 5e-5 nats where the choice is narrow and
    not 1e-3 where it is wide open. Logits are divided by the temperature, so that KL grows by its square. What is stale
    shows otherwise: nothing in the first step, before anything was learnt, and more the farther the policy has gone.
    """
    gaps, gap, moved = facts.course.curve("mismatch/kl").values, facts.late("mismatch/kl"), facts.distance
    if gap is None or facts.steps < 3:
        return None
    heat = facts.temperature
    larger = 1 / max(heat, 0.01) ** 2 if heat is not None and heat < 1 else 1.0  # rounding, at a low temperature
    ahead = bool(facts.course.amount("rollout.ahead"))
    behind = facts.late("kl/old")  # measured from the policy that sampled: as far as from the beginning, if it is that
    grown = gap - gaps[0]
    if moved is not None:
        old = moved >= HELD and (grown >= 0.25 * moved or (behind or 0.0) >= 0.8 * moved) and grown >= 2e-4 * larger
    else:
        old = grown >= 0.9 * gap
    if gap < (AHEAD if ahead else 2e-4 if old and moved is not None else APART) * larger:
        return None
    since = _since(facts, gap)
    if since is not None:
        claim = (
            f"The sampler holds old weights from about step {since} on: the weights that play are not those that learn"
        )
    elif old:
        claim = "The sampler is stale: the weights that play are not the weights that learn"
    else:
        claim = "The sampler and the trainer disagree: they give the same tokens different probabilities"
    claim += f". The KL between the two is {nats(gap)} nats a token"
    claim += f", {nats(gaps[0])} in the first step; it should be under 0.001"
    claim += f"; the policy itself has moved by {nats(moved)}." if old and moved is not None else "."
    if (same := facts.played.one_logprob) is not None:
        claim += f" All log-probs that the engine gives are {same:g}: those are not of the policy that sampled."
    remedy = ("rollout.ahead=0",) if ahead else ()
    remedy += (
        ("engine.kind=torch, which samples with the newest weights",)
        if facts.course.setting("engine.kind") != "torch"
        else ()
    )
    remedy += ("learn.old_logprobs=recompute with learn.mismatch=truncate",)
    evidence = {"mismatch": gap, "first": gaps[0]} | ({"moved": moved} if moved is not None else {})
    return suspect("stale_sampler", 0.97, claim, evidence, remedy)


def _since(facts: Facts, gap: float) -> int | None:
    """The first step of a gap that opened in the middle of a run: nothing but rounding before it, though the policy had
    moved by then, and much more from it on. None of a sampler that never got any weights."""
    gaps, moved = facts.course.curve("mismatch/kl"), facts.course.curve("kl/k3")
    highest = list(accumulate(gaps.values, max))
    lowest = list(accumulate(reversed(gaps.values), min))[::-1]
    for place in range(3, len(gaps) - 1):
        before, after = highest[place - 1], lowest[place]
        rounding = before <= 3 * median(gaps.values[:3]) + 1e-9 and before <= 0.05 * gap
        if rounding and after >= 5 * before and max(moved.before(gaps.steps[place]).values, default=0.0) >= HELD:
            return gaps.steps[place]
    return None


def rounded(facts: Facts) -> Finding | None:
    """Updates that are rounded away: a bfloat16 number has 8 significant bits, so a change below a 500th of a weight is
    none, and an update changes it by about the learning rate."""
    if not facts.rounds or facts.settled or facts.steps < 4 or facts.equal >= 0.8:
        return None
    moved, rate = facts.distance, facts.rate
    if moved >= HELD if moved is not None else facts.fine:
        return None
    claim = "Updates are rounded away: weights are held in bfloat16 (run.weights) without float32 copies "
    claim += "(learn.master_weights is false), where a change below a 500th of a weight is none"
    claim += f", and learn.lr changes it by about {rate:.2g}" if rate is not None else ""
    if moved is not None:
        claim += f"; after {facts.success.steps[-1]} steps the policy is {nats(moved)} nats a token from where it began"
    evidence = {} if moved is None else {"kl": moved}
    remedy = ("learn.master_weights=true", "run.weights=float32")
    return suspect("rounded", 0.96, f"{claim}.", evidence, remedy)


def standing(facts: Facts) -> Finding | None:
    """A policy that is where it began: by its rate, or although its rate fits and no link of the chain is broken."""
    if facts.settled or rounded(facts) is not None or chain.broken(facts) is not None:
        return None
    if facts.steps < 4:
        return _warned_low(facts)
    same = _same_evaluations(facts)
    if (facts.kl_weight or 0.0) >= 10 * USUAL_KL:
        return None  # held, not standing
    slow = facts.sick and not facts.fell and facts.times_rate is not None and facts.times_rate <= 1 / 3
    slow = slow and facts.distance is not None and facts.distance < HELD
    if not facts.unmoved and not slow and not (facts.distance is None and facts.equal < 0.8 and same):
        return _warned_low(facts)
    moved, rate, fits = facts.distance, facts.rate, facts.fitting_rate
    evidence = {key: value for key, value in (("kl", moved), ("rate", rate), ("fits", fits)) if value is not None}
    claim = (
        f"after {facts.success.steps[-1]} steps it is {nats(moved)} nats a token from where it began (KL)"
        if (moved is not None)
        else "all its evaluations are the same, to the last game"
    )
    low = facts.times_rate is not None and facts.times_rate <= (0.1 if facts.unmoved else 1 / 3)
    warm = facts.course.amount("learn.warmup") or 0.0
    if low or facts.times_rate is None:
        at = f"learn.lr is {facts.lr:g}" if facts.lr is not None else "learn.lr"
        if rate is not None and facts.lr is not None and rate < 0.5 * facts.lr:
            at += f", and its warm-up (learn.warmup is {warm:g}) let it rise to {rate:.2g} only"
        fitting = f"; {fits:g} fits a model of this size" if fits else ""
        claim = f"The learning rate is too low ({at}{fitting}): the policy has hardly moved, {claim}."
        remedy = _larger(facts)
        remedy = ("a shorter learn.warmup", *remedy) if warm > 0.5 else remedy
        return suspect("rate_low", 0.95 if facts.unmoved else 0.7, claim, evidence, remedy)
    if facts.equal >= 0.5:
        return None  # most groups have nothing to teach, so standing still is no riddle
    fitted = f"the learning rate fits (it reached {rate:.2g})"
    claim = f"The weights are frozen: {fitted}, and still the policy has not moved; {claim}."
    grad = facts.mean("grad_norm")
    evidence |= {"grad_norm": grad} if grad is not None else {}
    if told := chain.words(facts):
        claim += f" As far as the chain from reward to policy is measured: {told}."
    remedy = ("a look at which weights learn, at learn.loss and at the methods: something stops the gradient",)
    if facts.course.amount("policy.lora_rank"):
        remedy = ("policy.lora_targets that the model has, or policy.lora_rank=0",)
    return suspect("frozen", 0.93, claim, evidence, remedy)


def _warned_low(facts: Facts) -> Finding | None:
    """What the run said of its rate, where its steps are too few to show it."""
    said = facts.warned.get("rate_low")
    if said is None or facts.fine or (facts.distance or 0.0) >= HELD:
        return None
    claim = f"The learning rate is too low, as the run warned {_when(said)}: {said.get('text')}."
    return suspect("rate_low", 0.8, claim, {}, _larger(facts), int(said["step"]))


def _warned_high(facts: Facts) -> Finding | None:
    said = facts.warned.get("rate_high")
    if said is None or facts.fine:
        return None
    claim = f"The learning rate is too high, as the run warned {_when(said)}: {said.get('text')}."
    fits = f"; {facts.fitting_rate:g} fits" if facts.fitting_rate else ""
    return suspect("rate_high", 0.85, claim, {}, (slower(facts.course) + fits,), int(said["step"]))


def _when(said: Mapping[str, object]) -> str:
    return f"at step {said['step']}" if said["step"] else "before its first step"


def _larger(facts: Facts) -> tuple[str, ...]:
    return ("a larger learn.lr" + (f" ({facts.fitting_rate:g})" if facts.fitting_rate else ""),)


def _same_evaluations(facts: Facts) -> bool:
    """The first and last evaluation agree in every number: the same games, played the same."""
    for split in facts.course.splits:
        keys = [f"eval/{split}/{name}" for name in ("success", "return", "turns", "valid_ratio")]
        curves = [facts.course.curve(key) for key in keys]
        if len(curves[0]) < 2 or any(
            len(curve) < 2 or abs(curve.values[0] - curve.values[-1]) > 1e-9 for curve in curves[1:]
        ):
            return False
        if not curves[0].values[-1]:  # where nothing is won all may be alike by chance
            return False
    return bool(facts.course.splits)


def held(facts: Facts) -> Finding | None:
    """A KL term that outweighs the reward."""
    weight, moved = facts.kl_weight, facts.distance
    if weight is None or weight < 10 * USUAL_KL or moved is None:
        return None
    if facts.settled or facts.steps < 6 or facts.equal >= 0.8:
        return None
    if moved >= HELD and not (weight >= 1 and moved < 5 * HELD):
        return None
    claim = f"The KL term holds the policy where it began: learn.kl, its weight, is {weight:g}, "
    claim += f"{weight / USUAL_KL:.0f} times what most recipes have, and after {facts.success.steps[-1]} steps the "
    claim += "policy is "
    claim += f"{nats(moved)} nats a token away."
    return suspect(
        "kl_high",
        0.8 + (0.13 if weight >= 1 else 0.05),
        claim,
        {"weight": weight, "kl": moved},
        (f"a smaller learn.kl (most recipes have {USUAL_KL:g})",),
    )


def _damage(facts: Facts) -> tuple[list[str], float]:
    """What was ruined, in words, and how much that bears."""
    said: list[str] = []
    outcome = facts.outcome
    if outcome is not None and outcome.kind == "fell":
        said.append(f"success fell from {percent(outcome.start.value)} to {percent(outcome.end.value)}")
    if outcome is not None and outcome.kind == "lost":
        said.append(
            f"success rose to {percent(outcome.best.value)} by step {outcome.best_step} "
            f"and fell to {percent(outcome.end.value)}"
        )
    if not said:
        for split, change in facts.evaluated.items():
            if change < 0:
                first, last = facts.evaluations[split]
                said.append(f"success on {split} games fell from {percent(first.value)} to {percent(last.value)}")
                break
    if facts.valid_lost:
        first, last = facts.eval_valid_lost or (facts.valid.start, facts.valid.end)
        said.append(f"valid actions went from {percent(first)} to {percent(last)} of the turns")
    if facts.erupted and not facts.fine:
        rise = facts.phases.eruptions[0]
        said.append(f"entropy rose from {nats(rise.before)} to {nats(rise.top)} nats a token")
    return said, 0.25 * len(said)


def critic(facts: Facts) -> Finding | None:
    """A critic whose values are far beyond anything that is paid."""
    values, paid, spread = (facts.course.curve(key).values for key in ("critic/value", "return/mean", "return/std"))
    if facts.fine or not values or not paid:
        return None
    farthest = max(values, key=abs)
    largest = max(abs(mean) + 3 * std for mean, std in zip(paid, spread or (0.0,) * len(paid), strict=False))
    if abs(farthest) < OFF * max(largest, 1e-6):
        return None
    explained = facts.mean("critic/explained")
    rate = facts.course.amount("critic.lr")
    claim = f"The critic (the model that estimates returns) is far off: its mean value reaches {farthest:.3g}, while "
    claim += f"returns lie within {largest:.3g}"
    claim += f", and it explains {percent(explained)} of their variance" if explained and explained > 0 else ""
    claim += f" (critic.lr is {rate:g})." if rate is not None else "."
    remedy = ("a smaller critic.lr (1e-5 is usual for language models)", "an algorithm without a critic, such as grpo")
    return suspect("critic", 0.93, claim, {"value": farthest, "return": largest}, remedy)


def drift(facts: Facts) -> Finding | None:
    """A policy that was ruined by steps that were too large, or that nothing held."""
    said, hurt = _damage(facts)
    far = facts.farthest >= FAR or facts.jumps >= JUMP
    times = facts.times_rate
    wild = not facts.fine and (facts.wrecked or (times is not None and times >= 5 and far and facts.sick))
    if (not said and not wild) or (facts.fine and not facts.valid_lost) or facts.unmoved:
        return _warned_high(facts)
    strength = 0.3 + min(0.4, hurt) + (0.15 if far else 0.0) + (0.2 if facts.wrecked else 0.0)
    if times is not None:
        strength += 0.25 if times >= 5 else 0.12 if times >= 2.5 else -0.15 if times <= 1.5 else 0.0
    decay = facts.course.amount("learn.weight_decay") or 0.0
    if decay >= 1 and said:
        claim = (
            f"Weight decay pulls the weights to zero faster than anything is learnt (learn.weight_decay is {decay:g}): "
        )
        claim += f"{listed(said)}."
        return suspect("weight_decay", strength + 0.1, claim, {"decay": decay}, ("learn.weight_decay=0",))
    free = facts.kl_weight == 0
    strength += 0.15 if free else 0.0
    evidence = {"farthest": facts.farthest, "jumps": facts.jumps} | ({"times": times} if times is not None else {})
    story = f": {listed(said)}" if said else ""
    moved = (
        f" It came to be {nats(facts.farthest)} nats a token from where it began (KL)."
        if facts.farthest >= FAR
        else (f" Single steps move it by {nats(facts.jumps)} nats a token (kl/old)." if facts.jumps >= JUMP else "")
    )
    fitting, fits = facts.fitting_rate, ""
    if times is not None and fitting is not None and times >= 2:
        fits = f", {(facts.lr or times * fitting) / fitting:.0f} times the {fitting:g} that fits a model of this size"
    at = f"learn.lr is {facts.lr:g}{fits}" if facts.lr is not None else "learn.lr"
    if free:
        high = times is not None and times >= 2
        claim = "Nothing holds the policy: learn.kl, the weight of the KL term, is 0"
        claim += f", and the learning rate is high ({at})" if high else ""
        claim += f". It drifted away{story}.{moved}"
        remedy = (f"learn.kl={USUAL_KL:g} (it is 0)", *((slower(facts.course),) if times is None or high else ()))
        return suspect("no_kl", strength, claim, evidence, remedy)
    claim = f"The learning rate is too high ({at}): the policy is ruined by its own steps{story}.{moved}"
    remedy = (slower(facts.course) + (f"; {facts.fitting_rate:g} fits" if fits else ""),)
    strength = strength if times is not None and times > 1.5 else min(strength, 0.65)  # a rate that may well fit
    return suspect("rate_high", strength, claim, evidence, remedy)


def bonus(facts: Facts) -> Finding | None:
    """A method that pays for entropy, more than the task pays."""
    on = [name for name in (*BONUSES, "epo") if name in facts.course.methods]
    entropy = facts.entropy
    if not on or facts.fine or len(entropy) < 4:
        return None
    grown = entropy.end >= 1.5 * entropy.start and entropy.end - entropy.start > 0.05
    if not (facts.erupted or grown):
        return None
    name = on[0]
    key = f"method.{name}.{BONUSES.get(name, 'coefficient')}"
    value = facts.course.amount(key)
    is_ = f" ({key} is {value:g})" if value is not None else ""
    claim = f"The entropy bonus is too large: {name}{is_} pays for a more open choice of the next token, and the "
    claim += "policy takes "
    claim += f"that pay. Its entropy rose from {nats(entropy.start)} to "
    claim += f"{nats(entropy.end)} nats a token."
    remedy = (f"a smaller {key}" + (f" (it is {value:g})" if value is not None else ""), f"no {name}")
    return suspect("entropy_bonus", 0.96, claim, {"before": entropy.start, "after": entropy.end}, remedy)


def narrow_clip(facts: Facts) -> Finding | None:
    """A clip that cuts most of what there is to learn."""
    low, high = facts.course.amount("learn.loss.clip_low"), facts.course.amount("learn.loss.clip_high")
    if facts.fine or low is None or high is None or facts.course.setting("learn.loss.kind") == "sequence":
        return None
    cut = facts.mean("clip/fraction") or 0.0
    if min(low, high) > 0.05 or cut < 0.1:
        return None
    claim = f"The clip is too narrow: {percent(cut)} of the tokens were left out of an update because their "
    claim += "probability had "
    claim += (
        f"changed by more than the clip lets it (learn.loss.clip_low is {low:g}, clip_high {high:g}; 0.2 is usual)."
    )
    strength = 0.6 + 0.35 * min(1.0, 2 * cut) + (0.05 if min(low, high) <= 0.01 else 0.0)
    return suspect(
        "clip_narrow",
        min(strength, 0.92),
        claim,
        {"clipped": cut, "low": low, "high": high},
        ("learn.loss.clip_low=0.2 and learn.loss.clip_high=0.2",),
    )


def reused(facts: Facts) -> Finding | None:
    """Episodes that are learnt from so often that they are no longer the policy's own."""
    passes = (facts.course.amount("learn.epochs") or 1) * (facts.course.amount("learn.mini_batches") or 1)
    said, hurt = _damage(facts)
    if facts.fine or passes < 12 or not (said or facts.sick):
        return None
    claim = f"Each step's episodes are learnt from too often: {passes:.0f} updates a step (learn.epochs × "
    claim += "learn.mini_batches), "
    claim += (
        f"and single steps move the policy by {nats(facts.jumps)} nats a token{'; ' + listed(said) if said else ''}."
    )
    remedy = ("a smaller learn.epochs", "a smaller learn.mini_batches")
    return suspect(
        "reused", 0.45 + min(0.3, hurt) + (0.15 if facts.jumps >= JUMP else 0.0), claim, {"updates": passes}, remedy
    )


def left_out(facts: Facts) -> Finding | None:
    """Updates that are skipped, or episodes that are masked."""
    masked = facts.share("update/masked")
    skipped = facts.late("update/skipped") or 0.0
    updates = sum(facts.course.curve("update/count").values)
    if masked >= 0.6 and not facts.fine:
        claim = (
            f"{percent(masked)} of the episodes are not learnt from, since they were cut off (learn.mask_truncated)."
        )
        remedy = ("learn.mask_truncated=false", "a larger task.max_turns")
        return suspect("masked", 0.6 + 0.35 * masked, claim, {"share": masked}, remedy)
    if updates and skipped / updates >= 0.1:
        if facts.times_rate is not None and facts.times_rate >= 5:
            claim = f"The learning rate is too high (learn.lr is {facts.lr:g}; {facts.fitting_rate:g} fits a model of "
            claim += "this size): "
            claim += f"{skipped:.0f} of {updates:.0f} updates had numbers that were not finite."
            return suspect("rate_high", 0.97, claim, {"skipped": skipped}, (slower(facts.course),))
        claim = f"{skipped:.0f} of {updates:.0f} updates were left out because their numbers were not finite."
        return suspect("not_finite", 0.85, claim, {"skipped": skipped}, ("run.dtype=float32", slower(facts.course)))
    return None
