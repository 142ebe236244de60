"""Makes the engine that a config asks for."""

from __future__ import annotations

from isentrope.config.schema import RunConfig
from isentrope.config.validate import check_training
from isentrope.core.engine import Engine
from isentrope.engines.native.available import fast_engine, why_not
from isentrope.engines.torch import TorchEngine
from isentrope.models.policy import Policy


def make_engine(config: RunConfig, policy: Policy | None) -> Engine:
    """`policy` is None for a server, which has a model of its own."""
    if config.engine.kind == "openai":
        if policy is not None:
            check_training(config)
        from isentrope.engines.openai.engine import OpenAIEngine

        return OpenAIEngine(config.engine)
    assert policy is not None
    if config.engine.kind == "vllm":
        from isentrope.engines.vllm import VllmEngine

        return VllmEngine(policy, config)
    kind = config.engine.kind
    if kind == "fast" or (kind == "auto" and policy.device.type == "cuda" and not why_not(policy)):
        return fast_engine(policy, config.rollout.batch, config.agent.max_context, config.engine.memory)
    return TorchEngine(policy)
