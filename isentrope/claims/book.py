"""All claims, in the order of the papers."""

from __future__ import annotations

from isentrope.claims import actre, aem, epo, seal
from isentrope.claims.record import Claim
from isentrope.config.suggest import did_you_mean
from isentrope.core.errors import ConfigError

CLAIMS: tuple[Claim, ...] = (*actre.CLAIMS, *epo.CLAIMS, *seal.CLAIMS, *aem.CLAIMS)
PAPERS = {
    "ActRe": "When Instinct Guides and Insight Grounds: Staged RL Training for LLM Agents",
    "EPO": "Exploring the Entropy Mechanism in On-Policy Optimization for LLM Agents",
    "SEAL": "Cyclical Entropy Eruption: Entropy Dynamics in Agent Reinforcement Learning",
    "AEM": "Adaptive Entropy Modulation for Multi-Turn Agentic Reinforcement Learning",
}


def claim_of(name: str) -> Claim:
    known = {claim.id: claim for claim in CLAIMS}
    if name.upper() not in known:
        raise ConfigError(f"no claim is called {name!r:.40}{did_you_mean(name.upper(), known)}")
    return known[name.upper()]
