"""Finds the parts of a Llama-shaped model: our own Llama, Hugging Face's Llama, Qwen2 and Qwen3.

The tensors are the model's own parameters: what trains them and what samples from them see the same memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from isentrope.models.hugging_face import HuggingFaceModel
from isentrope.models.llama import Llama

KNOWN = ("llama", "qwen2", "qwen3")
"""Values of `model_type` whose layers have exactly these parts."""


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
    if isinstance(model, Llama):
        s = model.shape
        parts = (s.eps, s.heads, s.kv_heads, s.head_size, model.get_buffer("frequencies"), 1.0)
        return _adapter(model, model.head_weight(), parts)
    if isinstance(model, HuggingFaceModel) and _known(model.lm.config):
        config, rotary = model.lm.config, model.decoder.rotary_emb
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        parts = (
            float(config.rms_norm_eps),
            int(config.num_attention_heads),
            int(config.num_key_value_heads),
            int(size),
            rotary.inv_freq,
            float(rotary.attention_scaling),
        )
        return _adapter(model.decoder, model.head_weight(), parts)
    return None


def _known(config: Any) -> bool:
    rope: dict[str, Any] = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    return (
        config.model_type in KNOWN
        and config.hidden_act == "silu"
        and rope.get("rope_type", "default") not in ("dynamic", "longrope")  # these change with the length
        and not getattr(config, "use_sliding_window", False)
    )


def _adapter(decoder: Any, head: Tensor, parts: tuple[float, int, int, int, Tensor, float]) -> ModelAdapter | None:
    layers = [_layer(block) for block in decoder.layers]
    found = tuple(layer for layer in layers if layer is not None)
    if len(found) < len(layers):
        return None
    eps, heads, kv_heads, size, frequencies, scale = parts
    return ModelAdapter(
        embed=decoder.embed_tokens.weight,
        head=head,
        norm=decoder.norm.weight,
        eps=eps,
        heads=heads,
        kv_heads=kv_heads,
        head_size=size,
        frequencies=frequencies,
        rope_scale=scale,
        layers=found,
        padding=decoder.embed_tokens.padding_idx,
    )


def _layer(block: Any) -> Layer | None:
    """None for a layer whose parts are wrapped, as adapters do, or that adds numbers of which we know nothing."""
    attention, mlp = _children(block.self_attn), _children(block.mlp)
    linear = {name: attention.get(name) for name in ("q_proj", "k_proj", "v_proj", "o_proj")}
    linear |= {name: mlp.get(name) for name in ("gate_proj", "up_proj", "down_proj")}
    if any(type(part) is not nn.Linear for part in linear.values()):
        return None
    if any(getattr(linear[name], "bias", None) is not None for name in ("o_proj", "gate_proj", "up_proj", "down_proj")):
        return None
    weight = {name.removesuffix("_proj"): _tensor(part, "weight") for name, part in linear.items()}
    return Layer(
        norm_in=block.input_layernorm.weight,
        norm_out=block.post_attention_layernorm.weight,
        **{name: value for name, value in weight.items() if value is not None},
        q_bias=_tensor(linear["q_proj"], "bias"),
        k_bias=_tensor(linear["k_proj"], "bias"),
        v_bias=_tensor(linear["v_proj"], "bias"),
        q_norm=_tensor(attention.get("q_norm"), "weight"),
        k_norm=_tensor(attention.get("k_norm"), "weight"),
    )


def _children(module: nn.Module) -> dict[str, nn.Module]:
    return dict(module.named_children())


def _tensor(module: nn.Module | None, name: str) -> Tensor | None:
    return getattr(module, name, None)
