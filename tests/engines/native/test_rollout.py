"""Episodes played with the native engine, each conversation at its own pace, against those of the torch engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from isentrope.config.schema import AgentSettings, TaskSettings
from isentrope.core.types import RolloutPlan
from isentrope.engines.torch import TorchEngine
from isentrope.rollout.collector import Runner
from isentrope.rollout.episode import Seat
from isentrope.worlds.pool.open import LocalTasks
from tests.engines.native.test_engine import TOLERANCE, fast, policy
from tests.toys import ToyWorld

pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in multiply")  # by Triton's interpreter
AGENT = AgentSettings(prompt="brief", max_response=3, max_context=256)
TASK = TaskSettings(max_turns=2)


@dataclass
class ByLength:
    """Every second token is colder, and those that are hard to tell."""

    needs_entropy: bool

    def __call__(self, response: Sequence[int], entropy: float) -> float:
        return 1.0 - 0.3 * (len(response) % 2) - (0.1 if entropy > 3 else 0.0)


def rule(tokenizer: Any, admissible: Any, temperature: float, tags: Any) -> ByLength:
    return ByLength(needs_entropy=True)


def test_the_same_episodes() -> None:
    """Three of them in two slots, with temperatures by a rule."""
    of, world, plan = policy(), ToyWorld(), RolloutPlan(temperature_rule=rule)
    seats = [Seat(world.instance("train", i // 2), i // 2, i % 2) for i in range(3)]
    found = [
        Runner(engine, LocalTasks(world, 2), AGENT, TASK, 2).play(seats, plan, 1, "test")
        for engine in (fast(of, rows=2, context=AGENT.max_context), TorchEngine(of))
    ]
    for ours, theirs in zip(*found, strict=True):
        assert (ours.stop, ours.index, ours.member, len(ours.turns)) == (
            theirs.stop, theirs.index, theirs.member, len(theirs.turns),
        )  # fmt: skip
        for mine, other in zip(ours.turns, theirs.turns, strict=True):
            assert mine.response_ids.tolist() == other.response_ids.tolist()
            assert mine.context_ids.tolist() == other.context_ids.tolist()
            np.testing.assert_array_equal(mine.temperatures, other.temperatures)
            np.testing.assert_allclose(mine.logprobs, other.logprobs, atol=TOLERANCE)
            np.testing.assert_allclose(mine.entropies, other.entropies, atol=TOLERANCE)
    assert any(len(episode.turns) > 1 for episode in found[0])
