"""Each kernel against the same in float64, and what plain torch of the same precision is off by."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from isentrope.core.types import Spans
from isentrope.engines.native.attention import NEW_TOKENS, decode_attention, make_splits, prefill_attention
from isentrope.engines.native.draw import Rows, draw
from isentrope.engines.native.small_kernels import add_norm, head_norm, rotate_write, swiglu
from isentrope.kernels.attention import FLASH, Kernels, attention, make_pattern
from isentrope.kernels.head import fused_head
from tests.audit import naive
from tests.audit.cases import Line

PAGE, THETA = 64, 10000.0
HALF = torch.bfloat16


def label(dtype: torch.dtype) -> str:
    return "bf16" if dtype == HALF else "fp32"


def judged(
    name: str,
    found: Tensor,
    exact: Tensor,
    plain: Tensor,
    dtype: torch.dtype,
    tight: float = 3e-6,
    once: float = 2.5e-3,
) -> Line:
    """Relative error; in float32 up to `tight` or four times plain torch's, in bfloat16 up to 1.5 times plain's, or
    what rounding to the nearest `once` may be off by: cutting off would be twice that."""
    ours, theirs = naive.apart(found, exact)[1], naive.apart(plain, exact)[1]
    bar = max(tight, 4 * theirs) if dtype == torch.float32 else max(once, 1.5 * theirs)
    return Line(f"{name} {label(dtype)}", ours, bar, f"plain {theirs:.2e}")


def angles(count: int, size: int, device: str) -> tuple[Tensor, Tensor]:
    rate = THETA ** (-torch.arange(size // 2, dtype=torch.float64) / (size // 2))
    a = torch.arange(count, dtype=torch.float64)[:, None] * rate
    return a.cos().float().to(device), a.sin().float().to(device)


def turned(x: Tensor, at: Tensor, cs: tuple[Tensor, Tensor]) -> Tensor:
    """x [tokens, heads, size] rotated by the angles of positions `at`, in x's precision or float32 inside."""
    wide = x if x.dtype == torch.float64 else x.float()
    c, s = (t[at][:, None].to(wide) for t in cs)
    a, b = wide.chunk(2, -1)
    return torch.cat((a * c - b * s, b * c + a * s), -1).to(x.dtype)


