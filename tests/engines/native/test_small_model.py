"""A small model's kernels, which carry tokens from one attention to the next, against the same in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from isentrope.engines.native.small_model import TOKENS, is_small, small_pass
from isentrope.engines.native.weights import Weights
from isentrope.models.hugging_face import HuggingFaceModel
from isentrope.models.llama import Llama, Shape
from isentrope.models.model_adapter import adapt_model
from tests.engines.native.small import DEVICE, MODELS, WORDS

Array = NDArray[np.float64]


def numpy_norm(x: Array, weight: Tensor, eps: float) -> Array:
    return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + eps) * in_numpy(weight)


def in_numpy(tensor: Tensor) -> Array:
    return tensor.detach().cpu().double().numpy()


def attention_in_the_test(i: int, qkv: Array, width: int) -> Array:
    """Anything that differs by layer and depends on queries, keys and values: here no attention is needed."""
    return np.cos(qkv[:, :width] * (i + 1)) + 0.1 * qkv[:, -width:]


def numpy_pass(weights: Weights, ids: NDArray[np.int64]) -> Array:
    a = weights.model
    x = in_numpy(a.embed)[ids]
    for i, layer in enumerate(weights.layers):
        own = layer.own
        qkv = numpy_norm(x, own.norm_in, a.eps) @ in_numpy(layer.qkv.weight).T
        if layer.qkv.bias is not None:
            qkv = qkv + in_numpy(layer.qkv.bias)
        x = x + attention_in_the_test(i, qkv, layer.o.weight.shape[1]) @ in_numpy(layer.o.weight).T
        gate, up = np.split(numpy_norm(x, own.norm_out, a.eps) @ in_numpy(layer.gate_up.weight).T, 2, axis=1)
        x = x + (gate / (1 + np.exp(-gate)) * up) @ in_numpy(layer.down.weight).T
    return numpy_norm(x, a.norm, a.eps) @ in_numpy(a.head).T


def weights_of(model: Any) -> Weights:
    parts = adapt_model(model)
    assert parts is not None
    return Weights(parts, torch.float32)


def run(weights: Weights, ids: NDArray[np.int64], last: NDArray[np.int32] | None = None) -> Array:
    def attend(i: int, qkv: Tensor) -> Tensor:
        found = attention_in_the_test(i, in_numpy(qkv), weights.layers[i].o.weight.shape[1])
        return torch.from_numpy(found).to(DEVICE, torch.float32)

    at = None if last is None else torch.from_numpy(last).to(DEVICE)
    with torch.no_grad():
        return in_numpy(small_pass(weights, torch.from_numpy(ids).to(DEVICE, torch.int32), attend, at))


@pytest.mark.parametrize("kind", ["ours", "Qwen2"])  # a width that is no power of two, and biases
@pytest.mark.parametrize("count", [1, TOKENS, 2 * TOKENS + 5])
def test_it_is_what_numpy_computes(kind: str, count: int):
    weights = weights_of(MODELS[kind]())
    ids = np.random.default_rng(count).integers(WORDS, size=count)
    expected = numpy_pass(weights, ids)
    np.testing.assert_allclose(run(weights, ids), expected, atol=3e-4 * expected.std())
    last = np.array([count - 1, 0, count // 2], dtype=np.int32)
    np.testing.assert_allclose(run(weights, ids, last), expected[last], atol=3e-4 * expected.std())


def test_tokens_carried_together_do_not_touch_each_other():
    weights = weights_of(MODELS["ours"]())
    ids = np.random.default_rng(0).integers(WORDS, size=20)
    other = ids.copy()
    other[7] = (other[7] + 1) % WORDS
    one, two = run(weights, ids), run(weights, other)
    same = np.arange(20) != 7
    np.testing.assert_array_equal(one[same], two[same])
    assert np.abs(one[7] - two[7]).max() > 1e-3


@pytest.mark.parametrize(
    ("changes", "small"),
    [
        ({}, True),
        ({"width": 512, "heads": 16, "kv_heads": 8}, False),
        ({"inner": 2048}, False),
        ({"vocabulary": 9000}, False),
    ],
)
def test_only_small_models_are_small(changes: dict[str, int], small: bool):
    shape = {"vocabulary": 555, "width": 128, "layers": 2, "heads": 4, "kv_heads": 2, "inner": 384}
    assert is_small(weights_of(Llama(Shape(**{**shape, **changes})).to(DEVICE))) is small


def test_a_narrow_model_with_many_heads_is_not_small():
    import transformers

    shape = {"vocab_size": 97, "hidden_size": 64, "intermediate_size": 80, "num_hidden_layers": 1, "head_dim": 64}
    config = transformers.LlamaConfig(**shape, num_attention_heads=8, num_key_value_heads=2)
    assert not is_small(weights_of(HuggingFaceModel(transformers.LlamaForCausalLM(config)).to(DEVICE)))
