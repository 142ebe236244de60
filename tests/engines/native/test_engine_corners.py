"""The native engine in unusual cases: a pass is full, responses get longer, conversations are dropped."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from isentrope.core.engine import Request
from isentrope.core.errors import EngineError
from isentrope.engines.native.weights import Weights
from isentrope.engines.torch import TorchEngine
from isentrope.models.model_adapter import adapt_model
from tests.engines.native.small import our_llama
from tests.engines.native.test_engine import fast, never, policy, requests, same, words

pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in multiply")  # by Triton's interpreter


def test_prompts_that_do_not_fit_into_one_pass_are_read_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isentrope.engines.native.engine.MOST_RECORDED", 100)
    of, rng = policy(), np.random.default_rng(0)
    asked = requests(rng, [70, 80, 66, 140], answer=2)
    reference, engine = TorchEngine(of), fast(of)
    for one in (reference, engine):
        one.open(range(4))
    for found, expected in zip(engine.sample(asked), reference.sample(asked), strict=True):
        same(found, expected)
    notes = engine.notes()
    assert (notes["prefills"], notes["read"], notes["held"]) == (4, 70 + 80 + 66 + 140, 0)


def test_longer_responses_than_before_begin_with_a_clean_slate() -> None:
    of, rng = policy(), np.random.default_rng(1)
    short, long = requests(rng, [5, 9], answer=3), requests(rng, [7, 4], answer=66)
    long = [Request(r.slot, r.prompt, r.uniforms, 1.0, lambda tail: len(tail) > 6) for r in long]
    reference, engine = TorchEngine(of), fast(of)
    for one in (reference, engine):
        one.open(range(2))
    for asked in (short, long):
        for found, expected in zip(engine.sample(asked), reference.sample(asked), strict=True):
            same(found, expected)


def test_a_longer_response_waits_until_the_shorter_ones_are_there() -> None:
    of, rng = policy(), np.random.default_rng(2)
    asked = requests(rng, [5, 9], answer=3)
    late = Request(2, words(rng, 6), rng.random(70, dtype=np.float32), 1.0, lambda tail: len(tail) > 3)
    reference, engine = TorchEngine(of), fast(of)
    for one in (reference, engine):
        one.open(range(3))
    engine.submit(asked)
    found = engine.collect()
    assert engine.waiting == 1
    engine.submit([late])
    while engine.waiting:
        found |= engine.collect()
    for slot, expected in enumerate(reference.sample([*asked, late])):
        same(found[slot], expected)


def test_a_conversation_may_be_dropped_while_it_is_being_answered() -> None:
    of, rng = policy(), np.random.default_rng(3)
    asked = requests(rng, [66, 9, 70, 5], answer=8)
    asked[0] = Request(0, asked[0].prompt, asked[0].uniforms[:1], 1.0, never)
    reference, engine = TorchEngine(of), fast(of, rows=3)
    for one in (reference, engine):
        one.open(range(5))
    engine.submit(asked)
    found = engine.collect()
    assert list(found) == [0]
    engine.keep([0, 1])  # 2 is being answered, 3 waits for a row or is being answered
    more = Request(4, words(rng, 100), rng.random(3, dtype=np.float32), 1.0, never)  # takes over what 2 had
    engine.submit([more])
    while engine.waiting:
        found |= engine.collect()
    assert sorted(found) == [0, 1, 4]
    for slot, expected in zip((0, 1, 4), reference.sample([asked[0], asked[1], more]), strict=True):
        same(found[slot], expected)


def test_requests_are_taken_all_or_none() -> None:
    of, rng = policy(), np.random.default_rng(4)
    engine = fast(of, context=64)
    engine.open(range(2))
    with pytest.raises(EngineError, match=r"agent\.max_context"):
        engine.submit(requests(rng, [5, 62]))
    assert engine.waiting == 0
    engine.submit(requests(rng, [5]))
    with pytest.raises(EngineError, match="slot 0"):
        engine.submit(requests(rng, [6]))
    for wrong in (
        Request(1, [], np.ones(1, dtype=np.float32), 1.0, never),
        Request(1, [9], np.zeros(0, dtype=np.float32), 1.0, never),
    ):
        with pytest.raises(EngineError, match="at least one"):
            engine.submit([wrong])
    assert engine.waiting == 1


def test_two_engines_may_read_one_model() -> None:
    model = our_llama()
    parts = adapt_model(model)
    assert parts is not None
    first, second = (Weights(parts, torch.float32) for _ in range(2))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 1
    for layer, own in zip(first.layers, parts.layers, strict=True):
        torch.testing.assert_close(layer.qkv.weight, torch.cat((own.q, own.k, own.v)))
        torch.testing.assert_close(layer.gate_up.weight, torch.cat((own.gate, own.up)))
    places = [[layer.qkv.weight.data_ptr() for layer in weights.layers] for weights in (first, second)]
    assert places[0] == places[1]


def test_after_an_error_in_the_middle_everything_can_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    of, rng = policy(), np.random.default_rng(5)
    asked = requests(rng, [66, 9], answer=3)
    reference, engine = TorchEngine(of), fast(of)
    for one in (reference, engine):
        one.open(range(2))
    expected = reference.sample(asked)
    for name in ("prefill", "decode"):
        engine._make_room_for(4)
        with monkeypatch.context() as broken:
            broken.setattr(engine._unit, name, lambda *_, **__: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                engine.sample(asked)
        engine.open(range(2))
        assert (engine.waiting, engine.collect(), engine._pages.free) == (0, {}, engine._pages.count)
        for one, other in zip(engine.sample(asked), expected, strict=True):
            same(one, other)


def test_from_logits_that_are_no_numbers_a_word_is_drawn_all_the_same() -> None:
    """Its log-prob says what it is worth: the update that reads it is skipped."""
    of, rng = policy(), np.random.default_rng(6)
    engine = fast(of)
    engine.open(range(2))
    with torch.no_grad():
        of.model.head_weight()[11] = float("nan")
    for found in engine.sample(requests(rng, [5, 7], answer=3)):
        assert np.isnan(found.logprobs).all()
        assert all(0 <= token < of.tokenizer.size for token in found.ids.tolist())
