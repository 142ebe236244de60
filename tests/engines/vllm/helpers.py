"""Engines and requests for the tests with the real vLLM."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

import numpy as np

from isentrope.config.schema import AgentSettings, Choice, RolloutSettings, RunConfig
from isentrope.core.engine import Request, Sampled
from isentrope.engines.registry import make_engine
from isentrope.engines.torch import TorchEngine
from isentrope.engines.vllm import VllmEngine
from isentrope.models.policy import Policy

TOLERANCE = 1e-4
"""Both engines and the scoring pass compute in float32 and must agree to this, in nats per token."""


def never(tail: bytes) -> bool:
    return False


def config_of(batch: int = 16, length: int = 512) -> RunConfig:
    return RunConfig(
        agent=AgentSettings(max_response=64, max_context=length),
        engine=Choice("vllm", {"memory": 0.2}),
        rollout=RolloutSettings(batch=batch),
    )


@contextmanager
def vllm_engine(policy: Policy, config: RunConfig | None = None) -> Generator[VllmEngine]:
    engine = make_engine(config or config_of(), policy)
    assert isinstance(engine, VllmEngine)
    try:
        yield engine
    finally:
        engine.close()


def requests_of(
    policy: Policy,
    count: int,
    temperature: float = 1.0,
    tokens: int = 12,
    seed: int = 0,
    stop: Callable[[bytes], bool] = never,
    shortest: int = 1,
) -> list[Request]:
    """Prompts of very different lengths, of tokens that are neither controls nor tags."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(shortest, 150, count)
    return [
        Request(
            slot,
            rng.integers(9, policy.tokenizer.size, int(length)).tolist(),
            rng.random(tokens, dtype=np.float32),
            temperature,
            stop,
        )
        for slot, length in enumerate(lengths)
    ]


def by_torch(policy: Policy, requests: Sequence[Request]) -> list[Sampled]:
    engine = TorchEngine(policy)
    engine.open([request.slot for request in requests])
    return engine.sample(requests)


def assert_same(ours: Sequence[Sampled], theirs: Sequence[Sampled]) -> None:
    for a, b in zip(ours, theirs, strict=True):
        assert a.ids.tolist() == b.ids.tolist()
        assert a.stop == b.stop
        np.testing.assert_allclose(a.logprobs, b.logprobs, atol=TOLERANCE)
        np.testing.assert_allclose(a.entropies, b.entropies, atol=TOLERANCE)
        np.testing.assert_allclose(a.temperatures, b.temperatures)
