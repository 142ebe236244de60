"""Entropy of the next-token distribution, in nats, at each level and cut in several ways.

H_j is the entropy that the sampler recorded for token j, at the temperature of the token. `temperature/not_one` tells
how many were measured elsewhere than at 1; what sets runs side by side marks them (temperature.py). Everything here is
a mean of H_j: over all tokens, over a response and then over responses, over a part of the response, over the turns
from one number up to the next, over the episodes of one task type, over the episodes that were solved or not. But for
one: whether entropy lies in a few responses, which no mean tells.

Surprisal of the policy's own responses, and what learning from them should do to entropy.

    S_j = -log π(token j | what stands before it)      surprisal of a token, at the temperature it was sampled with
    S   = Σ_j S_j                                      surprisal of a response
    S_j - H_j                                          relative surprisal: above 0 for a token rarer than usual there

AEM, Theorem 3.2.2: on the simplex, a natural-gradient step up A · log π(a) changes the entropy H of the distribution
that a was drawn from by

    dH = + A · (S(a) - H)

With a plus: learning more of what is rarer than usual (A > 0, S > H) raises entropy, learning more of the usual lowers
it, and a negative advantage turns both round. Here a token is the draw and what stands before it the state, because
there H is known exactly. The forecast of a step is the mean of A_j · (S_j - H_j) over the tokens that were learnt from,
each with the weight w_j that its policy loss had in the update (token_weights.py, by learn.aggregation, times the
correction of losses/mismatch.py where there is one):

    drift/predicted = Σ_j w_j A_j (S_j - H_j) / Σ_j w_j

With `aggregation = turn`, for example, a token of a long response counts less, and the sign may differ from that of the
plain mean. With `token`, and with `constant`, all weights of a mini-batch are the same. A_j is the advantage that was
learnt from: after all methods. Where it and w_j are the same for all tokens of a response, its terms add up to
w A · (S - C), with C = Σ_j H_j, whose expectation is the response's own entropy (Theorem 3.2.1).
The forecast has no scale (the learning rate is not in it), and an ordinary gradient step need not follow it; that is
why it is compared with the drift that was measured (`observe.py`).
"""

from __future__ import annotations

import numpy as np

from isentrope.core.types import Scores, StepTokens
from isentrope.learning.tokens import ACTION, OTHER, THINK
from isentrope.metrics.means import Metrics, Vector, known, mean_of_known, means_by, sums_by, weighed_mean


def key_part(name: str) -> str:
    """A name from a task as one part of a metric key."""
    return "_".join(name.replace("/", " ").split()) or "unnamed"


def likelihood_metrics(step: StepTokens) -> Metrics:
    """Mean log-probability a token over valid responses, and over all responses of solved and of failed episodes.

    SEAL (Figure 5): in an eruption of entropy the likelihood of valid and of right responses falls along with that of
    wrong ones, although learning was to raise it. The responses are scored by the policy that sampled them.
    """
    logp_N = step.logp_N.astype(np.float64)
    chosen = {
        "valid": step.valid_U[step.turn_N],
        "solved": step.solved_E[step.episode_N],
        "failed": step.failed_E[step.episode_N],
    }
    return known({f"likelihood/{name}": mean_of_known(logp_N[where]) for name, where in chosen.items()})


EDGE = 10  # tokens at the start and at the end of an episode that have an entropy of their own
FEW = 20  # one response in so many, those with most entropy
FROM_TURN = (1, 2, 4, 8, 16, 32)  # each bucket of turns reaches up to the next


