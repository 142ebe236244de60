"""Finds the parts of a Llama-shaped model: our own Llama, Hugging Face's Llama, Qwen2 and Qwen3, adapters included.

The tensors are the model's own parameters: what trains them and what samples from them see the same memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from isentrope.models.hugging_face import HuggingFaceModel
from isentrope.models.llama import Llama

KNOWN = ("llama", "qwen2", "qwen3")
"""Values of `model_type` whose layers have exactly these parts."""


@dataclass(frozen=True)
class LowRank:
    """What an adapter adds to a weight: scale · up · down."""

    down: Tensor  # [rank, in]
    up: Tensor  # [out, rank]
    scale: float


@dataclass(frozen=True)
class Layer:
    """One layer: h += o(attention(q, k, v of norm_in(h))); h += down(silu(gate(x)) · up(x)) with x = norm_out(h)."""

    norm_in: Tensor
    norm_out: Tensor
    q: Tensor  # all weights are [out, in]
    k: Tensor
    v: Tensor
    o: Tensor
    gate: Tensor
    up: Tensor
    down: Tensor
    q_bias: Tensor | None = None
    k_bias: Tensor | None = None
    v_bias: Tensor | None = None
    q_norm: Tensor | None = None  # over each head, before the rotation
    k_norm: Tensor | None = None
    low: Mapping[str, LowRank] = field(default_factory=dict[str, LowRank])  # by the weight's name above


@dataclass(frozen=True)
class ModelAdapter:
    embed: Tensor
    head: Tensor
    norm: Tensor
    eps: float
    heads: int
    kv_heads: int
    head_size: int
    frequencies: Tensor  # of the rotation, float32 [head_size / 2]
    rope_scale: float  # what cosine and sine are multiplied by
    layers: tuple[Layer, ...]
    padding: int | None = None  # the word whose embedding learns nothing from where it is read


def adapt_model(model: object) -> ModelAdapter | None:
    """The parts of this model, or None if it has others."""
    if hasattr(model, "adapter"):  # with adapters, or the reference that shares its weights: models/lora.py
        adapted: Any = model
        return _parts(adapted.inner, adapted.adapter)
    return _parts(model, None)


def _parts(model: object, adapter: str | None) -> ModelAdapter | None:
    """`adapter` names the adapters that count; None: none of them, should there be any."""
    if isinstance(model, Llama):
        s, decoder = model.shape, model
        numbers = (s.eps, s.heads, s.kv_heads, s.head_size, model.get_buffer("frequencies"), 1.0)
    elif isinstance(model, HuggingFaceModel) and _known(model.lm.config):
        config, decoder, rotary = model.lm.config, model.decoder, model.decoder.rotary_emb
        heads, kv_heads = int(config.num_attention_heads), int(config.num_key_value_heads)
        size = int(getattr(config, "head_dim", None) or config.hidden_size // heads)
        numbers = (float(config.rms_norm_eps), heads, kv_heads, size, rotary.inv_freq, float(rotary.attention_scaling))
    else:
        return None
    layers = [_layer(block, adapter) for block in decoder.layers]
    found = tuple(layer for layer in layers if layer is not None)
    if len(found) < len(layers):
        return None
    words: Any = decoder.embed_tokens
    if type(words) is not nn.Embedding:  # wrapped, as adapters of the words are
        return None
    return ModelAdapter(words.weight, model.head_weight(), decoder.norm.weight, *numbers, found, words.padding_idx)


def _known(config: Any) -> bool:
    rope: dict[str, Any] = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    return (
        config.model_type in KNOWN
        and config.hidden_act == "silu"
        and rope.get("rope_type", "default") not in ("dynamic", "longrope")  # these change with the length
        and not getattr(config, "use_sliding_window", False)
    )


def _layer(block: Any, adapter: str | None) -> Layer | None:
    """None for a layer whose parts are wrapped in other ways than PEFT's, or that adds numbers that we do not know."""
    attention, mlp = dict(block.self_attn.named_children()), dict(block.mlp.named_children())
    parts = {name: attention.get(f"{name}_proj") for name in ("q", "k", "v", "o")}
    parts |= {name: mlp.get(f"{name}_proj") for name in ("gate", "up", "down")}
    linear, low = dict[str, Any](), dict[str, LowRank]()
    for name, part in parts.items():
        wrapped: Any = part
        plain: Any = getattr(part, "base_layer", part)
        if not _is_linear(plain) or (plain.bias is not None and name in ("o", "gate", "up", "down")):
            return None
        linear[name] = plain
        if plain is not part and adapter is not None and adapter in wrapped.lora_A:
            found = _low_rank(wrapped, adapter)
            if found is None:
                return None
            low[name] = found
    norms: dict[str, Any] = {name: getattr(attention.get(name), "weight", None) for name in ("q_norm", "k_norm")}
    return Layer(
        block.input_layernorm.weight,
        block.post_attention_layernorm.weight,
        **{name: part.weight for name, part in linear.items()},
        **{f"{name}_bias": linear[name].bias for name in ("q", "k", "v")},
        **norms,
        low=low,
    )


def _is_linear(part: object) -> bool:
    """And nothing that is made from it."""
    return type(part) is nn.Linear


def _low_rank(part: Any, adapter: str) -> LowRank | None:
    """Of a layer that PEFT has wrapped; None where more is added than the product of two matrices."""
    more = part.lora_variant or part.lora_magnitude_vector or part.merged_adapters or part.fan_in_fan_out
    if more or part.lora_B[adapter].bias is not None:
        return None
    return LowRank(part.lora_A[adapter].weight, part.lora_B[adapter].weight, float(part.scaling[adapter]))
