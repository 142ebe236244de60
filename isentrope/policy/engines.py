"""The engine that a recipe asks for."""

from __future__ import annotations

from isentrope.config.check import check_training
from isentrope.config.schema import RunConfig
from isentrope.policy.engine import Engine
from isentrope.policy.fast.available import fast_engine, why_not
from isentrope.policy.policy import Policy
from isentrope.policy.torch_engine import TorchEngine


def make_engine(config: RunConfig, policy: Policy | None) -> Engine:
    """`policy` is None for a server, which has a model of its own."""
    if config.engine.kind == "openai":
        if policy is not None:
            check_training(config)
        from isentrope.policy.server.openai_engine import OpenAIEngine

        return OpenAIEngine(config.engine)
    assert policy is not None
    if config.engine.kind == "vllm":
        from isentrope.policy.vllm.engine import VllmEngine

        return VllmEngine(policy, config)
    kind = config.engine.kind
    if kind == "fast" or (kind == "auto" and policy.device.type == "cuda" and not why_not(policy)):
        return fast_engine(policy, config.rollout.batch, config.agent.max_context, config.engine.memory)
    return TorchEngine(policy)
