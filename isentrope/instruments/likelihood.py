"""How likely the policy finds what it does: log-probability a token, by what came of it.

SEAL (Figure 5): in an eruption of entropy the likelihood of valid and of right responses falls along with that of wrong
ones, although learning was to raise it. The responses are those that the step sampled, scored by the policy that
sampled them, so nothing has to be computed again.
"""

from __future__ import annotations

from isentrope.instruments.means import Metrics, known, mean_of_known
from isentrope.instruments.spoken import Spoken


def likelihood_metrics(step: Spoken) -> Metrics:
    """Mean log-probability a token over valid responses, and over all responses of solved and of failed episodes."""
    chosen = {
        "valid": step.valid_U[step.response_N],
        "solved": step.solved_E[step.episode_N],
        "failed": step.failed_E[step.episode_N],
    }
    return known({f"likelihood/{name}": mean_of_known(step.logp_N[where]) for name, where in chosen.items()})
