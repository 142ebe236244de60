"""A Llama-shaped model, credit and updates written out plainly from their equations, to be run in float64.

Nothing here is taken from the package but its records: tokens, rewards, log-probs and weights go in as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Form:
    """The sizes of a Llama-shaped model that its weights do not tell."""

    layers: int
    heads: int
    kv_heads: int
    size: int
    theta: float = 10000.0
    eps: float = 1e-5


def form_of(shape: Any) -> Form:
    """From the `Shape` of our own model."""
    return Form(shape.layers, shape.heads, shape.kv_heads, shape.width // shape.heads, shape.theta, shape.eps)


def weights_of(module: torch.nn.Module, dtype: torch.dtype | None = torch.float64, device: str = "cpu") -> Weights:
    """Copies of the weights under Llama's plain names."""
    found = {}
    for name, p in module.named_parameters():
        plain = name.removeprefix("lm.").removeprefix("model.").removeprefix("decoder.")
        found[plain] = p.detach().to(device=device, dtype=dtype or p.dtype, copy=True)
    return found


def learning(weights: Weights) -> Weights:
    return {name: w.clone().requires_grad_() for name, w in weights.items()}


def head_of(w: Weights) -> Tensor:
    return w.get("lm_head.weight", w["embed_tokens.weight"])


def rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = x if x.dtype == torch.float64 else x.float()
    return (wide / torch.sqrt((wide * wide).mean(-1, keepdim=True) + eps) * weight.to(wide.dtype)).to(x.dtype)


def turn(x: Tensor, theta: float) -> Tensor:
    """Rotary positions 0, 1, ... of x [T, heads, size]: dimension i goes with i + size / 2."""
    wide = x if x.dtype == torch.float64 else x.float()
    half = x.shape[-1] // 2
    # angles of lower precisions are made in float32, as transformers does: at position 1000 they are off by 1e-4
    rate = (theta ** (-torch.arange(half, dtype=torch.float64, device=x.device) / half)).to(wide.dtype)
    angle = torch.arange(len(x), device=x.device)[:, None].to(wide.dtype) * rate
    c, s = angle.cos()[:, None].to(wide.dtype), angle.sin()[:, None].to(wide.dtype)
    a, b = wide[..., :half], wide[..., half:]
    return torch.cat((a * c - b * s, b * c + a * s), -1).to(x.dtype)


