"""The chain of the signal: from rewards to a policy that moves, and the first link at which nothing is left of it.

    rewards -> advantages -> tokens that are learnt from -> terms of the loss -> gradient -> clip -> updates -> policy

Each link has its own number, and each is compared with the one before it: advantages with the returns that they are
made of, the gradient with the advantages that it is made of. What a link should be needs no list of faults: in the
runs that were looked at whose gradient is the reward's, its norm is 0.02 to 0.6 times the spread of the advantages,
whatever the model, the algorithm and the scale of the rewards (docs/doctor.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from isentrope.core.text import count, listed, nats, percent
from isentrope.diagnosis.causes.suspect import suspect
from isentrope.diagnosis.facts import Facts
from isentrope.diagnosis.remedies import Finding

NONE = 1e-6  # of what the link before has: nothing
LOST = 1e-3  # gradient over the spread of the advantages: far below any that was seen
DROWNED = 3.0  # ... and far above: another term makes it
FEW = 0.2  # share of the response tokens that are learnt from
GROWN = 100.0  # times, of a number of a method's own
EPSILON = 1e-9  # of a single weight's gradient: far below AdamW's epsilon of 1e-8, which then swallows it
SCALED = 0.1  # of adapters' output; 2 is usual
MOSTLY, FEWEST = 0.7, 3  # share of the steps in which all episodes earn the same, and of how many
IDLE = 0.5  # share of the steps with an update of the policy
CHANCE = 5.0  # nats: two episodes so surprising are the same in one case of 148
WIDE = 0.5  # sampling temperature above which the same episode twice is no wonder of the temperature


@dataclass(frozen=True)
class Signal:
    """What there is of it at each link; None: not known."""

    returns: float | None  # their spread
    differ: float  # share of the groups whose episodes earn not all the same
    advantages: float | None  # their spread, of those that are learnt from where that is recorded
    before: float | None  # ... as the estimator gave them
    tokens: float | None  # share of the response tokens for which the policy's loss has a gradient
    gradient: float | None  # its norm, before the clip, over the spread of the advantages
    kept: float | None  # share of it that the clip leaves
    updated: float  # share of the steps in which the policy was updated
    moved: float | None  # nats a token from where it began


def signal_of(facts: Facts) -> Signal:
    curves = facts.course.curve
    spread, norm, clip = (
        _middle(facts, "return/std"),
        _middle(facts, "grad_norm"),
        facts.course.amount("learn.grad_clip"),
    )
    before, learnt = _middle(facts, "advantage/std"), _middle(facts, "advantage/learnt")
    advantages = before if learnt is None else learnt
    gradient = norm / advantages if norm is not None and advantages else None
    kept = min(1.0, clip / norm) if clip and norm else None
    updated = len(curves("grad_norm")) / facts.steps if len(curves("grad_norm")) and facts.steps else 1.0
    tokens = _middle(facts, "update/tokens")
    return Signal(
        spread, 1 - facts.equal, advantages, before, tokens, gradient, kept, updated, facts.distance
    )  # fmt: skip


def _middle(facts: Facts, key: str) -> float | None:
    values = facts.course.curve(key).values
    return median(values) if values else None


def words(facts: Facts) -> str:
    """The chain in numbers, as far as it is known."""
    here, told = signal_of(facts), list[str]()
    if len(facts.valid):
        told.append(f"{percent(facts.mean('valid_ratio') or 0.0)} of the turns are valid actions")
    if len(facts.course.curve("advantage/zero_groups")):
        told.append(f"episodes of {percent(here.differ)} of the groups earn differently")
    told += [f"advantages have a spread of {here.advantages:.2g}"] if here.advantages is not None else []
    told += [f"the gradient's norm is {here.gradient:.2g} times that"] if here.gradient is not None else []
    told += [f"the clip leaves {percent(here.kept)} of it"] if here.kept is not None else []
    told += [f"the policy came {nats(here.moved)} nats a token from where it began"] if here.moved is not None else []
    return listed(told)


def broken(facts: Facts) -> Finding | None:
    """The first link that lets nothing through."""
    if facts.fine or facts.steps < 4:
        return None
    here = signal_of(facts)
    return next((found for link in LINKS if (found := link(facts, here)) is not None), None)


def rewards_gone(facts: Facts, here: Signal | None = None) -> Finding | None:
    """Games are won and lost, and the reward is the same."""
    won, spread = facts.mean("success/all") or 0.0, facts.course.curve("return/std")
    mixed = [step for step, share in zip(facts.success.steps, facts.success.values, strict=True) if 0 < share < 1]
    spreads = spread.at(mixed).values  # where some were won and some were not
    if len(spreads) < FEWEST or (equal := sum(value < 1e-6 for value in spreads) / len(spreads)) < MOSTLY:
        return None
    claim = (
        f"All episodes get the same reward, won or not: {percent(won)} of them were won, and in {percent(equal)} "
        "of the steps with wins and losses their returns do not differ "
        f"({facts.mean('return/mean') or 0.0:.2g} on average). Nothing can be learnt from equal rewards."
    )
    if facts.own_reward:
        claim += (
            f" They are those of task.reward ({facts.course.setting('task.reward')}), which pays for something that "
        )
        claim += "hardly ever happens, or for everything alike."
    return suspect("equal_rewards", 0.97, claim, {"steps": equal, "won": won}, reward_remedy(facts))


def reward_remedy(facts: Facts) -> tuple[str, ...]:
    if facts.own_reward:
        return (
            "task.reward, which gives the rewards of this run: let it pay for what is won",
            'task.reward="", for the world\'s own reward',
        )
    return ("a look at the reward of the world (isentrope play shows it turn by turn)",)


def episodes_repeat(facts: Facts, here: Signal) -> Finding | None:
    """Episodes of a group that are one and the same, though the policy is open enough for others."""
    stored, heat, measured = facts.played, facts.temperature, _middle(facts, "episode/same")
    same, groups = (stored.same, stored.groups) if measured is None else (measured, facts.groups * facts.steps)
    surprise = stored.surprise
    if not stored.groups and len(facts.entropy):
        surprise = facts.entropy.start * (facts.mean("episode/tokens") or 0.0)
    if same < 0.8 or groups < 2 or surprise < CHANCE or (heat is not None and heat < WIDE):
        return None
    claim = (
        f"The sampler repeats its random numbers: in {percent(same)} of {count(groups, 'group')} all episodes are the "
        f"same one, token by token, though the policy is open: an episode has {surprise:.0f} nats, so that even two "
        f"would agree once in e^{surprise:.0f} times. A group whose episodes are equal teaches nothing."
    )
    remedy = ("engine.kind=torch, this package's own sampler",) if _foreign(facts, "engine.kind") else ()
    remedy += ("a look at how the engine seeds its random numbers: each response needs its own",)
    return suspect("repeated_samples", 0.97, claim, {"same": same, "nats": surprise, "groups": groups}, remedy)


def advantages_gone(facts: Facts, here: Signal) -> Finding | None:
    """Returns differ within the groups, and the advantages made of them are all zero."""
    if here.advantages is None or not here.returns or here.returns < 1e-9 or here.differ <= 0.2:
        return None
    if here.advantages > NONE * here.returns:
        return None
    kind = facts.course.setting("learn.advantage.kind")
    by_method = here.before is not None and here.before > NONE * here.returns
    whose = f"the estimator (learn.advantage is {kind})" if not by_method else "a method"
    claim = (
        f"All advantages are zero although returns differ: within {percent(here.differ)} of the groups episodes earn "
        f"differently (the returns' spread is {here.returns:.2g}), and the advantages' spread is "
        f"{here.advantages:.2g}. "
        f"So {whose} takes from each return all that it is, as by comparing each episode with itself, and nothing is "
        "left to learn from."
    )
    if by_method:
        remedy: tuple[str, ...] = (f"without {listed(list(facts.course.methods))}",)
    else:
        remedy = (
            "learn.advantage=grpo, or another of this package's",
            "a look at what the estimator takes its mean over",
        )
    evidence = {"returns": here.returns, "advantages": here.advantages, "differ": here.differ}
    return suspect("advantages_zero", 0.97, claim, evidence, remedy)


def term_drowns(facts: Facts, here: Signal) -> Finding | None:
    """A term of the loss beside which the reward's counts for nothing."""
    if not here.advantages or (here.gradient is not None and here.gradient < DROWNED):
        return None
    terms = facts.course.keys("loss/", facts.course.of_kind("train"))
    sizes = {key: _size(facts, key) for key in terms if key not in ("loss/policy", "loss/total")}
    if not sizes:
        return None
    key = max(sizes, key=lambda name: sizes[name])
    times = sizes[key] / here.advantages
    if times < DROWNED:
        return None
    name = key.removeprefix("loss/")
    claim = (
        f"The term of {name} drowns the reward's: {key} is {sizes[key]:.3g}, while advantages, which the "
        "policy's own loss "
        f"is made of, have a spread of {here.advantages:.2g}"
    )
    if here.gradient is not None:
        claim += (
            f". The gradient's norm is {here.gradient:.2g} times that spread; where it is the reward's, 0.02 to 0.6"
        )
    knobs = _knobs(facts, name)
    set_at = listed([f"{knob} is {value:g}" for knob, value in knobs.items()])
    claim += f"{f'; {set_at}' if set_at else ''}.{_course_of(facts, name, key)}"
    remedy = tuple(f"a smaller {knob} (it is {value:g})" for knob, value in knobs.items()) or (
        f"a smaller weight of {name}",
    )
    remedy += (f"no {name}",) if name != "kl" else ()
    evidence = {"term": sizes[key], "advantages": here.advantages, "times": times}
    return suspect("term", 0.96, claim, evidence, remedy)


