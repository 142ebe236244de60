"""The fast forward pass of training against the models' own, on the CPU: layers, attention with parents, packing."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from isentrope.core.types import Spans
from isentrope.kernels.attention import FLASH, Kernels, Pass, attention, join, make_pattern
from isentrope.kernels.forward import states_of, trains_fast
from isentrope.learning.packing import micro_batches
from isentrope.learning.tokens import flatten
from isentrope.models.hugging_face import HuggingFaceModel
from isentrope.models.model_adapter import adapt_model
from tests.builders.episodes import make_episodes
from tests.models.adapters import ALL_WEIGHTS, with_adapters
from tests.models.helpers import small_model


def runs(cut: Tensor) -> list[slice]:
    places = cut.tolist()
    return [slice(a, b) for a, b in itertools.pairwise(places)]


def weights_of(q: Tensor, k: Tensor, causal: bool) -> Tensor:
    """Scores [heads, queries, keys] of one run, -inf where nothing is seen."""
    k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    scores = torch.einsum("qhd,khd->hqk", q, k) / q.shape[-1] ** 0.5
    if causal:
        late = torch.ones(q.shape[0], k.shape[0], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(late, -torch.inf)
    return scores


def slow_forward(q: Tensor, k: Tensor, v: Tensor, p: Pass) -> tuple[Tensor, Tensor, Any]:
    """What the GPU's kernels promise: runs of queries over runs of keys, the softmax's normaliser beside it."""
    out, norm = torch.empty_like(q), torch.empty(q.shape[1], q.shape[0], dtype=q.dtype)
    for a, b in zip(runs(p.queries), runs(p.keys), strict=True):
        scores = weights_of(q[a], k[b], p.causal)
        norm[:, a] = scores.logsumexp(-1)
        values = v[b].repeat_interleave(q.shape[1] // v.shape[1], 1)
        out[a] = torch.einsum("hqk,khd->qhd", scores.softmax(-1), values)
    return out, norm, None


def slow_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, norm: Tensor, p: Pass, rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """From `out` and `norm` as they are given, as the GPU's kernels do, not from a softmax of its own."""
    dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    share = q.shape[1] // k.shape[1]
    for a, b in zip(runs(p.queries), runs(p.keys), strict=True):
        probability = torch.exp(weights_of(q[a], k[b], p.causal) - norm[:, a, None])
        wide_k, wide_v = k[b].repeat_interleave(share, 1), v[b].repeat_interleave(share, 1)
        inner = torch.einsum("qhd,khd->hqk", grad[a], wide_v) - (grad[a] * out[a]).sum(-1).T[:, :, None]
        d_scores = probability * inner / q.shape[-1] ** 0.5
        dq[a] = torch.einsum("hqk,khd->qhd", d_scores, wide_k)
        dk[b] = torch.einsum("hqk,qhd->khd", d_scores, q[a]).unflatten(1, (-1, share)).sum(2)
        dv[b] = torch.einsum("hqk,qhd->khd", probability, grad[a]).unflatten(1, (-1, share)).sum(2)
    return dq, dk, dv


SLOW = Kernels(slow_forward, slow_backward, join)
TREES = {
    "no parents": Spans(np.array([0, 5]), np.array([5, 4]), np.array([-1, -1])),
    "two families side by side": Spans(
        np.array([0, 4, 7, 9, 12, 14, 16]), np.array([4, 3, 2, 3, 2, 2, 3]), np.array([-1, -1, 0, 0, 1, -1, -1])
    ),
    "families apart": Spans(np.array([0, 4, 6, 7, 10]), np.array([4, 2, 1, 3, 5]), np.array([-1, 0, -1, -1, 3])),
}


@pytest.mark.parametrize("name", TREES)
def test_two_passes_joined_equal_attention_under_a_mask_gradients_too(name: str) -> None:
    spans = TREES[name]
    tokens = int(spans.length.sum())
    made = torch.Generator().manual_seed(1)
    q = torch.randn(tokens, 4, 8, generator=made, dtype=torch.float64)
    k, v = (torch.randn(tokens, 2, 8, generator=made, dtype=torch.float64) for _ in range(2))
    up = torch.randn(tokens, 4, 8, generator=made, dtype=torch.float64)
    pattern = make_pattern(spans, torch.device("cpu"), dense=True)
    found: list[list[Tensor]] = []
    for kernels in (None, SLOW):
        inputs = [x.clone().requires_grad_() for x in (q, k, v)]
        out = attention(inputs[0], inputs[1], inputs[2], pattern, kernels)
        (out * up).sum().backward()
        found.append([out.detach(), *(x.grad for x in inputs if x.grad is not None)])
    assert len(found[0]) == len(found[1]) == 4
    for plain, joined in zip(*found, strict=True):
        torch.testing.assert_close(joined, plain, rtol=1e-10, atol=1e-10)