def attend(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    """[T, heads, size] over [S, kv heads, size] under seen [T, S], head by head; scores in float32 at least."""
    share, parts = q.shape[1] // k.shape[1], []
    for h in range(q.shape[1]):
        score = q[:, h] @ k[:, h // share].T / math.sqrt(q.shape[-1])
        score = score if score.dtype == torch.float64 else score.float()
        p = torch.softmax(score.masked_fill(~seen, -math.inf), -1)
        parts.append(p.to(v.dtype) @ v[:, h // share])
    return torch.stack(parts, 1)


def states(w: Weights, form: Form, ids: Sequence[int] | np.ndarray) -> Tensor:
    """Final hidden states of one sequence, in the precision of the weights."""
    at = torch.as_tensor(np.asarray(ids, dtype=np.int64), device=w["norm.weight"].device)
    x, count = w["embed_tokens.weight"][at], len(at)
    seen = torch.ones(count, count, dtype=torch.bool, device=x.device).tril()
    for i in range(form.layers):

        def linear(name: str, x: Tensor, i: int = i) -> Tensor:
            bias = w.get(f"layers.{i}.{name}_proj.bias")
            y = x @ w[f"layers.{i}.{name}_proj.weight"].T
            return y if bias is None else y + bias

        h = rms(x, w[f"layers.{i}.input_layernorm.weight"], form.eps)
        q = linear("self_attn.q", h).view(count, form.heads, form.size)
        k = linear("self_attn.k", h).view(count, form.kv_heads, form.size)
        v = linear("self_attn.v", h).view(count, form.kv_heads, form.size)
        if f"layers.{i}.self_attn.q_norm.weight" in w:
            q = rms(q, w[f"layers.{i}.self_attn.q_norm.weight"], form.eps)
            k = rms(k, w[f"layers.{i}.self_attn.k_norm.weight"], form.eps)
        a = attend(turn(q, form.theta), turn(k, form.theta), v, seen)
        x = x + linear("self_attn.o", a.flatten(1))
        h = rms(x, w[f"layers.{i}.post_attention_layernorm.weight"], form.eps)
        x = x + linear("mlp.down", torch.nn.functional.silu(linear("mlp.gate", h)) * linear("mlp.up", h))
    return rms(x, w["norm.weight"], form.eps)


def words(hidden: Tensor, w: Weights, temperature: Tensor | float = 1.0) -> Tensor:
    """log softmax of the logits over the temperature; the logits of lower precisions are made in float32."""
    wide = hidden if hidden.dtype == torch.float64 else hidden.float()
    z = wide @ head_of(w).to(wide.dtype).T
    return torch.log_softmax(z / (temperature if isinstance(temperature, float) else temperature.to(z)[:, None]), -1)


def entropy(logp: Tensor) -> Tensor:
    return -(logp.exp() * torch.where(logp > -1e30, logp, 0.0)).sum(-1)


# Episodes


@dataclass(frozen=True)
class Tokens:
    """The response tokens of a step, one after the other."""

    sequences: list[list[int]]
    sequence: np.ndarray
    column: np.ndarray
    episode: np.ndarray
    response: np.ndarray  # number of the turn, counted over all that have tokens
    turn: np.ndarray  # of its episode
    group: np.ndarray
    target: np.ndarray
    temperature: np.ndarray
    recorded: np.ndarray  # log-prob of the sampler
    entropy: np.ndarray
    success: np.ndarray


def tokens_of(episodes: Sequence[Any]) -> Tokens:
    sequences: list[list[int]] = []
    rows: list[tuple[Any, ...]] = []
    response = -1
    for e, episode in enumerate(episodes):
        for t, turn_ in enumerate(episode.turns):
            if t == 0 or not turn_.continues:
                sequences.append([])
            sequences[-1] += turn_.context_ids.tolist()
            response += len(turn_.response_ids) > 0
            for j, word in enumerate(turn_.response_ids.tolist()):
                warm = float(turn_.temperatures[j])
                rows.append((len(sequences) - 1, len(sequences[-1]), e, response, t, episode.group, word,
                             warm if warm > 0 else 1.0, turn_.logprobs[j], turn_.entropies[j],
                             float(episode.success)))  # fmt: skip
                sequences[-1].append(word)
    columns = [np.array(c) for c in zip(*rows, strict=True)]
    return Tokens(sequences, *columns)


@dataclass
class Seen:
    """What a model says of each response token."""

    logp: Tensor
    entropy: Tensor
    before: Tensor  # the state that the token was predicted from
    at: Tensor  # the state at the token


def look(w: Weights, form: Form, tokens: Tokens) -> Seen:
    parts: list[tuple[Tensor, ...]] = []
    device = w["norm.weight"].device
    for s, ids in enumerate(tokens.sequences):
        mine = np.flatnonzero(tokens.sequence == s)
        if not len(mine):
            continue
        h = states(w, form, ids)
        column = torch.as_tensor(tokens.column[mine], device=device)
        logp = words(h[column - 1], w, torch.as_tensor(tokens.temperature[mine], device=device))
        target = torch.as_tensor(tokens.target[mine], device=device)
        parts.append((logp[torch.arange(len(mine), device=device), target], entropy(logp), h[column - 1], h[column]))
    return Seen(*(torch.cat(list(x)) for x in zip(*parts, strict=True)))


# Credit


def compared(values: Sequence[float], groups: Sequence[Any], divide: bool = True) -> np.ndarray:
    """(value - mean) / (unbiased deviation + 1e-6) within its group; 0 where all are equal."""
    out = np.zeros(len(values))
    for g in set(groups):
        members = [i for i in range(len(values)) if groups[i] == g]
        mine = [values[i] for i in members]
        if len(set(mine)) < 2:
            continue
        mean = sum(mine) / len(mine)
        deviation = math.sqrt(sum((x - mean) ** 2 for x in mine) / (len(mine) - 1))
        for i in members:
            out[i] = (values[i] - mean) / (deviation + 1e-6 if divide else 1.0)
    return out


def grpo(episodes: Sequence[Any], tokens: Tokens) -> np.ndarray:
    returns = [sum(t.reward for t in e.turns) for e in episodes]
    return compared(returns, [e.group for e in episodes])[tokens.episode]


def gigpo(episodes: Sequence[Any], tokens: Tokens, discount: float = 0.95) -> np.ndarray:
    """The episode's part and the step's: returns from a turn on, compared among equal anchors of one group."""
    later, keys, place = [], [], {}
    for e, episode in enumerate(episodes):
        for t in range(len(episode.turns)):
            place[e, t] = len(later)
            later.append(sum(discount ** (k - t) * episode.turns[k].reward for k in range(t, len(episode.turns))))
            keys.append((episode.group, episode.turns[t].anchor))
    step = compared(later, keys)
    mine = [place[e, t] for e, t in zip(tokens.episode.tolist(), tokens.turn.tolist(), strict=True)]
    return grpo(episodes, tokens) + step[mine]


def gae(episodes: Sequence[Any], tokens: Tokens, values: np.ndarray, discount: float, lam: float):
    """(standardised advantages, returns): each turn's reward at its last token, credit over the whole episode."""
    count = len(values)
    reward, advantage = np.zeros(count), np.zeros(count)
    for e, episode in enumerate(episodes):
        mine = np.flatnonzero(tokens.episode == e)
        for t, turn_ in enumerate(episode.turns):
            upto = mine[tokens.turn[mine] <= t]
            if len(upto):
                reward[upto[-1]] += turn_.reward
        for at, n in enumerate(mine):
            follows = range(at, len(mine))
            delta = [reward[mine[k]] + (discount * values[mine[k + 1]] if k + 1 < len(mine) else 0) - values[mine[k]]
                     for k in follows]  # fmt: skip
            advantage[n] = sum((discount * lam) ** i * d for i, d in enumerate(delta))
    white = (advantage - advantage.mean()) / (advantage.std(ddof=1) + 1e-8)
    return white, advantage + values


def aem(tokens: Tokens, advantage: np.ndarray, strength: float = 1.0) -> np.ndarray:
    weight = np.ones(len(advantage))
    for g in np.unique(tokens.group):
        here = np.unique(tokens.response[tokens.group == g])
        h = np.array([tokens.entropy[tokens.response == r].astype(np.float64).mean() for r in here])
        if h.max() - h.min() < 1e-6:
            continue
        raw = np.exp(-strength * (h - h.min()) / (h.max() - h.min()))
        for r, x in zip(here, raw / raw.mean(), strict=True):
            weight[tokens.response == r] = x
    return weight * advantage


def token_weight(tokens: Tokens, mode: str) -> np.ndarray:
    out = np.zeros(len(tokens.target))
    for n in range(len(out)):
        if mode == "token":
            out[n] = 1 / len(out)
            continue
        inside = int((tokens.response == tokens.response[n]).sum())
        if mode == "sequence":
            out[n] = 1 / (inside * len(np.unique(tokens.response)))
        elif mode == "turn":
            turns = len(np.unique(tokens.response[tokens.episode == tokens.episode[n]]))
            out[n] = 1 / (inside * turns * len(np.unique(tokens.episode)))
        else:
            raise ValueError(mode)
    return out


# The update


@dataclass
class Aim:
    """All that the loss of one update is made of besides the policy."""

    advantage: np.ndarray
    old: np.ndarray  # log-probs that the ratio is taken to
    mode: str = "token"
    loss: str = "clip"
    low: float = 0.2
    high: float = 0.2
    weight: np.ndarray | None = None  # min(π_old / μ, cap)
    kl: float = 0.0
    reference: np.ndarray | None = None
    extra: Callable[[Seen, Tokens], Tensor] | None = None  # what a method adds


def corrected(old: np.ndarray, sampler: np.ndarray, cap: float, responses: np.ndarray | None = None) -> np.ndarray:
    """min(π_old / μ, cap), by token or as the geometric mean over each response."""
    d = old.astype(np.float64) - sampler.astype(np.float64)
    if responses is not None:
        d = np.array([d[responses == r].mean() for r in responses])
    return np.minimum(np.exp(d), cap)


def policy_term(seen: Seen, tokens: Tokens, aim: Aim) -> Tensor:
    like = seen.logp

    def tensor(x: np.ndarray) -> Tensor:
        return torch.as_tensor(x, device=like.device).to(like.dtype)

    a, d = tensor(aim.advantage), like - tensor(aim.old)
    if aim.loss == "sequence":  # one ratio per response; token j has the gradient s · A_j · ∇logp_j
        mean = torch.stack([d.detach()[tokens.response == r].mean() for r in tokens.response.tolist()])
        ratio = torch.exp(mean + like - like.detach())
    else:
        ratio = torch.exp(d)
    loss = -torch.minimum(ratio * a, torch.clamp(ratio, 1 - aim.low, 1 + aim.high) * a)
    if aim.weight is not None:
        loss = loss * tensor(aim.weight)
    return (tensor(token_weight(tokens, aim.mode)) * loss).sum()


def total_loss(seen: Seen, tokens: Tokens, aim: Aim) -> dict[str, Tensor]:
    parts = {"policy": policy_term(seen, tokens, aim)}
    if aim.kl:
        assert aim.reference is not None
        d = seen.logp - torch.as_tensor(aim.reference, device=seen.logp.device).to(seen.logp.dtype)
        k3 = torch.exp(-d) - 1 + d
        parts["kl"] = aim.kl * (torch.as_tensor(token_weight(tokens, aim.mode)).to(k3) * k3).sum()
    if aim.extra is not None:
        parts["method"] = aim.extra(seen, tokens)
    return parts | {"total": torch.stack(list(parts.values())).sum()}


def gradient(w: Weights, form: Form, tokens: Tokens, aim: Aim) -> tuple[dict[str, float], Weights, Seen]:
    mine = learning(w)
    seen = look(mine, form, tokens)
    parts = total_loss(seen, tokens, aim)
    parts["total"].backward()
    zero = {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in mine.items()}
    return {name: float(value.detach()) for name, value in parts.items()}, zero, seen


def adamw(w: Tensor, g: Tensor, m: Tensor, v: Tensor, step: int, rate: float, decay: float = 0.0,
          betas: tuple[float, float] = (0.9, 0.999)) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """One step in float64: weight, first and second moment afterwards."""
    m = betas[0] * m + (1 - betas[0]) * g
    v = betas[1] * v + (1 - betas[1]) * g * g
    top, below = m / (1 - betas[0] ** step), torch.sqrt(v / (1 - betas[1] ** step)) + 1e-8
    return w * (1 - rate * decay) - rate * top / below, m, v


def mismatch(trainer: np.ndarray, sampler: np.ndarray, cap: float) -> dict[str, float]:
    d = trainer.astype(np.float64) - sampler.astype(np.float64)
    ratio = np.exp(d)
    return {
        "mismatch/logp_mean": float(np.abs(d).mean()),
        "mismatch/logp_max": float(np.abs(d).max()),
        "mismatch/ratio_mean": float(ratio.mean()),
        "mismatch/ratio_max": float(ratio.max()),
        "mismatch/truncated": float((ratio > cap).mean()),
        "mismatch/kl": float((ratio - 1 - d).mean()),
    }


def apart(found: Tensor, wanted: Tensor) -> tuple[float, float]:
    """(1 - cosine, norm of the difference over the norm) of two tensors."""
    a, b = found.detach().double().cpu().flatten(), wanted.detach().double().cpu().flatten()
    size = float(b.norm())
    if size == 0:
        return (0.0, 0.0) if float(a.norm()) == 0 else (1.0, math.inf)
    cosine = float(a @ b) / max(1e-300, float(a.norm()) * size)
    return 1 - cosine, float((a - b).norm()) / size