def _size(facts: Facts, key: str) -> float:
    return median(map(abs, facts.course.curve(key).values or (0.0,)))


def _course_of(facts: Facts, name: str, key: str) -> str:
    """What of a method's own numbers has grown without end, and whether it pulls the policy back."""
    told, most = "", 0.0
    for own in facts.course.keys(f"{name}/", facts.course.of_kind("train")) or [key]:
        values = [abs(value) for value in facts.course.curve(own).values if value]
        if len(values) > 1 and values[-1] >= max(GROWN, 1.01 * most) * values[0]:
            most = values[-1] / values[0]
            told = f" {own} grew from {values[0]:.2g} to {values[-1]:.2g}, as where a target cannot be met."
    back = facts.distance is not None and facts.distance < 0.7 * facts.farthest
    if "kl" in name:
        told += " It holds the policy at its reference"
        told += f": {nats(facts.distance or 0.0)} nats a token away, {nats(facts.farthest)} before." if back else "."
    return told


def _knobs(facts: Facts, name: str) -> dict[str, float]:
    """The numbers that the settings have for a method."""
    options = facts.course.setting(f"method.{name}", {})
    found = {f"method.{name}.{key}": facts.course.amount(f"method.{name}.{key}") for key in options}
    weighing = {key: value for key, value in found.items() if value is not None}
    main = {key: value for key, value in weighing.items() if key.endswith(("alpha", "coefficient", "weight"))}
    return main or weighing


