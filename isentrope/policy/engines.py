"""The engine that a recipe asks for."""

from __future__ import annotations

from isentrope.config.schema import RunConfig
from isentrope.policy.engine import Engine
from isentrope.policy.policy import Policy
from isentrope.policy.torch_engine import TorchEngine


def make_engine(config: RunConfig, policy: Policy) -> Engine:
    return TorchEngine(policy)
