"""From the episodes of a step to its numbers. The meaning of each key stands in glossary.py.

A mean over nothing, or over what the engine could not tell (NaN), is left out: no key is better than a NaN or a zero
that nobody measured. Sums run in float64, so the numbers do not depend on how long the step was.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from isentrope.instruments.stops import FAILURES, cut_off, lost_to_faults
from isentrope.types import Episode, Floats, Turn

Metrics = dict[str, float]
EDGE = 10  # tokens at the start and at the end of an episode that have an entropy of their own


def rollout_metrics(episodes: Sequence[Episode]) -> Metrics:
    """Everything that can be said about a step before its update."""
    if not episodes:
        return {}
    return {
        **outcome_metrics(episodes),
        **length_metrics(episodes),
        **validity_metrics(episodes),
        **entropy_metrics(episodes),
    }


def timing_metrics(play: float, update: float, played: Sequence[Episode], learnt: Sequence[Episode]) -> Metrics:
    """Seconds of the two stages, and the tokens that each worked through per second."""
    sampled = sum(len(turn.response_ids) for episode in played for turn in episode.turns)
    read = sum(len(turn.response_ids) + len(turn.context_ids) for episode in learnt for turn in episode.turns)
    metrics = {"seconds/rollout": play, "seconds/update": update}
    metrics["tokens_per_second/rollout"] = sampled / max(play, 1e-9)
    return metrics | ({"tokens_per_second/update": read / max(update, 1e-9)} if learnt else {})


def eval_metrics(split: str, episodes: Sequence[Episode]) -> Metrics:
    """How well the policy does on a split, with the 95 % interval of its success."""
    if not episodes:
        return {}
    outcome = outcome_metrics(episodes)
    validity = validity_metrics(episodes)
    low, high = wilson(sum(episode.success for episode in episodes), len(episodes))
    metrics = {
        "success": outcome["success/all"],
        "low": low,
        "high": high,
        "games": float(len(episodes)),
        "return": outcome["return/mean"],
        "turns": _mean([len(episode.turns) for episode in episodes]),
    }
    metrics |= {key: value for key, value in outcome.items() if key.startswith("success/") and key != "success/all"}
    kinds = Counter(key_part(episode.kind) for episode in episodes)
    metrics |= {f"games/{kind}": float(count) for kind, count in kinds.items()}
    if "valid_ratio" in validity:
        metrics["valid_ratio"] = validity["valid_ratio"]
    metrics |= {f"cut/{stop}": float(count) for stop, count in cut_off(episodes).items()}
    faults = lost_to_faults(episodes)
    if faults:
        metrics["failures"] = float(faults)
    return {f"eval/{key_part(split)}/{key}": value for key, value in metrics.items()}


def outcome_metrics(episodes: Sequence[Episode]) -> Metrics:
    returns = [episode.ret for episode in episodes]
    by_kind: dict[str, list[bool]] = defaultdict(list)
    for episode in episodes:
        by_kind[key_part(episode.kind)].append(episode.success)
    stops = Counter(key_part(episode.stop) for episode in episodes)
    return {
        "return/mean": _mean(returns),
        "return/std": float(np.std(returns)),
        **{f"success/{kind}": _mean(wins) for kind, wins in by_kind.items()},
        "success/all": _mean([episode.success for episode in episodes]),
        **{f"stop/{reason}": count / len(episodes) for reason, count in stops.items()},
        "failures": float(sum(episode.stop in FAILURES for episode in episodes)),
    }


def length_metrics(episodes: Sequence[Episode]) -> Metrics:
    turns = [turn for episode in episodes for turn in episode.turns]
    contexts = [length for episode in episodes for length in _context_lengths(episode)]
    spans = {
        "response/think_tokens": [turn.think_span for turn in turns],
        "response/action_tokens": [turn.action_span for turn in turns],
    }
    metrics = {
        "episode/turns": _mean([len(episode.turns) for episode in episodes]),
        "episode/tokens": _mean([sum(len(turn.response_ids) for turn in episode.turns) for episode in episodes]),
    }
    if turns:
        metrics["response/tokens"] = _mean([len(turn.response_ids) for turn in turns])
        metrics["context/tokens"] = _mean(contexts)
        metrics["context/dropped"] = _mean([turn.dropped for turn in turns])
        metrics["context/shortened"] = _mean([turn.dropped > 0 for turn in turns])
    for key, found in spans.items():
        lengths = [span[1] - span[0] for span in found if span is not None]
        metrics |= _mean_of({key: lengths})
    return metrics


def validity_metrics(episodes: Sequence[Episode]) -> Metrics:
    turns = [turn for episode in episodes for turn in episode.turns]
    if not turns:
        return {}
    faults = Counter(key_part(turn.verdict) for turn in turns if not turn.valid)
    return {
        "valid_ratio": _mean([turn.valid for turn in turns]),
        **{f"verdict/{reason}": count / len(turns) for reason, count in faults.items()},
    }


def entropy_metrics(episodes: Sequence[Episode]) -> Metrics:
    """Entropy per token, averaged at each level and over each part of a response, and the surprisal."""
    spoken = [[turn for turn in episode.turns if len(turn.response_ids)] for episode in episodes]
    spoken = [turns for turns in spoken if turns]
    responses = [turn for turns in spoken for turn in turns]
    by_episode = [_join(turn.entropies for turn in turns) for turns in spoken]
    parts: dict[str, list[Floats]] = {"think": [], "action": [], "other": []}
    for turn in responses:
        think, action = _inside(turn, turn.think_span), _inside(turn, turn.action_span)
        parts["think"].append(turn.entropies[think])
        parts["action"].append(turn.entropies[action])
        parts["other"].append(turn.entropies[~(think | action)])
    return _mean_of(
        {
            "entropy/token": _join(by_episode),
            **{f"entropy/{name}": _join(values) for name, values in parts.items()},
            "entropy/response": [_mean_of_known(turn.entropies) for turn in responses],
            "entropy/turn": [_mean_of_known([_mean_of_known(turn.entropies) for turn in turns]) for turns in spoken],
            "entropy/episode": [_mean_of_known(values) for values in by_episode],
            "entropy/first10": [_mean_of_known(values[:EDGE]) for values in by_episode],
            "entropy/last10": [_mean_of_known(values[-EDGE:]) for values in by_episode],
            "surprisal/response": [-float(np.sum(turn.logprobs, dtype=np.float64)) for turn in responses],
        }
    )


def wilson(successes: float, n: float) -> tuple[float, float]:
    """Wilson's 95 % interval of a share; it stays inside 0 to 1 and is honest for few games."""
    if n == 0:
        return 0.0, 1.0
    z = 1.959963984540054  # the normal quantile of 97.5 %
    share = successes / n
    centre = share + z * z / (2 * n)
    half = z * (share * (1 - share) / n + z * z / (4 * n * n)) ** 0.5
    scale = 1 + z * z / n
    # The share itself bounds both ends: rounding must not push it out of its own interval.
    return min(share, max(0.0, (centre - half) / scale)), max(share, min(1.0, (centre + half) / scale))


