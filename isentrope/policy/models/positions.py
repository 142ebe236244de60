"""Whether a model can read conversations as long as the settings allow."""

from __future__ import annotations

import sys

from isentrope.errors import ConfigError
from isentrope.policy.models.catalogue import Facts


def check_positions(name: str, facts: Facts, max_context: int) -> None:
    """Refuse conversations that are longer than a table of positions. Rotary positions go on without an end, but the
    model has never seen the far ones: a warning. `max_context` 0 is not known."""
    if not 0 < facts.context < max_context:
        return
    if facts.learned_positions:
        raise ConfigError(
            f"agent.max_context = {max_context}, and {name} has {facts.context} positions and no more; "
            f"set agent.max_context={facts.context} or less, or take a model with a longer context"
        )
    print(
        f"WARNING: agent.max_context = {max_context}, and {name} was made for {facts.context} tokens: in longer "
        f"conversations it may write nonsense. Set agent.max_context={facts.context} or less",
        file=sys.stderr,
    )
