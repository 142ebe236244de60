"""Surprisal of the policy's own responses, and what learning from them should do to entropy.

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
from isentrope.metrics.means import Metrics, known, mean_of_known, sums_by, weighed_mean


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
