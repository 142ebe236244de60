"""A small Llama-shaped language model, quick at small sizes: RMSNorm, rotary positions, grouped-query attention,
SwiGLU, tied embeddings. Weights carry Llama's own names, so a saved folder is a Hugging Face model folder too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file, save  # pyright: ignore[reportUnknownVariableType]
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint  # pyright: ignore[reportUnknownVariableType]

from isentrope.core.errors import EngineError, writing
from isentrope.core.limits import NOTE_BYTES, check_is_file, read_json
from isentrope.models.kv_cache import Cache, real_tokens, seen_BTT

SETTINGS = {  # a shape's fields -> the names of Hugging Face's config.json
    "vocabulary": "vocab_size", "width": "hidden_size", "layers": "num_hidden_layers", "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads", "inner": "intermediate_size", "theta": "rope_theta", "eps": "rms_norm_eps",
}  # fmt: skip


@dataclass(frozen=True)
class Shape:
    vocabulary: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    inner: int
    theta: float = 10000.0
    eps: float = 1e-5

    @property
    def head_size(self) -> int:
        return self.width // self.heads


class Block(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        s = self.shape = shape
        w, kv, linear = s.width, s.kv_heads * s.head_size, partial(nn.Linear, bias=False)
        self.input_layernorm = nn.RMSNorm(w, s.eps)
        self.self_attn = nn.ModuleDict(
            {"q_proj": linear(w, w), "k_proj": linear(w, kv), "v_proj": linear(w, kv), "o_proj": linear(w, w)}
        )
        self.post_attention_layernorm = nn.RMSNorm(w, s.eps)
        self.mlp = nn.ModuleDict(
            {"gate_proj": linear(w, s.inner), "up_proj": linear(w, s.inner), "down_proj": linear(s.inner, w)}
        )

    def keys_values(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        s, (b, t, _) = self.shape, x.shape
        h = self.input_layernorm(x)
        q = rotate(self.self_attn["q_proj"](h).view(b, t, s.heads, s.head_size), cos, sin)
        k = rotate(self.self_attn["k_proj"](h).view(b, t, s.kv_heads, s.head_size), cos, sin)
        return q, k, self.self_attn["v_proj"](h).view(b, t, s.kv_heads, s.head_size)

    def finish(self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return self.feed(x, self.attend(q, k, v, mask))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Attention of q [B T heads size] over k, v [B kv_heads S size] under mask [B T S]."""
        s, (b, t) = self.shape, q.shape[:2]
        share = s.heads // s.kv_heads
        # Heads that share keys stand side by side in the query dimension: keys are read once and never copied.
        q = q.view(b, t, s.kv_heads, share, s.head_size).permute(0, 2, 3, 1, 4).reshape(b, s.kv_heads, share * t, -1)
        wide = mask[:, None].repeat(1, 1, share, 1) if share > 1 else mask[:, None]
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=wide)
        return a.view(b, s.kv_heads, share, t, s.head_size).permute(0, 3, 1, 2, 4).reshape(b, t, s.width)

    def feed(self, x: Tensor, a: Tensor) -> Tensor:
        """What attention found is added, then the feed-forward part."""
        x = x + self.self_attn["o_proj"](a)
        h = self.post_attention_layernorm(x)
        return x + self.mlp["down_proj"](F.silu(self.mlp["gate_proj"](h)) * self.mlp["up_proj"](h))

    def whole(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        """The layer over rows that see nothing but themselves."""
        q, k, v = self.keys_values(x, cos, sin)
        return self.finish(x, q, k.transpose(1, 2).contiguous(), v.transpose(1, 2).contiguous(), mask)


def _padded(packed: Tensor, at_N: Tensor, ids_RT: Tensor) -> Tensor:
    """[1 N heads size] as [R T heads size]."""
    padded = packed.new_zeros(ids_RT.numel(), *packed.shape[2:])
    padded[at_N] = packed[0]
    return padded.view(*ids_RT.shape, *packed.shape[2:])


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding of x [B T heads size], Llama's pairing (first half with second half)."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)


class Llama(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape, self.computes_twice = shape, False
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, shape.eps)
        half = torch.arange(0, shape.head_size, 2, dtype=torch.float32) / shape.head_size
        self.register_buffer("frequencies", 1.0 / shape.theta**half, persistent=False)

    def initialise(self, generator: torch.Generator) -> None:
        """Normal weights; those that write into the residual stream smaller with depth."""
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                deep = name.endswith(("o_proj.weight", "down_proj.weight"))
                std = 0.02 / (2 * self.shape.layers) ** 0.5 if deep else 0.02
                parameter.data.normal_(0.0, std, generator=generator)

    def _angles(self, positions_BT: Tensor) -> tuple[Tensor, Tensor]:
        angles = positions_BT[..., None, None].float() * self.get_buffer("frequencies")
        return angles.cos(), angles.sin()

    def head_weight(self) -> Tensor:
        return self.embed_tokens.weight

    def hidden(
        self, ids_BT: Tensor, positions_BT: Tensor, segments_BT: Tensor, parents_BT: Tensor | None = None
    ) -> Tensor:
        """Final hidden states [B T D] of packed rows; a token sees its own segment up to itself, and its parent."""
        mask = seen_BTT(segments_BT, parents_BT)
        x, (cos, sin) = self.embed_tokens(ids_BT), self._angles(positions_BT)
        for block in self.layers:
            assert isinstance(block, Block)
            if self.computes_twice and torch.is_grad_enabled():
                x = cast("Tensor", checkpoint(block.whole, x, cos, sin, mask, use_reentrant=False))
            else:
                x = block.whole(x, cos, sin, mask)
        return self.norm(x)

    def compute_twice(self) -> None:
        self.computes_twice = True

    def extend(
        self, cache: Cache, ids_RT: Tensor, counts_R: Tensor, rows: Tensor | None = None, seen: int | None = None
    ) -> Tensor:
        """Append counts_R[i] tokens to each conversation (ids right-padded) and give the last one's hidden state.

        `rows` says which conversations of the cache these are; None: all of them. What padding writes lies beyond
        a conversation's end, is never seen, and is overwritten by what comes next. `seen` is the length of the longest
        one afterwards, or more, where the caller knows it: looking it up makes a GPU wait.
        """
        positions, mask = cache.begin(ids_RT.shape[1], rows, seen)
        x, (cos, sin) = self.embed_tokens(ids_RT), self._angles(positions)
        for i, block in enumerate(self.layers):
            assert isinstance(block, Block)
            q, k, v = block.keys_values(x, cos, sin)
            x = block.finish(x, q, *cache.update(k.transpose(1, 2), v.transpose(1, 2), i), mask)
        return self.norm(cache.end(x, counts_R))

    def extend_all(self, cache: Cache, ids_RT: Tensor, counts_R: Tensor, rows: Tensor | None, seen: int) -> Tensor:
        """As `extend`, but gives the hidden states of all new tokens [N D], one row's after the other's. Everything but
        attention is computed without the padding."""
        positions, mask = cache.begin(ids_RT.shape[1], rows, seen)
        at_N = real_tokens(ids_RT, counts_R)
        x, (cos, sin) = self.embed_tokens(ids_RT.flatten()[at_N])[None], self._angles(positions.flatten()[at_N][None])
        for i, block in enumerate(self.layers):
            assert isinstance(block, Block)
            q, k, v = (_padded(part, at_N, ids_RT) for part in block.keys_values(x, cos, sin))
            a = block.attend(q, *cache.update(k.transpose(1, 2), v.transpose(1, 2), i), mask)
            x = block.feed(x, a.flatten(0, 1)[at_N][None])
        cache.grow(counts_R)
        return self.norm(x[0])

    def save(self, folder: Path) -> None:
        """Write the model as a Hugging Face folder: config.json and model.safetensors with Llama's names."""
        shape = {theirs: getattr(self.shape, name) for name, theirs in SETTINGS.items()}
        config = {
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", **shape, "hidden_act": "silu",
            "max_position_embeddings": 4096, "tie_word_embeddings": True, "pad_token_id": 0, "bos_token_id": 1,
            "eos_token_id": 4, "torch_dtype": str(self.head_weight().dtype).removeprefix("torch."),
        }  # fmt: skip
        weights = {f"model.{name}": p.detach().cpu().contiguous() for name, p in self.named_parameters()}
        with writing(folder):
            (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
            (folder / "model.safetensors").write_bytes(save(weights, metadata={"format": "pt"}))

    @classmethod
    def load(cls, folder: Path) -> Llama:
        try:
            config = read_json(folder / "config.json", NOTE_BYTES, found=False)
            check_is_file(folder / "model.safetensors", found=False)
            shape = Shape(**{name: config[theirs] for name, theirs in SETTINGS.items()})
            loaded = load_file(folder / "model.safetensors")
            weights = {name.removeprefix("model."): value for name, value in loaded.items()}
            _check_shape(cls, shape, weights)
            model = cls(shape)
            model.load_state_dict({name: value.float() for name, value in weights.items()})
        except (OSError, ValueError, TypeError, LookupError, ArithmeticError, RuntimeError, SafetensorError) as error:
            raise EngineError(f"cannot load the model in {folder}: {error}") from error
        return model


def _check_shape(kind: type[Llama], shape: Shape, weights: Mapping[str, Tensor]) -> None:
    """Refuse a model that would be larger than its weights before there is memory for it."""
    if not 0 < shape.layers <= len(weights):
        raise ValueError(f"its config.json has {shape.layers!r:.40} layers, and the file of its weights {len(weights)}")
    with torch.device("meta"):
        expected = {name: value.shape for name, value in kind(shape).state_dict().items()}
    for name, size in expected.items():
        if name not in weights or weights[name].shape != size:
            there = tuple(weights[name].shape) if name in weights else "not there"
            raise ValueError(f"its config.json makes {name} {tuple(size)}, in the file of its weights it is {there}")
