"""Causes that lie in what there is to learn from: rewards, groups and games."""

from __future__ import annotations

import math

import numpy as np

from isentrope.core.stats import difference_of
from isentrope.core.text import count, listed, percent
from isentrope.diagnosis.alarms import number
from isentrope.diagnosis.causes.chain import reward_remedy, rewards_gone
from isentrope.diagnosis.causes.compared import cut_short, other_form
from isentrope.diagnosis.causes.suspect import suspect
from isentrope.diagnosis.facts import Facts
from isentrope.diagnosis.remedies import Finding
from isentrope.runs.curves import Curve

COMPARES = ("grpo", "rloo", "gigpo", "gigpo_mixed")  # estimators that compare the episodes of a group
LINKED = 0.6  # a correlation of reward and success from which on the reward follows success; one of one's own: more
EQUAL = 0.8  # share of equal groups in which hardly anything is taught


def equal_groups(facts: Facts) -> Finding | None:
    """Groups whose episodes all did equally well, for no reason that another cause tells."""
    if facts.equal < EQUAL or facts.fine or facts.steps < 3:
        return None
    won = facts.mean("success/all") or 0.0
    claim = f"In {percent(facts.equal)} of the groups all episodes got the same reward. A group teaches by its "
    claim += "differences, "
    claim += f"so nearly nothing was taught; {percent(won)} of the episodes were won."
    remedy = ("easier tasks or a warm-up (isentrope sft)",) if won < 0.2 else ("harder tasks",) if won > 0.8 else ()
    remedy += ("larger groups (rollout.group_size)",)
    remedy += (
        () if facts.course.amount("learn.resample") else ("dynamic sampling (learn.resample=3, or algorithm dapo)",)
    )
    return suspect("equal_rewards", 0.55 + 0.15 * facts.equal, claim, {"share": facts.equal}, remedy)


def small_group(facts: Facts) -> Finding | None:
    """Groups in which there is next to nothing to compare."""
    kind = facts.course.setting("learn.advantage.kind") or "grpo"
    if not facts.size or facts.size > 3 or facts.fine or facts.steps < 5 or kind not in COMPARES:
        return None
    if facts.size == 3 and not facts.sick:
        return None
    strength = (0.7 if facts.size <= 2 else 0.5) + (0.1 if facts.equal >= 0.5 else 0.0)
    claim = f"The groups are too small: {facts.size} episodes in a group, {facts.groups * facts.size} a step. In "
    claim += (
        f"{percent(facts.equal)} of the groups both did"
        if facts.size == 2
        else f"{percent(facts.equal)} of the groups all did"
    )
    claim += " equally well and taught nothing, and where they differ the comparison is mostly chance."
    return suspect(
        "small_group",
        strength,
        claim,
        {"size": facts.size, "equal": facts.equal},
        ("larger groups (rollout.group_size of 6 to 16)",),
    )


def _correlation(a: list[float], b: list[float]) -> tuple[float, float] | None:
    """The correlation and the upper end of its 95 % interval (Fisher); None where one of the two does not vary."""
    if len(a) < 8 or np.ptp(a) < 1e-9 or np.ptp(b) < 1e-9:
        return None
    r = float(np.corrcoef(a, b)[0, 1])
    if abs(r) >= 1:
        return r, r
    return r, math.tanh(math.atanh(r) + 1.96 / math.sqrt(len(a) - 3))


def _paid(facts: Facts) -> Curve:
    """The mean reward of an episode, penalties for invalid turns left out where the world's own reward ran."""
    returns, cost = facts.course.curve("return/mean"), facts.course.amount("task.invalid_reward") or 0.0
    valid, turns = facts.course.curve("valid_ratio"), facts.course.curve("episode/turns")
    if facts.own_reward or not cost or not len(returns) == len(valid) == len(turns):
        return returns
    net = [r - cost * (1 - v) * t for r, v, t in zip(returns.values, valid.values, turns.values, strict=True)]
    return Curve(returns.steps, tuple(net))


