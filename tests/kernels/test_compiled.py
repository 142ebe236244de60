"""What is compiled of a training pass and how often, and how much of its activations a GPU keeps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch._functorch.config as functorch_config

from isentrope.core.types import Spans
from isentrope.kernels import forward
from isentrope.kernels.attention import join
from isentrope.kernels.compiled import LEAN, ROOMY, Compiled, compiled
from isentrope.kernels.forward import CPU, at_rest, has_room, look, states_of
from isentrope.models.model_adapter import Layer, ModelAdapter, adapt_model
from isentrope.models.policy import Policy, snapshot
from tests.models.helpers import small_policy

GIB = 2**30
QWEN_15, QWEN_7 = (28, 1536, 8960, 12, 2, 151_936), (28, 3584, 18_944, 28, 4, 152_064)
SMOL = (30, 576, 1536, 9, 3, 49_152)  # layers, width, that of the feed-forward part, heads, those of keys, words


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, float]]]:
    """Functions that were traced, with the share of activations that they were to keep; nothing is compiled."""
    found, real = list[tuple[str, float]](), torch.compile

    def compile_(function: Any) -> Any:
        def backend(graph: Any, inputs: Any) -> Any:
            found.append((function.__code__.co_name, functorch_config.activation_memory_budget))
            return graph.forward

        return real(function, backend=backend)

    monkeypatch.setattr(torch, "compile", compile_)
    compiled.cache_clear()
    torch._dynamo.reset()
    yield found
    compiled.cache_clear()
    torch._dynamo.reset()


def states(policy: Policy, grad: bool, tokens: int = 6) -> torch.Tensor:
    parts = adapt_model(policy.model)
    assert parts is not None
    ids = torch.arange(tokens) % 5
    spans = Spans(np.array([0]), np.array([tokens]), np.array([-1]))
    with torch.set_grad_enabled(grad):
        return states_of(parts, ids, torch.arange(tokens), spans, torch.float32, CPU, compile_pieces=True)


def test_a_policy_and_its_reference_are_scored_by_the_same_pieces(traced: list[tuple[str, float]]) -> None:
    policy = small_policy()
    reference = snapshot(policy)
    scored = [states(policy, False), states(policy, False, 9), states(reference, False), states(reference, False, 7)]
    assert [name for name, _ in traced] == ["look_50", "answer_50"]
    torch.testing.assert_close(scored[0], scored[2][:6])
    found = states(policy, True)
    assert len(traced) == 4  # once more, with gradients
    found.sum().backward()
    assert all(p.grad is not None for name, p in policy.module.named_parameters() if "layers" in name)


def test_each_share_is_compiled_by_itself(traced: list[tuple[str, float]], monkeypatch: pytest.MonkeyPatch) -> None:
    policy, room = small_policy(), [False]
    monkeypatch.setattr(forward, "has_room", lambda *_: room[0])
    for value, grad in ((False, True), (True, True), (True, True), (True, False), (False, True)):
        room[0] = value
        states(policy, grad, 6)
    assert [share for name, share in traced if name.startswith("answer")] == [LEAN, ROOMY, LEAN]
    assert [name for name, _ in traced].count("answer_70") == 1


def test_two_passes_are_joined_in_their_place_by_one_piece(traced: list[tuple[str, float]]) -> None:
    for tokens, begin, heads in ((9, 4, 3), (12, 5, 3), (7, 2, 3)):
        made = torch.Generator().manual_seed(tokens)
        whole, other = (torch.randn(n, heads, 8, generator=made) for n in (tokens, tokens - begin))
        out, norms = whole[begin:], torch.randn(2, tokens - begin, heads, generator=made)
        low, high = whole.clone()[:begin], torch.softmax(norms, 0)
        expected = high[0, ..., None] * out + high[1, ..., None] * other
        norm = compiled(join, LEAN)(out, other, *norms)
        torch.testing.assert_close(whole, torch.cat([low, expected]))
        torch.testing.assert_close(norm, torch.logsumexp(norms, 0))
    assert [name for name, _ in traced] == ["join_50"]


def test_a_function_that_cannot_be_compiled_runs_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(function: Any) -> Any:
        def run(*inputs: Any) -> Any:
            raise RuntimeError("no compiler")

        return run

    monkeypatch.setattr(torch, "compile", failing)
    piece = Compiled(look, ROOMY)
    parts = adapt_model(small_policy().model)
    assert parts is not None
    own = parts.layers[0]
    before = (own.norm_in, own.q, own.k, own.v, own.q_bias, own.k_bias, own.v_bias, own.q_norm, own.k_norm)
    x, angle = torch.randn(3, own.q.shape[1]), torch.zeros(3, 1, parts.head_size // 2)
    sizes = (parts.heads, parts.kv_heads, parts.head_size, parts.eps)
    inputs = (x, angle.cos(), angle.sin(), before, (None,) * 3, sizes, torch.float32)
    for ours, theirs in zip(piece(*inputs), look(*inputs), strict=True):
        torch.testing.assert_close(ours, theirs)


def parts_of(layers: int, width: int, inner: int, heads: int, kv_heads: int, words: int) -> ModelAdapter:
    """Of a model that takes no memory, with heads of 128."""

    def weight(*shape: int) -> torch.Tensor:
        return torch.empty(shape, device="meta")

    q, kv = weight(128 * heads, width), weight(128 * kv_heads, width)
    gate, down, norm = weight(inner, width), weight(width, inner), weight(width)
    layer = Layer(norm, norm, q, kv, kv, weight(width, 128 * heads), gate, gate, down)
    embed = weight(words, width)
    return ModelAdapter(embed, embed, norm, 1e-6, heads, kv_heads, 128, norm, 1.0, (layer,) * layers)


def test_layers_at_rest_are_the_same_numbers_in_the_same_place() -> None:
    parts = adapt_model(small_policy().model)
    assert parts is not None
    for layer in parts.layers:
        still = at_rest(layer)
        assert still.q.data_ptr() == layer.q.data_ptr()
        assert layer.q.requires_grad
        assert not still.q.requires_grad
        assert isinstance(still.q, torch.nn.Parameter)


@pytest.mark.parametrize(
    ("shape", "tokens", "card", "room"),
    [
        (QWEN_15, 16_384, 139, True),
        (QWEN_15, 32_768, 139, False),
        (QWEN_15, 16_384, 79, False),
        (QWEN_15, 4_096, 79, True),
        (QWEN_15, 16_384, 100, False),
        (QWEN_15, 1, 0, False),
        (QWEN_7, 16_384, 139, False),
        (SMOL, 16_384, 139, False),
        (SMOL, 2048, 139, True),
    ],
)
def test_room_by_the_cards_memory_and_the_models_shape(
    shape: tuple[int, ...], tokens: int, card: int, room: bool
) -> None:
    assert has_room(parts_of(*shape), tokens, torch.bfloat16, card * GIB) == room
