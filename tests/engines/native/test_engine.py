"""The native engine against the torch engine: the same tokens, log-probs and entropies, whoever joins or leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from isentrope.core.engine import Request, Sampled, Streaming
from isentrope.core.errors import EngineError
from isentrope.engines.native.engine import FastEngine
from isentrope.engines.torch import TorchEngine
from isentrope.models.llama import Llama, Shape
from isentrope.models.model_adapter import adapt_model
from isentrope.models.policy import Policy
from isentrope.models.sources.pocket import PocketTokens
from tests.engines.native.small import DEVICE, louder

pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in multiply")  # by Triton's interpreter
TOLERANCE = 1e-4  # nats a token, in float32


def policy() -> Policy:
    tokens = PocketTokens([" apple", " desk", "look"])
    model = Llama(Shape(vocabulary=tokens.size, width=32, layers=1, heads=2, kv_heads=1, inner=32))
    model.initialise(torch.Generator().manual_seed(0))
    return Policy(louder(model).eval(), tokens, DEVICE, torch.float32)


def fast(of: Policy, rows: int = 6, context: int = 192, **more: float) -> FastEngine:
    parts = adapt_model(of.model)
    assert parts is not None
    return FastEngine(of, parts, rows, context, **more)


def never(tail: bytes) -> bool:
    return False


def requests(rng: np.random.Generator, lengths: Sequence[int], answer: int = 4) -> list[Request]:
    temperatures = [1.0, 0.7, 1.3]
    return [
        Request(slot, words(rng, n), rng.random(answer + slot % 2, dtype=np.float32), temperatures[slot % 3], never)
        for slot, n in enumerate(lengths)
    ]


def words(rng: np.random.Generator, count: int) -> list[int]:
    return rng.integers(9, 200, count).tolist()


def same(found: Sampled, expected: Sampled) -> None:
    assert found.ids.tolist() == expected.ids.tolist()
    assert found.stop == expected.stop
    np.testing.assert_allclose(found.logprobs, expected.logprobs, atol=TOLERANCE)
    np.testing.assert_allclose(found.entropies, expected.entropies, atol=TOLERANCE)
    np.testing.assert_allclose(found.temperatures, expected.temperatures, rtol=1e-5)  # a rule may use the entropy


def test_turns_departures_and_new_beginnings_give_what_the_torch_engine_gives():
    of, rng = policy(), np.random.default_rng(0)
    engines = [fast(of), TorchEngine(of)]
    for engine in engines:
        engine.open(range(4))
    asked = requests(rng, [3, 64, 65, 20], answer=2)
    for turn in range(3):
        found, expected = (engine.sample(asked) for engine in engines)
        for one, other in zip(found, expected, strict=True):
            same(one, other)
        if turn == 0:
            asked = asked[1:]
            found, expected = found[1:], expected[1:]
            for engine in engines:
                engine.keep([1, 2, 3])
        prompts = [[*r.prompt, *e.ids.tolist(), *words(rng, 2)] for r, e in zip(asked, expected, strict=True)]
        if turn == 1:
            prompts[0] = words(rng, 9)  # begins anew, as in window context
        numbers = [rng.random(3, dtype=np.float32) for _ in asked]
        asked = [Request(r.slot, p, u, 0.9, never) for r, p, u in zip(asked, prompts, numbers, strict=True)]


def test_who_joins_later_gets_the_same_answer():
    of, rng = policy(), np.random.default_rng(1)
    asked = requests(rng, [3, 66, 10, 5, 8], answer=3)
    reference = TorchEngine(of)
    reference.open(range(5))
    expected = reference.sample(asked)
    engine = fast(of, rows=2)  # fewer rows than requests: some wait for a place
    assert isinstance(engine, Streaming)
    engine.open(range(5))
    engine.submit(asked[:3])
    found = engine.collect()
    engine.submit(asked[3:])
    while engine.waiting:
        found |= engine.collect()
    assert engine.collect() == {}
    for slot in range(5):
        same(found[slot], expected[slot])


def test_a_shared_beginning_is_read_once_and_changes_nothing():
    of, rng = policy(), np.random.default_rng(2)
    start = words(rng, 130)
    asked = [Request(s, start + words(rng, 1 + s), rng.random(3, dtype=np.float32), 1.0, never) for s in range(3)]
    reference, engine = TorchEngine(of), fast(of)
    for one in (reference, engine):
        one.open(range(3))
    for found, expected in zip(engine.sample(asked), reference.sample(asked), strict=True):
        same(found, expected)
    assert engine.notes()["read"] == 131 + (2 + 2) + (2 + 3)  # the second and third begin after two shared pages


@dataclass
class Rule:
    """A temperature that depends on all that was drawn so far, and on the entropy if it is told."""

    needs_entropy: bool

    def __call__(self, response: Sequence[int], entropy: float) -> float:
        return 0.5 + 0.25 * (sum(response) % 3) + 0.1 * entropy


@pytest.mark.parametrize("needs_entropy", [False, True])
def test_temperatures_by_a_rule(needs_entropy: bool):
    of, rng = policy(), np.random.default_rng(3)
    asked = requests(rng, [5, 7, 3], answer=5)
    rule = Rule(needs_entropy)
    asked[1] = Request(1, asked[1].prompt, asked[1].uniforms, 1.0, never, temperature_of=rule)
    reference, engine = TorchEngine(of), fast(of)
    for one in (reference, engine):
        one.open(range(3))
    found, expected = engine.sample(asked), reference.sample(asked)
    for one, other in zip(found, expected, strict=True):
        same(one, other)
    assert len(set(expected[1].temperatures.tolist())) > 1


def test_the_likeliest_word_and_where_responses_end():
    of, rng = policy(), np.random.default_rng(4)
    greedy = Request(0, words(rng, 5), rng.random(6, dtype=np.float32), 0.0, never)
    endless = Request(1, words(rng, 5), rng.random(9, dtype=np.float32), 1.5, never)
    reference, engine = TorchEngine(of), fast(of)
    reference.open(range(2))
    mark = of.tokenizer.pieces(reference.sample([endless])[0].ids.tolist())[4]
    drawn = replace(endless, stop=lambda tail: tail.endswith(mark), closings=(mark,))
    unmarked = replace(drawn, slot=2, closings=())
    for one in (reference, engine):
        one.open(range(3))
    found, expected = (one.sample([greedy, drawn, unmarked]) for one in (engine, reference))
    for one, other in zip(found, expected, strict=True):
        same(one, other)
    assert [one.stop for one in expected[:2]] == ["length", "tag"]
    assert found[1].ids.tolist() == found[2].ids.tolist()


@pytest.mark.slow(4)
def test_a_small_cache_makes_conversations_wait_or_be_read_again():
    of, rng = policy(), np.random.default_rng(5)
    asked = requests(rng, [70, 66, 68], answer=2)  # two pages each
    reference, engine = TorchEngine(of), fast(of)
    for one in (reference, engine):
        one.open(range(3))
    engine._make_room_for(5)
    engine._pages.take(engine._pages.free - 3)  # room for one conversation and a half
    for turn in range(2):
        found, expected = engine.sample(asked), reference.sample(asked)
        for one, other in zip(found, expected, strict=True):
            same(one, other)
        asked = [
            Request(r.slot, [*r.prompt, *e.ids.tolist(), 9 + turn], r.uniforms, 1.0, never)
            for r, e in zip(asked, expected, strict=True)
        ]


def test_what_does_not_fit_is_refused():
    of, rng = policy(), np.random.default_rng(6)
    engine = fast(of, context=64)
    engine.open([0])
    with pytest.raises(EngineError, match=r"agent\.max_context"):
        engine.submit(requests(rng, [62]))


def test_new_weights_are_used_at_once_without_a_copy():
    of, rng = policy(), np.random.default_rng(7)
    engine, asked = fast(of), requests(rng, [70, 3])
    assert not engine.weights.copies
    engine.open(range(2))
    engine.sample(asked)
    with torch.no_grad():
        for parameter in of.module.parameters():
            parameter *= 1.1
    engine.refresh()
    reference = TorchEngine(of)
    reference.open(range(2))
    for found, expected in zip(engine.sample(asked), reference.sample(asked), strict=True):
        same(found, expected)


@pytest.mark.slow(8)
def test_what_is_said_again_is_guessed_and_is_what_the_torch_engine_says():
    """Once more in other slots, of which one stops inside a run; then on from what the cache holds."""
    of, rng = policy(), np.random.default_rng(8)
    reference, engine = TorchEngine(of), fast(of, drafts=3)
    asked = requests(rng, [3, 66], answer=6)
    for one in (reference, engine):
        one.open(range(4))
    first = engine.sample(asked)
    assert engine.notes()["drafted"] == 0  # nothing was said before
    for found, expected in zip(first, reference.sample(asked), strict=True):
        same(found, expected)
    mark = of.tokenizer.pieces(first[0].ids[3:4].tolist())[0]
    again = [
        replace(asked[0], slot=2, stop=lambda tail: tail.endswith(mark), closings=(mark,)),
        replace(asked[1], slot=3),
    ]
    second = engine.sample(again)
    for found, expected in zip(second, reference.sample(again), strict=True):
        same(found, expected)
    assert second[0].stop == "tag"
    prompts = [[*r.prompt, *s.ids.tolist(), *words(rng, 2)] for r, s in zip(again, second, strict=True)]
    more = [Request(2 + i, prompt, rng.random(3, dtype=np.float32), 0.9, never) for i, prompt in enumerate(prompts)]
    for found, expected in zip(engine.sample(more), reference.sample(more), strict=True):
        same(found, expected)
    notes = engine.notes()
    assert notes["drafted"] >= notes["accepted"] >= 6
    other = fast(of, drafts=3)
    other.load_state_dict(engine.state_dict())
    assert repr(other.state_dict()) == repr(engine.state_dict())
    assert fast(of).state_dict() == {}