def gradient_lost(facts: Facts, here: Signal) -> Finding | None:
    """Advantages are there, and next to no gradient comes of them: few tokens count, or adapters hardly reach out."""
    if not _stands(facts) or not here.advantages:
        return None
    weak = here.gradient is not None and here.gradient < LOST
    few = here.tokens is not None and here.tokens < FEW * here.differ
    if not weak and not few:
        return None
    scale = _adapters(facts)
    if scale is not None and scale < SCALED:
        return _scaled_away(facts, here, scale)
    kind = facts.course.setting("learn.loss.kind")
    claim = f"Hardly anything is learnt from: advantages have a spread of {here.advantages:.2g}"
    if here.gradient is not None:
        claim += f", and the gradient's norm is {here.gradient:.2g} times that (0.02 to 0.6 in runs that learn)"
    claim += (
        f"; the policy's loss has a gradient for {percent(here.tokens)} of the response tokens"
        if here.tokens is not None
        else ""
    )
    claim += f". So the loss (learn.loss is {kind}) leaves out nearly all tokens, or those that count" if kind else ""
    claim += f"{_where(facts)}."
    remedy = ("learn.loss=clip, or another of this package's",) if _foreign(facts, "learn.loss.kind") else ()
    remedy += ("a look at which tokens the loss is 0 for",)
    evidence = {"gradient": here.gradient or 0.0} | ({"tokens": here.tokens} if here.tokens is not None else {})
    return suspect("tokens", 0.95, claim, evidence, remedy)


