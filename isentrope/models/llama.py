"""A small Llama-shaped language model, quick at small sizes: RMSNorm, rotary positions, grouped-query attention,
SwiGLU, tied embeddings. Weights carry Llama's own names, so a saved folder is a Hugging Face model folder too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file, save  # pyright: ignore[reportUnknownVariableType]
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint  # pyright: ignore[reportUnknownVariableType]

from isentrope.core.errors import EngineError, writing


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


class Cache:
    """Keys and values of R conversations, each with its own length, written in place."""

    def __init__(self, shape: Shape, rows: int, like: Tensor) -> None:
        self.shape, self.like = shape, like
        self.lengths = torch.zeros(rows, dtype=torch.long, device=like.device)
        self.store = self._empty(rows, 0)
        self._moves = 0

    def _empty(self, rows: int, columns: int) -> Tensor:
        s = self.shape
        size = (s.layers, 2, rows, s.kv_heads, columns, s.head_size)  # heads outside: three times as fast on the CPU
        return torch.zeros(size, dtype=self.like.dtype, device=self.like.device)

    def reserve(self, columns: int) -> None:
        have = self.store.shape[4]
        if columns > have:
            step = 512 if self.like.is_cuda else 1
            wanted = -(-max(columns, have + have // 2, 64) // step) * step
            larger = self._empty(self.store.shape[2], wanted)
            larger[:, :, :, :, :have] = self.store
            self.store = larger
            self._moves += 1

    def place(self) -> int:
        return self._moves

    def keep(self, rows: Tensor) -> None:
        """Forget every conversation but these."""
        self._moves += 1
        self.store, self.lengths = self.store[:, :, rows].contiguous(), self.lengths[rows]

    def copy(self, sources: Tensor, targets: Tensor) -> None:
        """Make the conversations of some rows those of others."""
        self.lengths[targets] = self.lengths[sources]
        longest = int(self.lengths[sources].max())
        for layer in self.store[..., :longest, :]:
            layer[:, targets] = layer[:, sources]


class Block(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        s = self.shape = shape
        kv = s.kv_heads * s.head_size
        self.input_layernorm = nn.RMSNorm(s.width, s.eps)
        self.self_attn = nn.ModuleDict(
            {
                "q_proj": nn.Linear(s.width, s.width, bias=False),
                "k_proj": nn.Linear(s.width, kv, bias=False),
                "v_proj": nn.Linear(s.width, kv, bias=False),
                "o_proj": nn.Linear(s.width, s.width, bias=False),
            }
        )
        self.post_attention_layernorm = nn.RMSNorm(s.width, s.eps)
        self.mlp = nn.ModuleDict(
            {
                "gate_proj": nn.Linear(s.width, s.inner, bias=False),
                "up_proj": nn.Linear(s.width, s.inner, bias=False),
                "down_proj": nn.Linear(s.inner, s.width, bias=False),
            }
        )

    def keys_values(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        s, (b, t, _) = self.shape, x.shape
        h = self.input_layernorm(x)
        q = rotate(self.self_attn["q_proj"](h).view(b, t, s.heads, s.head_size), cos, sin)
        k = rotate(self.self_attn["k_proj"](h).view(b, t, s.kv_heads, s.head_size), cos, sin)
        return q, k, self.self_attn["v_proj"](h).view(b, t, s.kv_heads, s.head_size)

    def finish(self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Attention of q [B T heads] over k, v [B kv_heads S] under mask [B T S], then the feed-forward part."""
        s, (b, t, _) = self.shape, x.shape
        share = s.heads // s.kv_heads
        # Heads that share keys stand side by side in the query dimension: keys are read once and never copied.
        q = q.view(b, t, s.kv_heads, share, s.head_size).permute(0, 2, 3, 1, 4).reshape(b, s.kv_heads, share * t, -1)
        wide = mask[:, None].repeat(1, 1, share, 1) if share > 1 else mask[:, None]
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=wide)
        a = a.view(b, s.kv_heads, share, t, s.head_size).permute(0, 3, 1, 2, 4).reshape(b, t, s.width)
        x = x + self.self_attn["o_proj"](a)
        h = self.post_attention_layernorm(x)
        return x + self.mlp["down_proj"](F.silu(self.mlp["gate_proj"](h)) * self.mlp["up_proj"](h))

    def whole(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        """The layer over rows that see nothing but themselves."""
        q, k, v = self.keys_values(x, cos, sin)
        return self.finish(x, q, k.transpose(1, 2).contiguous(), v.transpose(1, 2).contiguous(), mask)


def seen_BTT(segments_BT: Tensor, parents_BT: Tensor | None) -> Tensor:
    """Which columns of its row each token sees."""
    columns = torch.arange(segments_BT.shape[1], device=segments_BT.device)
    mask = segments_BT[:, :, None] == segments_BT[:, None, :]
    if parents_BT is not None:
        mask |= parents_BT[:, :, None] == segments_BT[:, None, :]
    return mask & (columns[None, :, None] >= columns[None, None, :])


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding of x [B T heads size], Llama's pairing (first half with second half)."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)


class Llama(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape, self._twice = shape, False
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
            if self._twice and torch.is_grad_enabled():
                x = cast("Tensor", checkpoint(block.whole, x, cos, sin, mask, use_reentrant=False))
            else:
                x = block.whole(x, cos, sin, mask)
        return self.norm(x)

    def compute_twice(self) -> None:
        self._twice = True

    @property
    def computes_twice(self) -> bool:
        return self._twice

    def new_cache(self, rows: int) -> Cache:
        return Cache(self.shape, rows, self.embed_tokens.weight.detach())

    def extend(
        self, cache: Cache, ids_RT: Tensor, counts_R: Tensor, rows: Tensor | None = None, seen: int | None = None
    ) -> Tensor:
        """Append counts_R[i] tokens to each conversation (ids right-padded) and give the last one's hidden state.

        `rows` says which conversations of the cache these are; None: all of them. What padding writes lies beyond
        a conversation's end, is never seen, and is overwritten by what comes next. `seen` is the length of the longest
        one afterwards, or more, where the caller knows it: looking it up makes a GPU wait.
        """
        start = cache.lengths if rows is None else cache.lengths[rows]
        width = ids_RT.shape[1]
        seen = int(start.max()) + width if seen is None else seen
        cache.reserve(seen)
        positions = start[:, None] + torch.arange(width, device=ids_RT.device)
        mask = torch.arange(seen, device=ids_RT.device)[None, None, :] <= positions[:, :, None]
        where = torch.arange(len(start), device=ids_RT.device) if rows is None else rows
        x, (cos, sin) = self.embed_tokens(ids_RT), self._angles(positions)
        for i, block in enumerate(self.layers):
            assert isinstance(block, Block)
            q, k, v = block.keys_values(x, cos, sin)
            keys, values = cache.store[i]
            keys[where[:, None], :, positions] = k.to(keys.dtype)
            values[where[:, None], :, positions] = v.to(values.dtype)
            keys, values = keys[:, :, :seen], values[:, :, :seen]
            if rows is not None:
                keys, values = keys[rows], values[rows]
            x = block.finish(x, q, keys.to(q.dtype), values.to(q.dtype), mask)
        if rows is None:
            cache.lengths += counts_R
        else:
            cache.lengths[rows] += counts_R
        return self.norm(x[torch.arange(len(start), device=x.device), (counts_R - 1).clamp(min=0)])

    def save(self, folder: Path) -> None:
        """Write the model as a Hugging Face folder: config.json and model.safetensors with Llama's names."""
        s = self.shape
        config = {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": s.vocabulary,
            "hidden_size": s.width,
            "num_hidden_layers": s.layers,
            "num_attention_heads": s.heads,
            "num_key_value_heads": s.kv_heads,
            "intermediate_size": s.inner,
            "rope_theta": s.theta,
            "rms_norm_eps": s.eps,
            "hidden_act": "silu",
            "max_position_embeddings": 4096,
            "tie_word_embeddings": True,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 4,
            "torch_dtype": str(self.head_weight().dtype).removeprefix("torch."),
        }
        weights = {f"model.{name}": p.detach().cpu().contiguous() for name, p in self.named_parameters()}
        with writing(folder):
            (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
            (folder / "model.safetensors").write_bytes(save(weights, metadata={"format": "pt"}))

    @classmethod
    def load(cls, folder: Path) -> Llama:
        try:
            c = json.loads((folder / "config.json").read_text())
            model = cls(
                Shape(
                    vocabulary=c["vocab_size"],
                    width=c["hidden_size"],
                    layers=c["num_hidden_layers"],
                    heads=c["num_attention_heads"],
                    kv_heads=c["num_key_value_heads"],
                    inner=c["intermediate_size"],
                    theta=c["rope_theta"],
                    eps=c["rms_norm_eps"],
                )
            )
            weights = load_file(folder / "model.safetensors")
            model.load_state_dict({name.removeprefix("model."): value.float() for name, value in weights.items()})
        except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
            raise EngineError(f"cannot load the model in {folder}: {error}") from error
        return model