def key_part(name: str) -> str:
    """A name from a task as one part of a metric key."""
    return "_".join(name.replace("/", " ").split()) or "unnamed"


def _context_lengths(episode: Episode) -> list[int]:
    """Tokens in front of each response; a turn that continues has the earlier turns in front of it too."""
    lengths: list[int] = []
    before = 0
    for turn in episode.turns:
        length = len(turn.context_ids) + (before if turn.continues else 0)
        lengths.append(length)
        before = length + len(turn.response_ids)
    return lengths


def _inside(turn: Turn, span: tuple[int, int] | None) -> NDArray[np.bool_]:
    mask = np.zeros(len(turn.response_ids), dtype=np.bool_)
    if span is not None:
        mask[span[0] : span[1]] = True
    return mask


def _join(parts: Iterable[Floats]) -> Floats:
    return np.concatenate([np.empty(0, dtype=np.float32), *parts])


def _mean(values: Sequence[float] | Floats) -> float:
    return float(np.mean(values, dtype=np.float64))


def _mean_of_known(values: Sequence[float] | Floats) -> float:
    """The mean of what an engine could tell; NaN if it could tell nothing."""
    found = np.asarray(values)
    known = found[~np.isnan(found)]
    return _mean(known) if len(known) else float("nan")


def _mean_of(values: dict[str, Sequence[float] | Floats] | dict[str, list[int]]) -> Metrics:
    means = {key: _mean_of_known(found) for key, found in values.items()}
    return {key: mean for key, mean in means.items() if not np.isnan(mean)}
