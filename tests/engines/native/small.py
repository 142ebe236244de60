"""Small models of every shape that the native engine knows, and a cache for them."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from isentrope.engines.drafts import GAP, REACH
from isentrope.engines.native.attention import NEW_TOKENS
from isentrope.engines.native.draw import Rows
from isentrope.engines.native.forward import Forward, Packed
from isentrope.engines.native.weights import Weights
from isentrope.models.hugging_face import HuggingFaceModel
from isentrope.models.llama import Llama, Shape
from isentrope.models.model_adapter import adapt_model

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
M = TypeVar("M", bound=torch.nn.Module)
WORDS, PAGE, CONTEXT = 97, 16, 160


def our_llama() -> Llama:
    model = Llama(Shape(vocabulary=WORDS, width=96, layers=2, heads=6, kv_heads=2, inner=80))
    model.initialise(torch.Generator().manual_seed(0))
    return louder(model)


def theirs(kind: str) -> HuggingFaceModel:
    import transformers

    shape: dict[str, Any] = {
        "vocab_size": WORDS,
        "hidden_size": 64,
        "intermediate_size": 80,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": CONTEXT,
        "attn_implementation": "sdpa",
        "tie_word_embeddings": kind != "Qwen3",
    }
    if kind == "Llama scaled":
        rope = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
        shape["rope_scaling"] = {**rope, "original_max_position_embeddings": 32, "rope_theta": 10000.0}
    kind = kind.split()[0]
    torch.manual_seed(1)
    config = getattr(transformers, f"{kind}Config")(**shape)
    return louder(HuggingFaceModel(getattr(transformers, f"{kind}ForCausalLM")(config).eval()))


def louder(model: M) -> M:
    """Weights large enough that attention and words are far from uniform, biases and norms that are not all alike."""
    generator = torch.Generator().manual_seed(2)
    for parameter in model.parameters():
        if parameter.dim() == 2:
            parameter.data *= 6
        else:
            parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)
    return model.to(DEVICE)


MODELS = {
    "ours": our_llama,
    "Llama": lambda: theirs("Llama"),
    "Llama scaled": lambda: theirs("Llama scaled"),
    "Qwen2": lambda: theirs("Qwen2"),
    "Qwen3": lambda: theirs("Qwen3"),
}


def make_forward(
    model: Any, rows: int = 4, dtype: torch.dtype = torch.float32, as_small: bool | None = None
) -> Forward:
    """A forward pass whose rows have pages in scattered order; `as_small` says by which kernels, if not the usual."""
    parts = adapt_model(model)
    assert parts is not None
    pages = CONTEXT // PAGE
    shape = (len(parts.layers), 2, rows * pages, parts.kv_heads, PAGE, parts.head_size)
    table = torch.from_numpy(np.random.default_rng(0).permutation(rows * pages).reshape(rows, pages)).int()
    ints = torch.zeros(rows, dtype=torch.int32, device=DEVICE)
    state = Rows(
        ids=ints.clone(),
        positions=ints - 1,
        counts=ints.clone(),
        limits=ints + 32,
        temperatures=torch.ones(rows, device=DEVICE),
        tail=torch.full((rows, REACH), GAP, dtype=torch.int32, device=DEVICE),
        uniforms=torch.from_numpy(np.random.default_rng(1).random((rows, 32), dtype=np.float32)).to(DEVICE),
        table=table.to(DEVICE),
    )
    cache = torch.full(shape, float("nan"), dtype=dtype, device=DEVICE)  # what is never written must never be read
    forward = Forward(Weights(parts, dtype), cache, state, CONTEXT)
    forward.small = forward.small if as_small is None else as_small
    return forward


def packed(pieces: dict[int, tuple[int, list[int]]], padding: int = 0) -> Packed:
    """row -> (position of its first new token, new tokens)."""
    ids, row_of, positions, blocks, last = [], [], [], [], []
    for row, (start, tokens) in pieces.items():
        for at in range(0, len(tokens), NEW_TOKENS):
            blocks.append((row, len(ids) + at, min(NEW_TOKENS, len(tokens) - at)))
        ids += tokens
        row_of += [row] * len(tokens)
        positions += range(start, start + len(tokens))
        last.append(len(ids) - 1)
    ids, row_of, positions = ids + [0] * padding, row_of + [-1] * padding, positions + [0] * padding
    blocks += [(-1, 0, 0)] * (padding > 0)

    def tensor(values: Any) -> Tensor:
        return torch.tensor(values, dtype=torch.int32, device=DEVICE)

    block_row, first, count = (tensor([block[i] for block in blocks]) for i in range(3))
    return Packed(
        tensor(ids), tensor(row_of), tensor(positions), block_row, first, count, tensor(last), tensor(list(pieces))
    )


@torch.no_grad()
def plain_logits(model: Any, tokens: list[int]) -> Tensor:
    """By the model's own whole forward pass: logits after every token."""
    ids = torch.tensor([tokens], device=DEVICE)
    positions = torch.arange(len(tokens), device=DEVICE)[None]
    hidden = model.hidden(ids, positions, torch.zeros_like(ids))
    return hidden[0].float() @ model.head_weight().float().T
