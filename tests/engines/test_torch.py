"""Sampling: exact numbers, the right distribution, no dependence on company, caches that hold what they should."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from isentrope.core.engine import Request, Sampled
from isentrope.core.types import TokenBatch, measured_at
from isentrope.engines.torch import TorchEngine, _of_like_width, draw
from isentrope.models.policy import Policy
from tests.models.helpers import small_policy

TOLERANCE = 1e-4
"""Sampling and scoring in float32 must agree to this, in nats per token."""


def never(tail: bytes) -> bool:
    return False


def score(policy: Policy, prompt: list[int], sampled: Sampled) -> tuple[np.ndarray, np.ndarray]:
    at = policy.device
    ids = torch.tensor([[*prompt, *sampled.ids.tolist()]], device=at)
    with torch.no_grad():
        hidden = policy.model.hidden(ids, torch.arange(ids.shape[1], device=at)[None], torch.zeros_like(ids))
        logits = hidden[0, len(prompt) - 1 : -1] @ policy.model.head_weight().T
        heat = torch.tensor(measured_at(sampled.temperatures), device=at)
        words = torch.log_softmax(logits / heat[:, None], -1).cpu()
    chosen = words.gather(1, torch.tensor(sampled.ids.astype(np.int64))[:, None]).squeeze(1)
    return chosen.numpy(), (-(words.exp() * words).sum(-1)).numpy()


def test_scoring_again_gives_the_numbers_of_sampling_over_turns_and_departures() -> None:
    policy, rng = small_policy(), np.random.default_rng(0)
    engine = TorchEngine(policy)
    engine.open(range(6))
    prompts = {slot: rng.integers(9, 200, 3 + slot).tolist() for slot in range(6)}
    live = list(range(6))
    for turn in range(5):
        if turn == 2:
            live = [1, 4]
            engine.keep(live)
        requests = [
            Request(s, prompts[s], rng.random(3 + s, dtype=np.float32), [1.0, 0.7, 1.3][s % 3], never) for s in live
        ]
        if turn == 3:  # a conversation that begins anew, as in window context
            prompts[4] = rng.integers(9, 200, 7).tolist()
            requests[1] = Request(4, prompts[4], rng.random(5, dtype=np.float32), 1.0, never)
        for request, sampled in zip(requests, engine.sample(requests), strict=True):
            logp, entropy = score(policy, prompts[request.slot], sampled)
            np.testing.assert_allclose(sampled.logprobs, logp, atol=TOLERANCE)
            np.testing.assert_allclose(sampled.entropies, entropy, atol=TOLERANCE)
            new = rng.integers(9, 200, 1 + request.slot).tolist()
            prompts[request.slot] = [*prompts[request.slot], *sampled.ids.tolist(), *new]


def test_a_sample_does_not_depend_on_its_company() -> None:
    policy, rng = small_policy(), np.random.default_rng(1)
    uniforms = {slot: rng.random(6, dtype=np.float32) for slot in range(5)}
    prompts = {slot: rng.integers(9, 200, 2 + slot).tolist() for slot in range(5)}

    def sample(slots: list[int]) -> dict[int, list[int]]:
        engine = TorchEngine(policy)
        engine.open(slots)
        requests = [Request(s, prompts[s], uniforms[s], 1.0, never) for s in slots]
        return {s: answer.ids.tolist() for s, answer in zip(slots, engine.sample(requests), strict=True)}

    together = sample([0, 1, 2, 3, 4])
    assert sample([3, 1]) == {3: together[3], 1: together[1]}


def test_frequencies_follow_the_probabilities() -> None:
    p = torch.tensor([[0.5, 0.25, 0.0, 0.125, 0.125, 0.0]])
    uniforms = (torch.arange(8000, dtype=torch.float64) + 0.5) / 8000
    counts = torch.bincount(draw(p.expand(8000, -1), uniforms), minlength=6)
    assert counts.tolist() == [4000, 2000, 0, 1000, 1000, 0]


@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-24])
def test_the_ends_of_the_interval_never_pick_an_impossible_word(uniform: float) -> None:
    p = torch.tensor([[0.0, 0.3, 0.7, 0.0]])
    assert draw(p, torch.tensor([uniform], dtype=torch.float64)).item() in (1, 2)


def test_temperature_zero_takes_the_likeliest_word_and_stops_are_told_apart() -> None:
    policy = small_policy()
    engine = TorchEngine(policy)
    engine.open([0, 1])
    numbers = np.full(4, 0.999, dtype=np.float32)
    greedy, stopped = engine.sample(
        [Request(0, [9, 10], numbers, 0.0, never), Request(1, [9, 10], numbers, 1.0, lambda tail: len(tail) >= 1)]
    )
    assert greedy.temperatures.tolist() == [0.0] * 4
    logp, entropy = score(policy, [9, 10], replace(greedy, temperatures=np.ones(4, dtype=np.float32)))
    np.testing.assert_allclose(greedy.entropies, entropy, atol=TOLERANCE)
    ids = torch.tensor([[9, 10]])
    hidden = policy.model.hidden(ids, torch.arange(2)[None], torch.zeros_like(ids))[0, -1]
    assert greedy.ids[0] == int((hidden @ policy.model.head_weight().T).argmax())
    np.testing.assert_allclose(greedy.logprobs, logp, atol=TOLERANCE)
    assert (greedy.stop, len(greedy.ids)) == ("length", 4)
    assert stopped.stop in ("tag", "eos")
    assert len(stopped.ids) == 1


def test_in_lower_precision_scoring_still_gives_the_numbers_of_sampling() -> None:
    # Both compute the same in bfloat16; what is left is the cache's rounding, a few per cent of a nat at this size.
    policy = replace(small_policy(), dtype=torch.bfloat16)
    engine = TorchEngine(policy)
    engine.open([0])
    sampled = engine.sample([Request(0, [9, 10, 30], np.full(6, 0.4, dtype=np.float32), 1.0, never)])[0]
    ids = torch.tensor([[9, 10, 30, *sampled.ids.tolist()]])
    places = torch.arange(3, 9)
    batch = TokenBatch(
        ids_BT=ids, segments_BT=torch.zeros_like(ids), positions_BT=torch.arange(9)[None],
        row_N=torch.zeros(6, dtype=torch.long), col_N=places, target_N=ids[0, 3:],
        temperature_N=torch.ones(6), old_logp_N=torch.zeros(6), advantage_N=torch.zeros(6), ref_logp_N=None,
        success_N=torch.zeros(6), part_N=torch.zeros(6), turn_N=torch.zeros(6), number_N=np.arange(6),
        mini_batch=np.arange(6), weights={},
    )  # fmt: skip
    stats = policy.stats(batch)
    np.testing.assert_allclose(sampled.logprobs, stats.logp_N.detach().numpy(), atol=0.15)
    exact = replace(policy, dtype=torch.float32).stats(batch)
    assert not torch.equal(exact.logp_N, stats.logp_N)  # it did compute in bfloat16
    assert stats.logp_N.dtype == torch.float32


def test_conversations_that_all_begin_anew_leave_nothing_behind() -> None:
    policy = small_policy()
    engine = TorchEngine(policy)
    engine.open([0, 1])
    for turn in range(6):
        prompts = [[9 + turn, 10, 11], [40 + turn, 12]]
        engine.sample([Request(s, prompts[s], np.full(3, 0.3, dtype=np.float32), 1.0, never) for s in (0, 1)])
        assert engine._cache is not None
        assert int(engine._cache.lengths.max()) <= 5


class Rule:
    """A temperature for each token, and the entropies it was told."""

    def __init__(self, choose: Callable[[Sequence[int], float], float], needs_entropy: bool = False) -> None:
        self.choose, self.needs_entropy = choose, needs_entropy
        self.told: list[float] = []

    def __call__(self, response: Sequence[int], entropy: float) -> float:
        self.told.append(entropy)
        return self.choose(response, entropy)


def test_a_rule_that_asks_is_told_the_entropy_at_the_base_temperature() -> None:
    policy = small_policy()
    engine = TorchEngine(policy)
    engine.open([0, 1])
    numbers = np.full(4, 0.4, dtype=np.float32)
    hot, plain = Rule(lambda ids, entropy: 1.7, needs_entropy=True), None
    asked, other = engine.sample(
        [Request(0, [9, 10], numbers, 0.8, never, hot), Request(1, [9], numbers, 1.0, never, plain)]
    )
    assert asked.temperatures.tolist() == pytest.approx([1.7] * 4)
    assert other.temperatures.tolist() == [1.0] * 4
    cool = replace(asked, temperatures=np.full(4, 0.8, dtype=np.float32))
    np.testing.assert_allclose(hot.told, score(policy, [9, 10], cool)[1], atol=TOLERANCE)
    assert np.all(asked.entropies > np.array(hot.told))  # recorded at the temperature it was sampled with


def test_per_token_temperature_rule_is_used_and_recorded() -> None:
    policy = small_policy()
    engine = TorchEngine(policy)
    engine.open([0])
    rule = Rule(lambda ids, entropy: 1.2 if len(ids) == 1 else 1.0)
    sampled = engine.sample([Request(0, [9, 10], np.full(3, 0.4, dtype=np.float32), 1.0, never, rule)])[0]
    np.testing.assert_allclose(sampled.temperatures, [1.0, 1.2, 1.0])
    np.testing.assert_allclose(sampled.logprobs, score(policy, [9, 10], sampled)[0], atol=TOLERANCE)


def test_a_conversation_that_begins_anew_is_read_apart_from_the_others() -> None:
    policy, rng = small_policy(), np.random.default_rng(3)
    engine = TorchEngine(policy)
    engine.open(range(5))
    prompts = {slot: rng.integers(9, 200, 6 + slot).tolist() for slot in range(5)}
    for turn in range(3):
        if turn == 1:
            prompts[2] = rng.integers(9, 200, 300).tolist()
        requests = [Request(s, prompts[s], rng.random(4, dtype=np.float32), 1.0, never) for s in range(5)]
        for request, sampled in zip(requests, engine.sample(requests), strict=True):
            logp, _ = score(policy, prompts[request.slot], sampled)
            np.testing.assert_allclose(sampled.logprobs, logp, atol=TOLERANCE)
            prompts[request.slot] = [*prompts[request.slot], *sampled.ids.tolist(), *rng.integers(9, 200, 3).tolist()]


def test_pieces_of_like_width_are_read_together() -> None:
    assert _of_like_width([5, 7, 300, 64]) == [[0, 1, 3], [2]]
    assert _of_like_width([300, 310]) == [[0, 1]]