def _scaled_away(facts: Facts, here: Signal, scale: float) -> Finding:
    rank, alpha = facts.course.amount("policy.lora_rank") or 1.0, facts.course.amount("policy.lora_alpha") or 0.0
    claim = (
        "Adapters hardly reach the policy: what they give is scaled by policy.lora_alpha / policy.lora_rank, "
        f"{alpha:g} / "
        f"{rank:g} = {scale:.2g}, and 2 is usual. So the gradient's norm is {here.gradient or 0.0:.2g} times "
        "the spread of the "
        f"advantages (0.02 to 0.6 in runs that learn){_where(facts)}."
    )
    evidence = {"scale": scale, "gradient": here.gradient or 0.0, "kl": facts.distance or 0.0}
    return suspect("adapters", 0.96, claim, evidence, (f"policy.lora_alpha={2 * rank:g} (it is {alpha:g})",))


def _adapters(facts: Facts) -> float | None:
    """By which adapters' output is multiplied."""
    rank, alpha = facts.course.amount("policy.lora_rank"), facts.course.amount("policy.lora_alpha")
    return alpha / rank if rank and alpha is not None else None


def clipped_away(facts: Facts, here: Signal) -> Finding | None:
    """A clip that leaves so little of the gradient that the optimiser's epsilon is more."""
    clip, norm = facts.course.amount("learn.grad_clip"), _middle(facts, "grad_norm")
    if not clip or here.kept is None or here.kept > 0.01 or not norm or not _stands(facts):
        return None
    each = clip / math.sqrt(facts.parameters or 1e6)
    if each > EPSILON:
        return None
    claim = (
        f"The gradient is clipped to nothing: learn.grad_clip is {clip:g} and the gradient's norm {norm:.2g}, so "
        f"{here.kept:.1g} of it is left. For a single weight that is some {each:.1g}, far below the optimiser's "
        "epsilon of "
        f"1e-8, and the update is none{_where(facts)}."
    )
    evidence = {"clip": clip, "norm": norm, "kept": here.kept}
    return suspect("clipped_away", 0.96, claim, evidence, (f"learn.grad_clip=1 (it is {clip:g})",))


def not_updated(facts: Facts, here: Signal) -> Finding | None:
    """Steps in which something is learnt, and not by the policy."""
    steps, first = facts.steps, facts.course.amount("critic.warmup") or 0.0
    if here.updated > IDLE or steps < 6:
        return None
    updated = round(here.updated * steps)
    claim = f"The policy is hardly trained: it was updated in {updated} of {count(steps, 'step')}"
    if first >= IDLE * steps:
        claim += f". In the first {first:.0f} the critic alone learns (critic.warmup is {first:.0f})"
        remedy: tuple[str, ...] = ("critic.warmup=3, or a few steps more",)
    else:
        remedy = ("a look at why updates were left out (learn.resample, masks)",)
    return suspect("not_updated", 0.95, f"{claim}.", {"updated": updated, "steps": steps, "warmup": first}, remedy)


def _stands(facts: Facts) -> bool:
    """The policy is where it began, or nobody measured how far it is."""
    return facts.unmoved or facts.distance is None


def _where(facts: Facts) -> str:
    """How far the policy came, to end a sentence with."""
    if facts.distance is None:
        return ""
    steps, moved = facts.success.steps[-1], nats(facts.distance)
    return f", and after {steps} steps the policy is {moved} nats a token from where it began"


def _foreign(facts: Facts, name: str) -> bool:
    """Whether a part comes from outside of this package."""
    return ":" in str(facts.course.setting(name, ""))


LINKS: tuple[Callable[[Facts, Signal], Finding | None], ...] = (
    rewards_gone, episodes_repeat, advantages_gone, term_drowns, gradient_lost, clipped_away, not_updated,
)  # fmt: skip
