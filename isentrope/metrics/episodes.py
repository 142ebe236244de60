"""From the episodes of a step to its numbers. The meaning of each key stands in glossary.py.

A mean over nothing, or over what the engine could not tell (NaN), is left out: no key is better than a NaN or a zero
that nobody measured. Sums run in float64, so the numbers do not depend on how long the step was.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from isentrope.agent.context import context_lengths
from isentrope.core.stats import wilson
from isentrope.core.types import CUTS, FAILURES, FAULTS, Episode
from isentrope.learning.tokens import step_tokens
from isentrope.metrics.entropy import entropy_metrics, key_part, likelihood_metrics, surprisal_metrics
from isentrope.metrics.means import Metrics, known_means, mean
from isentrope.metrics.temperature import temperature_metrics

_WORD = re.compile(r"[a-z_]{1,20}(?![a-z_])")
OFTEN, OFTEN_SHARE = 5, 0.02  # times that a word has begun an action, and share of the actions, to have a number

__all__ = ["Metrics", "eval_metrics", "key_part", "rollout_metrics"]


def rollout_metrics(episodes: Sequence[Episode]) -> Metrics:
    """Everything that can be said about a step before its update, and without knowing what tokens read as."""
    if not episodes:
        return {}
    step = step_tokens(episodes)
    of_episodes = outcome_metrics(episodes) | length_metrics(episodes) | validity_metrics(episodes)
    of_episodes |= accepted_metrics(episodes) | sameness_metrics(episodes)
    of_tokens = entropy_metrics(step) | surprisal_metrics(step) | likelihood_metrics(step) | temperature_metrics(step)
    return of_episodes | of_tokens


def eval_metrics(split: str, episodes: Sequence[Episode]) -> Metrics:
    """How well the policy does on a split, with the 95 % interval of its success."""
    if not episodes:
        return {}
    outcome = outcome_metrics(episodes)
    validity = validity_metrics(episodes)
    interval = wilson(sum(episode.success for episode in episodes), len(episodes))
    metrics = {
        "success": outcome["success/all"],
        "low": interval.low,
        "high": interval.high,
        "games": float(len(episodes)),
        "return": outcome["return/mean"],
        "turns": mean([len(episode.turns) for episode in episodes]),
    }
    apart = ("success/", "reward/")
    metrics |= {key: value for key, value in outcome.items() if key.startswith(apart) and key != "success/all"}
    kinds = Counter(key_part(episode.kind) for episode in episodes)
    metrics |= {f"games/{kind}": float(count) for kind, count in kinds.items()}
    if "valid_ratio" in validity:
        metrics["valid_ratio"] = validity["valid_ratio"]
        metrics["thoughts"] = mean([turn.think_span is not None for episode in episodes for turn in episode.turns])
    metrics |= {f"cut/{stop}": float(count) for stop, count in ended_by(CUTS, episodes).items()}
    if faults := lost_to_faults(episodes):
        metrics["failures"] = float(faults)
        metrics |= {f"failures/{kind}": float(count) for kind, count in ended_by(FAILURES, episodes).items()}
    return {f"eval/{key_part(split)}/{key}": value for key, value in metrics.items()}


def lost_to_faults(episodes: Sequence[Episode]) -> int:
    """Episodes of an evaluation that are not solved for a reason outside the policy."""
    return sum(episode.stop in FAULTS and not episode.success for episode in episodes)


def ended_by(stops_asked: Sequence[str], episodes: Sequence[Episode]) -> dict[str, int]:
    """How many episodes each of these (FAILURES, CUTS) ended; those that ended none are left out."""
    stops = Counter(episode.stop for episode in episodes)
    return {stop: stops[stop] for stop in stops_asked if stops[stop]}


def outcome_metrics(episodes: Sequence[Episode]) -> Metrics:
    returns = [episode.ret for episode in episodes]
    by_kind: dict[str, list[bool]] = defaultdict(list)
    for episode in episodes:
        by_kind[key_part(episode.kind)].append(episode.success)
    stops = Counter(key_part(episode.stop) for episode in episodes)
    return {
        "return/mean": mean(returns),
        "return/std": float(np.std(returns)),
        **{f"reward/{name}": mean(values) for name, values in _by_reward(episodes).items()},
        **{f"success/{kind}": mean(wins) for kind, wins in by_kind.items()},
        "success/all": mean([episode.success for episode in episodes]),
        **{f"stop/{reason}": count / len(episodes) for reason, count in stops.items()},
        "failures": float(sum(episode.stop in FAILURES for episode in episodes)),
        **{f"failures/{kind}": float(count) for kind, count in ended_by(FAILURES, episodes).items()},
    }


def _by_reward(episodes: Sequence[Episode]) -> dict[str, list[float]]:
    """What each reward function gave, of the episodes for which it gave something."""
    by_name: dict[str, list[float]] = defaultdict(list)
    for episode in episodes:
        for name, value in episode.rewards.items():
            by_name[key_part(name)].append(value)
    return by_name


def length_metrics(episodes: Sequence[Episode]) -> Metrics:
    turns = [turn for episode in episodes for turn in episode.turns]
    solved = [episode for episode in episodes if episode.success]
    # An episode that broke is neither solved nor failed.
    failed = [episode for episode in episodes if not episode.success and episode.stop not in FAILURES]
    return known_means(
        {
            "episode/turns": [len(episode.turns) for episode in episodes],
            "episode/tokens": [sum(len(turn.response_ids) for turn in episode.turns) for episode in episodes],
            "response/tokens": [len(turn.response_ids) for turn in turns],
            "observation/characters": [len(turn.observation) for turn in turns],
            "context/tokens": [length for episode in episodes for length in context_lengths(episode)],
            "context/dropped": [turn.dropped for turn in turns],
            "context/shortened": [turn.dropped > 0 for turn in turns],
            "response/thoughts": [turn.think_span is not None for turn in turns],
            "response/think_tokens": [end - start for start, end in filter(None, (t.think_span for t in turns))],
            "response/action_tokens": [end - start for start, end in filter(None, (t.action_span for t in turns))],
            "response/outcome/solved": [len(turn.response_ids) for episode in solved for turn in episode.turns],
            "response/outcome/failed": [len(turn.response_ids) for episode in failed for turn in episode.turns],
        }
    )


def validity_metrics(episodes: Sequence[Episode]) -> Metrics:
    turns = [turn for episode in episodes for turn in episode.turns]
    if not turns:
        return {}
    faults = Counter(key_part(turn.verdict) for turn in turns if not turn.valid)
    mended = Counter(code for turn in turns for code in turn.mended.split())
    return {
        "valid_ratio": mean([turn.valid for turn in turns]),
        **{f"mended/{key_part(code)}": float(count) for code, count in mended.items()},
        **{f"verdict/{reason}": count / len(turns) for reason, count in faults.items()},
    }


def accepted_metrics(episodes: Sequence[Episode]) -> Metrics:
    """The share of the actions that begin with a word that were valid. Rare words are left out, and what is no word."""
    turns = [turn for episode in episodes for turn in episode.turns if turn.action]
    by_word: dict[str, list[bool]] = defaultdict(list)
    for turn in turns:
        if found := _WORD.match(turn.action or ""):
            by_word[found[0]].append(turn.valid)
    least = max(OFTEN, OFTEN_SHARE * len(turns))
    return {f"accepted/{word}": mean(valid) for word, valid in sorted(by_word.items()) if len(valid) >= least}


def sameness_metrics(episodes: Sequence[Episode]) -> Metrics:
    """Whether the episodes of a group that did not break say the same, token by token."""
    said: dict[int, list[bytes]] = defaultdict(list)
    for episode in episodes:
        if episode.turns and episode.stop not in FAILURES:
            said[episode.group].append(b"/".join(turn.response_ids.tobytes() for turn in episode.turns))
    groups = [len(set(texts)) == 1 for texts in said.values() if len(texts) > 1]
    return {"episode/same": mean(groups)} if groups else {}
