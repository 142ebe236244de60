"""The vLLM engine samples what the torch engine samples: same tokens, log-probs, entropies, ends."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from isentrope.config.schema import PolicySettings, RunSettings
from isentrope.core.engine import Request
from isentrope.core.types import RolloutPlan, TokenTemperature
from isentrope.engines.vllm import VllmEngine
from isentrope.methods.actre import ActRe, ActReOptions
from isentrope.models.load import load_policy
from isentrope.models.policy import Policy
from tests.engines.vllm.helpers import TOLERANCE, assert_same, by_torch, never, requests_of, vllm_engine


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_policy(PolicySettings(), RunSettings(device="cpu"))


@pytest.fixture(scope="module")
def engine(policy: Policy) -> Generator[VllmEngine]:
    with vllm_engine(policy) as made:
        yield made


@pytest.mark.parametrize("temperature", [1.0, 0.4, 1.7, 0.0])
def test_same_tokens_and_numbers_as_the_torch_engine(engine: VllmEngine, policy: Policy, temperature: float) -> None:
    requests = requests_of(policy, 12, temperature)
    sampled = engine.sample(requests)
    assert_same(sampled, by_torch(policy, requests))
    assert len({tuple(s.ids.tolist()) for s in sampled}) > 1
    assert all(float(s.entropies.mean()) > 0.01 for s in sampled)


def test_numbers_are_those_of_scoring_again(engine: VllmEngine, policy: Policy) -> None:
    for request in requests_of(policy, 3, 0.8, seed=4):
        (sampled,) = engine.sample([request])
        ids = torch.tensor([[*request.prompt, *sampled.ids.tolist()]])
        with torch.no_grad():
            hidden = policy.model.hidden(ids, torch.arange(ids.shape[1])[None], torch.zeros_like(ids))
            logits = hidden[0, len(request.prompt) - 1 : -1] @ policy.model.head_weight().T
        words = torch.log_softmax(logits / 0.8, -1)
        chosen = words.gather(1, torch.from_numpy(sampled.ids.astype(np.int64))[:, None]).squeeze(1)
        np.testing.assert_allclose(sampled.logprobs, chosen, atol=TOLERANCE)
        np.testing.assert_allclose(sampled.entropies, -(words.exp() * words).sum(-1), atol=TOLERANCE)


def test_a_sample_does_not_depend_on_its_company_or_place(engine: VllmEngine, policy: Policy) -> None:
    """More requests than may run at once, of different temperatures and lengths: rows of the batch come, go, move."""
    requests = requests_of(policy, 30, seed=1)
    rng = np.random.default_rng(0)
    requests = [
        replace(r, temperature=[0.0, 0.7, 1.0, 1.3][i % 4], uniforms=r.uniforms[: int(rng.integers(1, 13))])
        for i, r in enumerate(requests)
    ]
    together = engine.sample(requests)
    order = rng.permutation(len(requests))
    shuffled = engine.sample([requests[i] for i in order])
    assert_same([together[i] for i in order], shuffled)
    for i in (0, 7, 29):
        assert_same([together[i]], engine.sample([requests[i]]))
    assert_same(together, by_torch(policy, requests))


def test_ends_at_the_very_token_that_completes_the_response(engine: VllmEngine, policy: Policy) -> None:
    """Responses of the pocket model to its own prompts end by tag; others by their length or the end token."""
    tokenizer = policy.tokenizer
    prompt = tokenizer.opening("You are in a house.", "You are in the middle of a room.")
    rng = np.random.default_rng(0)

    def complete(tail: bytes) -> bool:
        return tail.endswith(b"</action>")

    asked = [Request(i, prompt, rng.random(40 if i else 3, dtype=np.float32), 1.0, complete) for i in range(8)]
    sampled = engine.sample(asked)
    assert_same(sampled, by_torch(policy, asked))
    assert {s.stop for s in sampled} >= {"tag", "length"}
    assert all(b"".join(tokenizer.pieces(list(s.ids))).endswith(b"</action>") for s in sampled if s.stop == "tag")
    assert all(len(s.ids) == len(r.uniforms) for s, r in zip(sampled, asked, strict=True) if s.stop == "length")
    # a draw of the end token: any token may be one if the tokenizer says so
    engine._board.tokenizer = replace_eos(policy, int(sampled[0].ids[1]))
    try:
        (ended,) = engine.sample(asked[:1])
    finally:
        engine._board.tokenizer = tokenizer
    assert (ended.stop, ended.ids.tolist()) == ("eos", sampled[0].ids[:2].tolist())


def replace_eos(policy: Policy, token: int):
    tokenizer = type(policy.tokenizer)(policy.tokenizer.phrases)  # type: ignore[attr-defined,call-arg]
    tokenizer.eos_ids = frozenset({token})
    return tokenizer


class Behind:
    """A rule of ActRe, told of an opening tag that stands in the prompt, so that the model goes on with an action."""

    def __init__(self, rule: TokenTemperature, opening: list[int]) -> None:
        self.rule, self.opening, self.needs_entropy = rule, opening, rule.needs_entropy

    def __call__(self, response: Sequence[int], entropy: float) -> float:
        return self.rule([*self.opening, *response], entropy)


@pytest.mark.parametrize("branching", ["trie", "entropy"])
def test_temperatures_of_single_tokens_by_the_rules_of_actre(
    engine: VllmEngine, policy: Policy, branching: str
) -> None:
    tokenizer = policy.tokenizer
    opening = tokenizer.answer("<action>")
    prompt = [*tokenizer.opening("You are in a house.", "You are in the middle of a room."), *opening]
    method = ActRe(ActReOptions(branching=branching, temperature=1.4), steps=2)
    method.threshold = 0.3
    made = method.plan(1, RolloutPlan("act_think", 0.9)).temperature_rule
    assert made is not None

    def asked() -> list[Request]:
        """Rules remember how far they have read, so each engine gets its own."""
        rng, requests = np.random.default_rng(3), []
        for slot in range(10):
            rule = made(tokenizer, ("go to desk 1", "go to desk 2", "go to drawer 1", "look"), 0.9, ("action",))
            assert rule is not None
            uniforms = rng.random(12, dtype=np.float32)
            requests.append(Request(slot, prompt, uniforms, 0.9, never, Behind(rule, opening)))
        return requests

    sampled = engine.sample(asked())
    assert_same(sampled, by_torch(policy, asked()))
    assert {round(float(t), 3) for s in sampled for t in s.temperatures} == {0.9, 1.4}


def test_later_turns_read_only_what_is_new_and_give_the_same_numbers(engine: VllmEngine, policy: Policy) -> None:
    rng = np.random.default_rng(5)
    requests = requests_of(policy, 6, seed=6, shortest=70)
    engine.notes()
    first = engine.sample(requests)
    grown = [
        replace(r, prompt=[*r.prompt, *s.ids.tolist(), *rng.integers(9, 200, 20).tolist()])
        for r, s in zip(requests, first, strict=True)
    ]
    engine.notes()
    second = engine.sample(grown)
    assert engine.notes()["cached"] > 0.5
    assert engine.notes()["cached"] == 0.0  # since it was asked last
    assert_same(second, by_torch(policy, grown))


def test_a_fault_in_a_request_leaves_the_engine_usable(engine: VllmEngine, policy: Policy) -> None:
    class Broken:
        needs_entropy = False

        def __call__(self, response: Sequence[int], entropy: float) -> float:
            raise ZeroDivisionError("a rule went wrong")

    good, bad = requests_of(policy, 2)
    with pytest.raises(ZeroDivisionError):
        engine.sample([good, replace(bad, temperature_of=Broken())])
    assert_same(engine.sample([good]), by_torch(policy, [good]))