def test_tokens_side_by_side_are_a_slice_and_others_a_list() -> None:
    together = make_pattern(TREES["two families side by side"], torch.device("cpu"))
    assert (together.children, together.parented) == (slice(7, 14), slice(0, 7))
    apart = make_pattern(TREES["families apart"], torch.device("cpu"))
    assert isinstance(apart.children, Tensor)
    assert apart.children.tolist() == [4, 5, 10, 11, 12, 13, 14]
    assert make_pattern(TREES["no parents"], torch.device("cpu")).parents is None


def hugging_face(kind: str) -> HuggingFaceModel:
    import transformers

    names = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}
    config = getattr(transformers, f"{names[kind]}Config")(
        vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, tie_word_embeddings=kind != "qwen2", rms_norm_eps=1e-4,
        **({"head_dim": 16} if kind == "qwen3" else {}), pad_token_id=7,  # as many chat models have it: a word in use
    )  # fmt: skip
    torch.manual_seed(3)
    lm = getattr(transformers, f"{names[kind]}ForCausalLM")(config)
    with torch.no_grad():
        for parameter in lm.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)  # norms and biases too, so that leaving one out shows
    return HuggingFaceModel(lm).eval()


@pytest.mark.parametrize("kind", ["ours", "llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("twice", [False, True])
def test_states_and_gradients_equal_the_models_own(kind: str, twice: bool) -> None:
    equals_its_own(small_model() if kind == "ours" else hugging_face(kind), twice, at_least=10)


@pytest.mark.parametrize("targets", [ALL_WEIGHTS, ("k_proj", "up_proj")], ids=["all", "some"])
@pytest.mark.parametrize("kind", ["ours", "qwen2"])
def test_so_do_those_of_adapters_and_of_nothing_else(kind: str, targets: tuple[str, ...]) -> None:
    pytest.importorskip("peft", reason="pip install 'isentrope[hf]'")
    model = with_adapters(small_model() if kind == "ours" else hugging_face(kind), targets)
    learning = [name for name, p in model.named_parameters() if p.requires_grad]
    assert len(learning) == 2 * 2 * len(targets)  # two matrices, two layers
    equals_its_own(model, twice=False, at_least=len(learning))


def equals_its_own(model: Any, twice: bool, at_least: int) -> None:
    parts = adapt_model(model)
    assert parts is not None
    episodes = make_episodes(2, words=40)
    sequences, tokens = flatten(episodes)
    (batch,) = micro_batches(sequences, tokens, row_tokens=60)
    assert batch.spans is not None
    assert len(batch.ids_BT) > 1
    real = batch.segments_BT >= 0
    found: list[list[Tensor]] = []
    for fast in (False, True):
        model.zero_grad()
        if fast:
            ids, positions = batch.ids_BT.flatten(), batch.positions_BT.flatten()
            states = states_of(parts, ids, positions, batch.spans, torch.float32, SLOW, twice=twice)
            states = states.unflatten(0, batch.ids_BT.shape)
        else:
            states = model.hidden(batch.ids_BT, batch.positions_BT, batch.segments_BT)
        states = states[real]
        states.sin().sum().backward()
        found.append([states.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)])
    assert len(found[0]) == len(found[1]) > at_least
    for own, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, own, rtol=2e-4, atol=2e-4)


def test_bfloat16_on_a_gpu_and_float32_on_a_cpu_take_the_fast_way() -> None:
    assert trains_fast(small_model(), torch.device("cpu"), torch.float32)
    assert not trains_fast(small_model(), torch.device("cpu"), torch.bfloat16)
    assert not trains_fast(small_model(), torch.device("cuda"), torch.float32)
    assert not trains_fast(object(), torch.device("cuda"), torch.bfloat16)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch's variable-length kernels run on a GPU alone")
@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("size", [32, 64, 128])
def test_the_kernels_of_the_gpu_agree_with_the_mask_as_closely_as_bfloat16_can(name: str, size: int) -> None:
    spans, device = TREES[name], torch.device("cuda")
    tokens = int(spans.length.sum())
    made = torch.Generator().manual_seed(1)
    q = torch.randn(tokens, 6, size, generator=made).to(device, torch.bfloat16)
    k, v = (torch.randn(tokens, 2, size, generator=made).to(device, torch.bfloat16) for _ in range(2))
    up = torch.randn(tokens, 6, size, generator=made).to(device, torch.bfloat16)
    pattern = make_pattern(spans, device, dense=True)
    found: list[list[Tensor]] = []
    for kernels, dtype in ((None, torch.float32), (FLASH, torch.bfloat16)):
        inputs = [x.to(dtype, copy=True).requires_grad_() for x in (q, k, v)]
        out = attention(inputs[0], inputs[1], inputs[2], pattern, kernels)
        (out * up).sum().backward()
        found.append([out.detach(), *(x.grad for x in inputs if x.grad is not None)])
    for exact, quick in zip(*found, strict=True):
        assert float((quick.float() - exact).norm() / exact.norm()) < 0.01