def entropy_metrics(step: StepTokens) -> Metrics:
    entropy_N, episodes = step.entropy_N.astype(np.float64), len(step.kind_E)
    entropy_U = means_by(entropy_N, step.turn_N, len(step.length_U))
    parts = {"think": THINK, "action": ACTION, "other": OTHER}
    return known(
        {
            "entropy/token": mean_of_known(entropy_N),
            **{f"entropy/{name}": mean_of_known(entropy_N[step.part_N == part]) for name, part in parts.items()},
            "entropy/response": mean_of_known(entropy_U),
            "entropy/turn": mean_of_known(means_by(entropy_U, step.episode_U, episodes)),
            "entropy/episode": mean_of_known(means_by(entropy_N, step.episode_N, episodes)),
            "entropy/concentration": _concentration(step, entropy_N),
            **_edges(step, entropy_N),
            **_by_turn(step, entropy_U),
            **_by_kind(step, entropy_N),
            "entropy/outcome/solved": mean_of_known(entropy_N[step.solved_E[step.episode_N]]),
            "entropy/outcome/failed": mean_of_known(entropy_N[step.failed_E[step.episode_N]]),
        }
    )


def _concentration(step: StepTokens, entropy_N: Vector) -> float:
    """NaN where there is no entropy at all, or none that is known."""
    sums_U = np.bincount(step.turn_N, np.nan_to_num(entropy_N), minlength=len(step.length_U))
    few = -(-len(sums_U) // FEW)
    total = float(sums_U.sum())
    return float(np.sort(sums_U)[::-1][:few].sum()) / total if total > 0 else float("nan")


def _edges(step: StepTokens, entropy_N: Vector) -> Metrics:
    """The first and the last tokens of each episode, all its responses taken together."""
    episodes = len(step.kind_E)
    tokens_E = np.bincount(step.episode_N, minlength=episodes)
    start_E = np.cumsum(tokens_E) - tokens_E
    at_N = np.arange(len(entropy_N)) - start_E[step.episode_N]
    edges = {"first10": at_N < EDGE, "last10": at_N >= tokens_E[step.episode_N] - EDGE}
    return {
        f"entropy/{name}": mean_of_known(means_by(entropy_N[edge], step.episode_N[edge], episodes))
        for name, edge in edges.items()
    }


def _by_turn(step: StepTokens, entropy_U: Vector) -> Metrics:
    bucket_U = np.searchsorted(FROM_TURN, step.place_U + 1, side="right") - 1
    means = means_by(entropy_U, bucket_U, len(FROM_TURN))
    return {f"entropy/turns/{first}": float(value) for first, value in zip(FROM_TURN, means, strict=True)}


def _by_kind(step: StepTokens, entropy_N: Vector) -> Metrics:
    kinds = [key_part(kind) for kind in step.kind_E]
    number = {kind: place for place, kind in enumerate(sorted(set(kinds)))}
    kind_E = np.array([number[kind] for kind in kinds], dtype=np.int64)
    means = means_by(entropy_N, kind_E[step.episode_N], len(number))
    return {f"entropy/kind/{kind}": float(means[place]) for kind, place in number.items()}


def surprisal_metrics(step: StepTokens) -> Metrics:
    logp_N, entropy_N = step.logp_N.astype(np.float64), step.entropy_N.astype(np.float64)
    return known(
        {
            "surprisal/response": mean_of_known(-sums_by(logp_N, step.turn_N, len(step.length_U))),
            "surprisal/token": mean_of_known(-logp_N),
            "surprisal/relative": mean_of_known(-logp_N - entropy_N),
        }
    )


def predicted_drift(step: StepTokens, scores: Scores) -> Metrics:
    """The forecast for the next step, from the tokens of all its episodes and the scores of those that were learnt
    from. Tokens that were not, or of which something is not known, are left out; a step without any has no forecast.
    Scores of an older version know no weights: all tokens count the same."""
    scored = {(episode, turn) for episode, turn, _ in scores.responses()}
    places = zip(step.episode_U.tolist(), step.place_U.tolist(), strict=True)
    here_N = np.array([place in scored for place in places], dtype=np.bool_)[step.turn_N]
    logp_N, entropy_N = step.logp_N[here_N].astype(np.float64), step.entropy_N[here_N].astype(np.float64)
    learnt_N = ~np.isnan(scores.ratio_N)
    terms_N = scores.advantage_N.astype(np.float64) * (-logp_N - entropy_N)
    weight_N = learnt_N if scores.weight_N is None else np.where(learnt_N, scores.weight_N, 0)
    return known({"drift/predicted": weighed_mean(terms_N, weight_N.astype(np.float64))})