def odd_reward(facts: Facts) -> Finding | None:
    """A reward that does not follow success: noise, or pay for something else."""
    if facts.fine or facts.steps < 6 or rewards_gone(facts) is not None:
        return None
    plays = facts.plays
    linked = _correlation([float(play.success) for play in plays], [play.reward for play in plays])
    wins = sum(play.success for play in plays)
    source = f"{len(plays)} stored episodes"
    if linked is None or min(wins, len(plays) - wins) < 5:
        paid, success = _paid(facts), facts.success
        linked = _correlation(list(success.values), list(paid.values)) if len(paid) == len(success) >= 10 else None
        source = f"{facts.steps} steps"
    paid = _paid(facts)
    rise = paid.end - paid.start if len(paid) >= 4 else 0.0
    sizes = facts.course.curve("return/std").values
    spread = sum(sizes) / len(sizes) if sizes else 0.0
    chance = 3 * spread * math.sqrt(2 / max(1, paid.width * facts.groups)) if len(paid) else 0.0
    rose = rise > max(chance, paid.margin if len(paid) else 0.0, 1e-6)
    if linked is None:
        won = facts.mean("success/all") or 0.0
        if not (rose and won < 0.02 and facts.episodes >= 30):
            return None
        linked = (0.0, 0.0)
    r, upper = linked
    if upper >= (0.8 if facts.own_reward else LINKED):
        return None
    evidence = {"correlation": r, "upper": upper, "rise": rise}
    weak = (
        f"Over {source} the reward and success have a correlation of {r:.2f} (1: the reward follows success; 0: it has "
    )
    weak += "nothing to do with it)"
    if upper < 0:
        claim = (
            "The reward pays for something else than the task, or has the wrong sign: episodes that are won get less "
        )
        claim += f"than others. {weak}."
        return suspect("reward_leak", 0.94, claim, evidence, reward_remedy(facts))
    if rose:
        outcome = facts.outcome
        went = (
            f"success went from {percent(outcome.start.value)} to {percent(outcome.end.value)}"
            if outcome
            else "success did not rise"
        )
        claim = "The reward leaks: it pays for something else than the task. The return rose "
        claim += f"from {paid.start:.3g} to {paid.end:.3g}, while {went}. {weak}."
        return suspect("reward_leak", 0.94, claim, evidence, reward_remedy(facts))
    claim = f"The reward is noise: it does not say which episodes are good. {weak}, and the return "
    claim += f"did not rise: {paid.start:.3g} at the start, {paid.end:.3g} in the end."
    return suspect("reward_noise", 0.92, claim, evidence, reward_remedy(facts))


def penalty(facts: Facts) -> Finding | None:
    """A penalty for invalid actions beside which a win counts for little."""
    cost, win = -(facts.course.amount("task.invalid_reward") or 0.0), facts.course.amount("task.success_reward")
    if win is None or cost <= 0 or facts.own_reward or facts.fine or not (facts.sick or facts.steps >= 10):
        return None
    ratio = cost / max(abs(win), 1e-12)
    if ratio < 0.2:
        return None
    claim = f"The penalty outweighs the task: an invalid action costs {cost:g} and a win pays {win:g} "
    claim += "(task.invalid_reward, "
    claim += "task.success_reward; most recipes have 0.1 and 10). What is learnt is to make no mistakes, not to win"
    if len(facts.valid) >= 4:
        claim += f": valid actions went from {percent(facts.valid.start)} to {percent(facts.valid.end)}"
    remedy = ("task.invalid_reward=-0.1 with task.success_reward=10",)
    return suspect("penalty", 0.9 if ratio >= 1 else 0.65, f"{claim}.", {"penalty": cost, "win": win}, remedy)


