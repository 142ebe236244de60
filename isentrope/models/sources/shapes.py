"""Models of known shapes, without weights: what transformers' settings of them are, and the facts that follow.

Nothing here imports torch or transformers, so that memory and time can be told of a model that is not here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from isentrope.models.sources.catalogue import Facts, facts_of

_NAMES = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
          "num_key_value_heads", "tie_word_embeddings")  # fmt: skip
_FAMILIES = {  # by the name that transformers' classes begin with; what its models have in common
    "Llama": {"rope_theta": 5e5},
    "Qwen2": {"rope_theta": 1e6},
    "Qwen3": {"rope_theta": 1e6, "head_dim": 128},
}
_POSITIONS = 32_768


@dataclass(frozen=True)
class Shape:
    family: str
    sizes: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def of(cls, family: str, *sizes: int, tied: bool, **more: Any) -> Shape:
        return cls(family, dict(zip(_NAMES, (*sizes, tied), strict=True)) | more)

    @property
    def architecture(self) -> str:
        return f"{self.family}ForCausalLM"

    @property
    def settings(self) -> dict[str, Any]:
        return {"max_position_embeddings": _POSITIONS, **_FAMILIES[self.family], **self.sizes}

    def config(self, **more: Any) -> Any:
        """The shape as transformers has it."""
        import transformers

        kind = getattr(transformers, f"{self.family}Config")
        return kind(architectures=[self.architecture], **{**self.settings, **more})

    def facts(self) -> Facts:
        settings = self.settings | {"architectures": [self.architecture]}
        return replace(facts_of(settings, self.weights()), chat_template=True)

    def weights(self) -> dict[str, tuple[int, ...]]:
        """The shapes of all weights, by the names that transformers gives them; a tied head is there once."""
        given = self.settings
        width, inner, words = given["hidden_size"], given["intermediate_size"], given["vocab_size"]
        heads, kv_heads = given["num_attention_heads"], given["num_key_value_heads"]
        size = given.get("head_dim", width // heads)
        q, kv = heads * size, kv_heads * size
        layer: dict[str, tuple[int, ...]] = {
            "self_attn.q_proj.weight": (q, width), "self_attn.k_proj.weight": (kv, width),
            "self_attn.v_proj.weight": (kv, width), "self_attn.o_proj.weight": (width, q),
            "mlp.gate_proj.weight": (inner, width), "mlp.up_proj.weight": (inner, width),
            "mlp.down_proj.weight": (width, inner), "input_layernorm.weight": (width,),
            "post_attention_layernorm.weight": (width,),
        }  # fmt: skip
        if self.family == "Qwen2":
            layer |= {f"self_attn.{name}_proj.bias": (count,) for name, count in (("q", q), ("k", kv), ("v", kv))}
        if self.family == "Qwen3":
            layer |= {f"self_attn.{name}_norm.weight": (size,) for name in "qk"}
        found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (words, width), "model.norm.weight": (width,)}
        for number in range(given["num_hidden_layers"]):
            found |= {f"model.layers.{number}.{name}": shape for name, shape in layer.items()}
        return found if given["tie_word_embeddings"] else found | {"lm_head.weight": (words, width)}


SHAPES = {
    "tiny": Shape.of("Qwen2", 607, 64, 96, 2, 4, 2, tied=True),
    "small": Shape.of("Qwen2", 2048, 64, 96, 2, 4, 2, tied=True),  # with more words than the pocket tokens have
    "smollm2-135m": Shape.of("Llama", 49_152, 576, 1536, 30, 9, 3, tied=True, rope_theta=1e5),
    "qwen2.5-0.5b": Shape.of("Qwen2", 151_936, 896, 4864, 24, 14, 2, tied=True),
    "qwen2.5-1.5b": Shape.of("Qwen2", 151_936, 1536, 8960, 28, 12, 2, tied=True),
    "qwen2.5-3b": Shape.of("Qwen2", 151_936, 2048, 11_008, 36, 16, 2, tied=True),
    "qwen2.5-7b": Shape.of("Qwen2", 152_064, 3584, 18_944, 28, 28, 4, tied=False),
    "qwen2.5-14b": Shape.of("Qwen2", 152_064, 5120, 13_824, 48, 40, 8, tied=False),
    "qwen2.5-32b": Shape.of("Qwen2", 152_064, 5120, 27_648, 64, 40, 8, tied=False),
    "qwen2.5-72b": Shape.of("Qwen2", 152_064, 8192, 29_568, 80, 64, 8, tied=False),
    "llama3-1b": Shape.of("Llama", 128_256, 2048, 8192, 16, 32, 8, tied=True),
    "llama3-8b": Shape.of("Llama", 128_256, 4096, 14_336, 32, 32, 8, tied=False),
    "qwen3-0.6b": Shape.of("Qwen3", 151_936, 1024, 3072, 28, 16, 8, tied=True),
    "qwen3-8b": Shape.of("Qwen3", 151_936, 4096, 12_288, 36, 32, 8, tied=False),
}
"""Of SmolLM2-135M, Qwen2.5, Llama 3.2 (1B) and 3.1 (8B), and Qwen3; without what stretches Llama's rotation."""