def paged(lengths: Sequence[int], heads: int, kv: int, size: int, splits: int, dtype: torch.dtype,
          device: str) -> list[Line]:  # fmt: skip
    """A prompt is read in two pieces, then one token decoded; pages lie scattered and hold NaN where nothing is."""
    made, rows, most = torch.Generator().manual_seed(0), len(lengths), -(-(max(lengths) + 1) // PAGE)
    table = torch.from_numpy(np.random.default_rng(0).permutation(rows * most).reshape(rows, most)).int().to(device)
    cache = torch.full((2, rows * most, kv, PAGE, size), math.nan, dtype=dtype, device=device)
    cs, width = angles(most * PAGE, size, device), (heads + 2 * kv) * size
    given = [torch.randn(n + 1, width, generator=made).to(dtype) for n in lengths]
    given = [(g.view(len(g), -1, size) * torch.tensor([2.0] * (heads + kv) + [1.0] * kv)[:, None]).flatten(1).to(dtype)
             for g in given]  # fmt: skip
    wanted = {torch.float64: [], dtype: []}
    for g in given:
        for kind in (torch.float64, dtype):
            x = g.to(device if kind == dtype else "cpu", kind).view(len(g), -1, size)
            at = torch.arange(len(g), device=x.device)
            mine = tuple(t.to(x.device) for t in cs)
            q, k = turned(x[:, :heads], at, mine), turned(x[:, heads : heads + kv], at, mine)
            seen = torch.ones(len(g), len(g), dtype=torch.bool, device=x.device).tril()
            wanted[kind].append(naive.attend(q, k, x[:, heads + kv :], seen).flatten(1))
    outs: list[list[Tensor]] = [[] for _ in lengths]
    for begin, end in ((lambda n: 0, lambda n: n // 3), (lambda n: n // 3, lambda n: n)):
        pieces = [(r, begin(n), given[r][begin(n) : end(n)]) for r, n in enumerate(lengths) if end(n) > begin(n)]
        if not pieces:
            continue
        row_of = torch.cat([torch.full((len(x),), r) for r, _, x in pieces]).int().to(device)
        positions = torch.cat([torch.arange(b, b + len(x)) for _, b, x in pieces]).int().to(device)
        packed = torch.cat([x for _, _, x in pieces]).to(device)
        blocks, first = [], 0
        for r, _, x in pieces:
            blocks += [(r, first + a, min(NEW_TOKENS, len(x) - a)) for a in range(0, len(x), NEW_TOKENS)]
            first += len(x)
        told = tuple(torch.tensor(c, dtype=torch.int32, device=device) for c in zip(*blocks, strict=True))
        q = rotate_write(packed, cache, table, row_of, positions, cs, heads)
        out = prefill_attention(q, cache, table, told, positions, heads)  # type: ignore[arg-type]
        for r, _, _ in pieces:
            outs[r].append(out[row_of == r])
    where = torch.tensor(lengths, dtype=torch.int32, device=device)
    reach = -(-max(lengths) // splits // PAGE) * PAGE if splits > 1 else most * PAGE
    room = make_splits(rows, kv, size, reach, splits, torch.device(device))
    newest = torch.stack([g[-1] for g in given]).to(device)
    last = decode_attention(newest, cache, table, where, cs, heads, room)
    name = f"heads {heads}/{kv} x {size}"
    exact, plain = (torch.cat([w[:-1].cpu() for w in wanted[kind]]) for kind in (torch.float64, dtype))
    lines = [judged(f"prefill attention {name}", torch.cat([torch.cat(o) for o in outs]), exact, plain, dtype)]
    exact, plain = (torch.stack([w[-1].cpu() for w in wanted[kind]]) for kind in (torch.float64, dtype))
    return [*lines, judged(f"decode attention {name}, {splits} parts", last, exact, plain, dtype)]


def small(dtype: torch.dtype, device: str) -> list[Line]:
    made = torch.Generator().manual_seed(1)
    x, delta = (torch.randn(7, 96, generator=made).to(dtype) for _ in range(2))
    weight = (1 + 0.3 * torch.randn(96, generator=made)).to(dtype)
    summed = x.to(device).clone()
    normed = add_norm(summed, delta.to(device), weight.to(device), 1e-5, dtype)
    exact_sum = x.double() + delta.double()
    exact = naive.rms((x + delta).double(), weight.double(), 1e-5)
    lines = [
        judged("residual sum", summed, exact_sum, x + delta, dtype),
        judged("norm", normed, exact, naive.rms(x + delta, weight, 1e-5), dtype),
    ]
    both = torch.randn(5, 160, generator=made).to(dtype)
    silu = torch.nn.functional.silu
    exact, plain = (silu(b[:, :80]) * b[:, 80:] for b in (both.double(), both))
    lines.append(judged("swiglu", swiglu(both.to(device)), exact, plain, dtype))
    qkv, qw, kw = torch.randn(4, 5 * 32, generator=made).to(dtype), weight[:32].clone(), weight[32:64].clone()
    found = qkv.to(device).clone()
    head_norm(found, qw.to(device), kw.to(device), 1e-5, 3, 1)

    def by_head(y: Tensor) -> Tensor:
        y = y.view(4, 5, 32)
        q, k = naive.rms(y[:, :3], qw.to(y), 1e-5), naive.rms(y[:, 3:4], kw.to(y), 1e-5)
        return torch.cat((q, k, y[:, 4:]), 1).flatten(1)

    return [*lines, judged("norm of heads", found, by_head(qkv.double()), by_head(qkv), dtype)]


def head(count: int, vocabulary: int, width: int, dtype: torch.dtype, device: str) -> list[Line]:
    made = torch.Generator().manual_seed(2)
    hidden = torch.randn(count, width, generator=made).to(dtype)
    weight = (torch.randn(vocabulary, width, generator=made) * 4 / math.sqrt(width)).to(dtype)
    target = torch.randint(0, vocabulary, (count,), generator=made)
    warm, up = 0.4 + torch.rand(count, generator=made), torch.randn(2, count, generator=made)

    def both(f: Callable[..., tuple[Tensor, Tensor]], kind: torch.dtype, place: str) -> list[Tensor]:
        h, w = (x.to(place, kind).clone().requires_grad_() for x in (hidden, weight))
        wide = torch.float64 if kind == torch.float64 else torch.float32
        logp, spread = f(h, w, target.to(place), warm.to(place, wide))
        (logp * up[0].to(place, wide) + spread * up[1].to(place, wide)).sum().backward()
        assert h.grad is not None
        assert w.grad is not None
        return [logp, spread, h.grad, w.grad]

    def plain(h: Tensor, w: Tensor, y: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        logp = naive.words(h, {"embed_tokens.weight": w}, t)
        return logp[torch.arange(len(y), device=y.device), y], naive.entropy(logp)

    place = "cpu" if count * vocabulary < 1 << 22 else device
    wanted, usual = both(plain, torch.float64, place), both(plain, dtype, device)
    found = both(lambda h, w, y, t: fused_head(h, w, y, t, max(1, count // 3)), dtype, device)
    names = ("log-prob", "entropy", "gradient of states", "gradient of weight")
    lines = []
    for name, ours, exact, other in zip(names, found, wanted, usual, strict=True):
        full = f"head {count}x{vocabulary}x{width} {name}"
        # log-prob and entropy are float32 whatever the states are; gradients are rounded as the states are, and before
        # them those of the logits
        kind = torch.float32 if name in ("log-prob", "entropy") else dtype
        lines.append(judged(full, ours, exact, other, kind, 1e-5, 4e-3))
    return lines


TREES = {
    "alone": Spans(np.array([0, 50]), np.array([50, 83]), np.array([-1, -1])),
    "with parents": Spans(np.array([0, 70, 100, 130, 131, 300]), np.array([70, 30, 30, 1, 169, 17]),
                          np.array([-1, 0, 0, -1, 0, 3])),
}  # fmt: skip


def trained_attention(tree: str, heads: int, kv: int, size: int, dtype: torch.dtype, device: str,
                      kernels: Kernels = FLASH) -> list[Line]:  # fmt: skip
    spans, made = TREES[tree], torch.Generator().manual_seed(3)
    count = int(spans.length.sum())
    q, up = (torch.randn(count, heads, size, generator=made).to(dtype) for _ in range(2))
    k, v = (torch.randn(count, kv, size, generator=made).to(dtype) for _ in range(2))
    of = np.repeat(np.arange(len(spans.start)), spans.length)
    seen = torch.tensor([[bool(j <= i and (of[i] == of[j] or spans.parent[of[i]] == of[j])) for j in range(count)]
                         for i in range(count)])  # fmt: skip

    def both(f: Callable[..., Tensor], kind: torch.dtype, place: str) -> list[Tensor]:
        x = [t.to(place, kind).clone().requires_grad_() for t in (q, k, v)]
        out = f(*x)
        (out * up.to(place, kind)).sum().backward()
        return [out, *(t.grad for t in x if t.grad is not None)]

    wanted = both(lambda *x: naive.attend(*x, seen), torch.float64, "cpu")
    usual = both(lambda *x: naive.attend(*x, seen.to(device)), dtype, device)
    pattern = make_pattern(spans, torch.device(device))
    found = both(lambda *x: attention(*x, pattern, kernels), dtype, device)
    return [
        judged(f"training attention {tree} {heads}/{kv} x {size} {n}", a, b, c, dtype, 1e-5)
        for n, a, b, c in zip(("out", "dq", "dk", "dv"), found, wanted, usual, strict=True)
    ]


def drawn(logits: np.ndarray, uniforms: np.ndarray, warmth: np.ndarray, device: str) -> np.ndarray:
    count = len(logits)
    ints = torch.zeros(count, dtype=torch.int32, device=device)
    rows = Rows(
        ids=ints.clone(), positions=ints + 7, counts=ints.clone(), limits=ints + 100,
        tail=torch.zeros(count, 8, dtype=torch.int32, device=device),
        temperatures=torch.tensor(warmth, dtype=torch.float32, device=device),
        uniforms=torch.tensor(uniforms[:, None], dtype=torch.float32, device=device), table=ints[:, None],
    )  # fmt: skip
    out = torch.zeros(3, count, device=device)
    everyone = torch.arange(count, dtype=torch.int32, device=device)
    draw(torch.tensor(logits, dtype=torch.float32, device=device), everyone, rows, out, step=True)
    return out.cpu().numpy().astype(np.float64)


def draws(count: int, vocabulary: int, device: str) -> list[Line]:
    """Each token again from its uniform number: how far that lies outside of the token's share of [0, 1)."""
    rng = np.random.default_rng(4)
    z = (rng.normal(size=(count, vocabulary)) * 3).astype(np.float32)
    z[:, rng.integers(0, vocabulary, max(1, vocabulary // 20))] = -np.inf
    u = rng.random(count, dtype=np.float32)
    u[:2] = (0.0, np.float32(1 - 2**-24))
    warmth = np.array([0.0, 0.4, 1.0, 1.7])[np.arange(count) % 4]
    token, logp, spread = drawn(z, u, warmth, device)
    outside = off = unequal = 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        for i in range(count):
            x = z[i].astype(np.float64) / (warmth[i] or 1.0)
            p = np.exp(x - x.max())
            p /= p.sum()
            t, upto = int(token[i]), np.cumsum(p)
            if warmth[i] == 0:
                unequal += t != int(x.argmax())
            else:
                low = upto[t - 1] if t else 0.0
                outside = max(outside, low - float(u[i]), float(u[i]) - upto[t], 1.0 if p[t] == 0 else 0.0)
            h = -np.sum(np.where(p > 0, p * np.log(p), 0.0))
            off = max(off, abs(np.log(p[t]) - logp[i]), abs(h - spread[i]))
    name = f"draw {count} of {vocabulary} words"
    return [
        Line(f"{name}: uniform number outside of the token's share", outside, 2e-6),
        Line(f"{name}: log-prob and entropy", off, 5e-5),
        Line(f"{name}: greedy tokens that are not the likeliest", unequal, 0.0),
    ]


def frequencies(count: int, vocabulary: int, device: str) -> list[Line]:
    from scipy.stats import chisquare

    rng = np.random.default_rng(5)
    z = rng.normal(size=vocabulary).astype(np.float32)
    token = drawn(np.repeat(z[None], count, 0), rng.random(count, dtype=np.float32), np.full(count, 0.8), device)[0]
    p = np.exp(z.astype(np.float64) / 0.8)
    found = chisquare(np.bincount(token.astype(int), minlength=vocabulary), count * p / p.sum())
    note = f"chi-square {found.statistic:.1f}, {vocabulary - 1} degrees of freedom, p {found.pvalue:.4f}"
    return [Line(f"draw frequencies of {vocabulary} words: 1 - p", 1 - float(found.pvalue), 1 - 1e-4, note)]