def scale(facts: Facts) -> Finding | None:
    """Rewards on a scale that the other terms of the loss do not share."""
    spread = facts.mean("advantage/std")
    win = facts.course.amount("task.success_reward")
    if facts.fine or (not facts.sick and facts.steps < 10) or spread is None or spread == 0:
        return None
    if 1e-2 <= spread <= 30:
        return None
    size = "large" if spread > 30 else "small"
    claim = "The rewards are on an odd scale: advantages have a spread of "
    claim += f"{spread:.2g}, too {size} beside the other terms of the loss" + (
        f" (task.success_reward is {win:g})." if win else "."
    )
    return suspect(
        "reward_scale",
        0.75,
        claim,
        {"spread": spread},
        ("learn.advantage.divide_by_std=true, which makes the scale not matter", "task.success_reward=10"),
    )


def same_games(facts: Facts) -> Finding | None:
    """Training plays few games, again and again."""
    dealt = {(play.step, play.group): play.index for play in facts.plays}
    games, groups, where = len(set(dealt.values())), len(dealt), "of the steps that were looked at"
    said = facts.warned.get("same_games")
    if groups < 6 and said is not None:  # hardly any episode is stored, and the run has counted them
        games, groups = (round(number(said, name) or 0.0) for name in ("games", "groups"))
        where = f"of its first {said['step']} steps"
    if groups < 6 or games > 0.34 * groups:
        return None
    if facts.fine and any(change > 0 for change in facts.evaluated.values()):
        return None
    claim = f"Training plays the same games again and again: {count(games, 'different game')} in the {groups} "
    claim += f"groups {where}. A policy that knows those by heart need not know any other"
    claim += f"; {_unseen(facts)}." if _unseen(facts) else "."
    kind = facts.course.setting("task.sampler.kind")
    remedy = (
        ("task.sampler.kind=in_turn, which plays new games",)
        if kind not in (None, "in_turn")
        else ("more games in the training split",)
    )
    return suspect(
        "same_games",
        0.9 if games <= 0.15 * groups else 0.7,
        claim,
        {"games": games, "groups": groups},
        remedy,
    )


def other_games(facts: Facts) -> Finding | None:
    """What is learnt in training does not show in evaluations."""
    course, train = facts.course, facts.outcome
    if not facts.evaluations or any(change > 0 for change in facts.evaluated.values()):
        return None
    if same_games(facts) is not None:
        return None  # so few games have few kinds
    trained = {key.removeprefix("success/") for key in course.keys("success/", course.of_kind("train"))} - {"all"}
    asked = {f"eval/{split}/games/": split for split in course.splits}
    judged = {key.removeprefix(start) for start in asked for key in course.keys(start)}
    strange = judged - trained
    dealt = facts.steps * facts.groups >= 3 * len(judged | trained)
    if trained and judged and dealt and len(strange) >= 0.5 * len(judged):
        claim = f"Training and evaluations play different kinds of games: training plays {listed(sorted(trained))}, "
        claim += "evaluations "
        claim += f"play {listed(sorted(judged))}. {_unseen(facts)[:1].upper()}{_unseen(facts)[1:]}."
        return suspect(
            "other_games",
            0.9,
            claim,
            {"kinds": len(strange)},
            ("training on the kinds that count, or evaluations on those that are trained",),
        )
    changes = [last.value - first.value for first, last in facts.evaluations.values()]
    if train is None or train.kind != "rose" or other_form(facts) is not None or cut_short(facts) is not None:
        return None
    gain = train.end.value - train.start.value
    if gain < 0.2 or max(changes) > 0.25 * gain or facts.course.amount("eval.games") is None:
        return None
    if any(difference_of(last, first).interval.high > 0.5 * gain for first, last in facts.evaluations.values()):
        return None  # so few games that they may have risen half as much
    claim = f"What is learnt in training does not carry over: success rose from {percent(train.start.value)} to "
    claim += f"{percent(train.end.value)} on training games; {_unseen(facts)}."
    return suspect(
        "other_games",
        0.65,
        claim,
        {"gain": gain},
        ("more and other training games", "an evaluation on games like those of training"),
    )


def _unseen(facts: Facts) -> str:
    said = [
        f"on {split} games success went from {percent(first.value)} to {percent(last.value)}"
        for split, (first, last) in facts.evaluations.items()
    ]
    return listed(said)
