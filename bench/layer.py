"""What the matrix products, the attention and the token head of a training pass reach on this card, each by itself.

    python -m bench.layer [--shape qwen2.5-1.5b] [--tokens 16384] [--conversations 5]      # one GPU, half a minute

Forward, and both products of the backward pass; attention by torch's flash kernels, as training has it, and by cuDNN's
where this build has them for packed sequences. Operations count half of the square of causal attention.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from triton.testing import do_bench

from isentrope.bench.sampling import SHAPES
from isentrope.models.memory import learning_rows
from isentrope.models.token_head import logits

aten: Any = torch.ops.aten


def rate(what: str, run: Callable[[], object], operations: float) -> None:
    try:
        seconds = float(do_bench(run, warmup=50, rep=200, return_mode="median")) / 1e3
    except Exception as error:
        print(f"{what:44} not here: {' '.join(str(error).split())[:160]}", flush=True)
        return
    print(f"{what:44}{seconds * 1e3:9.3f} ms {operations / seconds / 1e12:7.0f} TFLOP/s", flush=True)


def normal(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(*shape, device="cuda", dtype=dtype)


def products(tokens: int, width: int, inner: int, qkv: int) -> None:
    sizes = {"qkv": (width, qkv), "o": (width, width), "gate and up": (width, 2 * inner), "down": (inner, width)}
    for name, (into, out) in sizes.items():
        x, w, g = normal(tokens, into), normal(out, into), normal(tokens, out)
        work = 2.0 * tokens * into * out
        rate(f"{name}: forward", lambda x=x, w=w: x @ w.T, work)
        rate(f"{name}: gradient of the input", lambda g=g, w=w: g @ w, work)
        rate(f"{name}: gradient of the weight", lambda g=g, x=x: g.T @ x, work)


def attention(tokens: int, conversations: int, heads: int, kv_heads: int, size: int) -> None:
    length = tokens // conversations
    cuts = torch.arange(conversations + 1, dtype=torch.int32, device="cuda") * length
    total = length * conversations
    q, k, v = normal(total, heads, size), normal(total, kv_heads, size), normal(total, kv_heads, size)
    grad = normal(total, heads, size)
    work = 4.0 * conversations * length**2 / 2 * heads * size

    def flash() -> Any:
        return aten._flash_attention_forward(q, k, v, cuts, cuts, length, length, 0.0, True, False)

    out, norm, state, unused, _ = flash()
    rate("attention, flash: forward", flash, work)
    rate(
        "attention, flash: backward",
        lambda: aten._flash_attention_backward(
            grad, q, k, v, out, norm, cuts, cuts, length, length, 0.0, True, state, unused
        ),
        2.5 * work,
    )

    def cudnn() -> Any:
        return aten._cudnn_attention_forward(q, k, v, None, cuts, cuts, length, length, True, 0.0, True, False)

    try:
        found = cudnn()
    except Exception as error:
        print(f"attention, cuDNN: not here: {' '.join(str(error).split())[:300]}", flush=True)
        return
    apart = (found[0].float() - out.float()).norm() / out.float().norm()
    print(f"cuDNN: apart from flash by {apart:.1e}; normalisers {tuple(found[1].shape)} {found[1].dtype}, "
          f"flash's {tuple(norm.shape)}, sums {float(found[1].sum()):.6g} and {float(norm.sum()):.6g}")  # fmt: skip
    rate("attention, cuDNN: forward", cudnn, work)

    def back() -> Any:
        return aten._cudnn_attention_backward(
            grad, q, k, v, found[0], found[1], found[6], found[7], None, cuts, cuts, length, length, 0.0, True
        )

    rate("attention, cuDNN: backward", back, 2.5 * work)


def head(rows: int, width: int, words: int) -> None:
    from isentrope.kernels.head import fused_head

    hidden, weight = normal(rows, width).requires_grad_(), (normal(words, width) / 50).requires_grad_()
    target, ones = torch.randint(0, words, (rows,), device="cuda"), torch.ones(rows, device="cuda")
    standard = learning_rows(words, 0)
    for chunk in (standard, 2 * standard, 4 * standard, 8 * standard):

        def forward(chunk: int = chunk) -> Any:
            with torch.no_grad():
                return fused_head(hidden, weight, target, ones, chunk)

        def both(chunk: int = chunk) -> None:
            logp, entropy = fused_head(hidden, weight, target, ones, chunk)
            (logp.sum() + entropy.sum()).backward()
            hidden.grad = weight.grad = None

        work = 2.0 * rows * width * words
        rate(f"head, {chunk:,} rows at a time: forward", forward, work)
        rate(f"head, {chunk:,} rows at a time: and backward", both, 4 * work)
    part = hidden.detach()[:standard]
    rate("head: logits of a chunk alone", lambda: logits(part, weight.detach()), 2.0 * len(part) * width * words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="qwen2.5-1.5b", choices=list(SHAPES))
    parser.add_argument("--tokens", type=int, default=16_384)
    parser.add_argument("--conversations", type=int, default=5)
    given = parser.parse_args()
    config = SHAPES[given.shape].config()
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    torch.manual_seed(0)
    products(given.tokens, config.hidden_size, config.intermediate_size, (heads + 2 * kv_heads) * size)
    attention(given.tokens, given.conversations, heads, kv_heads, size)
    head(int(0.5 * given.tokens), config.hidden_size, config.vocab_size)


if __name__ == "__main__":
    main()
