"""Conversations with an engine, and what float64 says of every token that it drew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from isentrope.core.engine import Request, Sampled, Streaming
from isentrope.engines.native.engine import FastEngine
from isentrope.engines.torch import TorchEngine
from isentrope.models.llama import Llama, Shape
from isentrope.models.model_adapter import adapt_model
from isentrope.models.policy import Policy
from isentrope.models.sources.pocket import PocketTokens
from tests.audit import naive
from tests.audit.cases import Line
from tests.audit.staged import PHRASES, loud

HALF = torch.bfloat16


class ByEntropy:
    """Hotter where the policy hesitates; remembers what it was told and what it answered."""

    needs_entropy = True

    def __init__(self) -> None:
        self.told: list[float] = []
        self.said: list[float] = []

    def __call__(self, response: Sequence[int], entropy: float) -> float:
        del self.told[len(response) :], self.said[len(response) :]  # a token may be asked for twice
        self.told.append(entropy)
        self.said.append(1.3 if entropy > 2.0 else 0.8)
        return self.said[-1]


@dataclass
class Answer:
    request: Request
    sampled: Sampled
    version: int
    rule: ByEntropy | None


@dataclass
class Plan:
    slots: int
    turns: int
    lengths: Sequence[int]  # of first prompts; slot i has lengths[i % len]
    answer: int
    rules: bool = True
    temperatures: Sequence[float] = (1.0, 0.6, 1.4, 0.0)
    more: Sequence[int] = field(default=(3, 40, 70))


def converse(engine: Any, plan: Plan, words: int, version: int, seed: int = 0) -> list[Answer]:
    """Every slot plays its turns at its own pace; one in six begins anew instead of going on."""
    rng, found = np.random.default_rng(seed), list[Answer]()
    rules: dict[int, ByEntropy | None] = {}
    asked: dict[int, Request] = {}
    left = dict.fromkeys(range(plan.slots), plan.turns)

    def ask(slot: int, prompt: list[int]) -> Request:
        rules[slot] = ByEntropy() if plan.rules and slot % 5 == 3 else None
        uniforms = rng.random(1 + int(rng.integers(plan.answer)), dtype=np.float32)
        warm = 1.0 if rules[slot] else plan.temperatures[slot % len(plan.temperatures)]
        asked[slot] = Request(slot, prompt, uniforms, warm, lambda tail: False, rules[slot])
        left[slot] -= 1
        return asked[slot]

    def fresh(count: int) -> list[int]:
        return rng.integers(5, words, count).tolist()

    def following(slot: int, sampled: Sampled) -> list[int]:
        if rng.integers(6) == 0:
            return fresh(int(rng.integers(1, 30)))
        return [*asked[slot].prompt, *sampled.ids.tolist(), *fresh(plan.more[slot % len(plan.more)])]

    def noted(slot: int, sampled: Sampled) -> Request | None:
        found.append(Answer(asked[slot], sampled, version, rules[slot]))
        return ask(slot, following(slot, sampled)) if left[slot] else None

    start = fresh(max(plan.lengths))  # prompts begin alike, so that pages are shared
    engine.open(range(plan.slots))
    waiting = [ask(s, [*start[: plan.lengths[s % len(plan.lengths)]], *fresh(1 + s % 3)]) for s in range(plan.slots)]
    if isinstance(engine, Streaming):
        engine.submit(waiting)
        while engine.waiting:
            again = [noted(slot, sampled) for slot, sampled in engine.collect().items()]
            engine.submit([request for request in again if request is not None])
    else:
        while waiting:
            again = [noted(r.slot, s) for r, s in zip(waiting, engine.sample(waiting), strict=True)]
            waiting = [request for request in again if request is not None]
    return found


@dataclass
class Off:
    """What recorded numbers, or those of plain torch, are off by."""

    logp: list[float] = field(default_factory=list)
    entropy: list[float] = field(default_factory=list)
    share: list[float] = field(default_factory=list)  # of [0, 1): by how much a uniform number misses its token
    told: list[float] = field(default_factory=list)


def compared(answers: Sequence[Answer], exact: Sequence[naive.Weights], plain: Sequence[naive.Weights],
             form: naive.Form) -> tuple[Off, Off, dict[str, float]]:  # fmt: skip
    """(the engine, plain torch, counts of what must never be)."""
    ours, theirs = Off(), Off()
    wrong = {"greedy tokens below the likeliest by more": 0.0, "temperatures that are not those asked for": 0.0,
             "empty or too long responses": 0.0, "tokens": 0.0, "longest": 0.0}  # fmt: skip
    for a in answers:
        ids, n = a.sampled.ids.tolist(), len(a.request.prompt)
        wrong["tokens"] += len(ids)
        wrong["longest"] = max(wrong["longest"], n + len(ids))
        wrong["empty or too long responses"] += not 0 < len(ids) <= len(a.request.uniforms)
        asked = a.rule.said[: len(ids)] if a.rule else [a.request.temperature] * len(ids)
        wrong["temperatures that are not those asked for"] += float(
            np.sum(np.abs(a.sampled.temperatures - np.array(asked)) > 1e-6)
        )
        warm = torch.tensor([t if t > 0 else 1.0 for t in asked], dtype=torch.float64)
        rows, where = range(len(ids)), slice(n - 1, n - 1 + len(ids))
        with torch.no_grad():
            found = []
            for w in (exact[a.version], plain[a.version]):
                h = naive.states(w, form, [*a.request.prompt, *ids])[where]
                logp = naive.words(h, w, warm.to(h.device)).double().cpu()
                cold = naive.words(h, w, float(a.request.temperature or 1.0)).double().cpu()
                found.append((logp, naive.entropy(logp), naive.entropy(cold)))
        (logp, spread, cold), (logp_p, spread_p, _) = found
        upto, upto_p = logp.exp().cumsum(-1), logp_p.exp().cumsum(-1)
        for i in rows:
            t, u = ids[i], float(a.request.uniforms[i])
            ours.logp.append(float(a.sampled.logprobs[i] - logp[i, t]))
            ours.entropy.append(float(a.sampled.entropies[i] - spread[i]))
            theirs.logp.append(float(logp_p[i, t] - logp[i, t]))
            theirs.entropy.append(float(spread_p[i] - spread[i]))
            theirs.share.append(float((upto_p[i] - upto[i]).abs().max()))
            if asked[i] > 0:
                low = float(upto[i, t - 1]) if t else 0.0
                ours.share.append(max(0.0, low - u, u - float(upto[i, t])))
            else:
                wrong["greedy tokens below the likeliest by more"] = max(
                    wrong["greedy tokens below the likeliest by more"], float(logp[i].max() - logp[i, t])
                )
            if a.rule:
                ours.told.append(a.rule.told[i] - float(cold[i]))
    return ours, theirs, wrong


def lines_of(name: str, ours: Off, theirs: Off, wrong: dict[str, float], dtype: torch.dtype) -> list[Line]:
    half = dtype == HALF
    lines = []

    def add(what: str, mine: list[float], plain: list[float]) -> None:
        a, b = np.abs(mine or [0.0]), np.abs(plain)
        note = f"plain mean {b.mean():.2e} max {b.max():.2e}"
        chance = 3 * b.std() / len(b) ** 0.5  # few tokens: single ones decide the mean
        mean, most = (
            (1.5 * b.mean() + chance, 2.5 * b.max()) if half else (max(2e-5, 4 * b.mean()), max(2e-4, 4 * b.max()))
        )
        lines.append(Line(f"{name}: {what}, mean error", float(a.mean()), float(mean), note))
        lines.append(Line(f"{name}: {what}, largest error", float(a.max()), float(most), note))

    add("log-prob", ours.logp, theirs.logp)
    add("entropy", ours.entropy, theirs.entropy)
    add("uniform number outside of the token's share", ours.share, theirs.share)
    add("entropy that a rule is told", ours.told, theirs.entropy)
    count = len(ours.logp)
    bias, spread = float(np.mean(ours.logp)), float(np.std(theirs.logp))
    note = f"{bias:+.2e} over {count} tokens, longest conversation {wrong['longest']:.0f}"
    lines.append(Line(f"{name}: log-prob, mean with its sign", abs(bias), max(1e-5, 6 * spread / count**0.5), note))
    gap = 2.5 * max(map(abs, theirs.logp)) if half else 1e-3
    for key in ("greedy tokens below the likeliest by more", "temperatures that are not those asked for",
                "empty or too long responses"):  # fmt: skip
        lines.append(Line(f"{name}: {key}", wrong[key], 2 * gap if key.startswith("greedy") else 0.0))
    return lines


def our_llama(words: int, width: int, layers: int, heads: int, kv: int, inner: int, scale: float) -> Llama:
    model = Llama(Shape(words, width, layers, heads, kv, inner))
    model.initialise(torch.Generator().manual_seed(0))
    loud(model, scale)
    return model.eval()


def their_model(kind: str, words: int, width: int, heads: int, kv: int, size: int, inner: int, layers: int = 2) -> Any:
    import transformers

    from isentrope.models.hugging_face import HuggingFaceModel

    torch.manual_seed(1)
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=words, hidden_size=width, intermediate_size=inner, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=kv, head_dim=size, max_position_embeddings=4096,
        rms_norm_eps=1e-5, attn_implementation="sdpa", tie_word_embeddings=kind != "Qwen3",
    )  # fmt: skip
    lm = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    loud(lm, 4.0)
    return HuggingFaceModel(lm)


def form_of(model: Any) -> naive.Form:
    if isinstance(model, Llama):
        return naive.form_of(model.shape)
    c = model.lm.config
    rope = getattr(c, "rope_parameters", None) or {}
    theta = float(rope.get("rope_theta", getattr(c, "rope_theta", 10000.0)))
    return naive.Form(c.num_hidden_layers, c.num_attention_heads, c.num_key_value_heads, c.head_dim, theta,
                      c.rms_norm_eps)  # fmt: skip


def against_transformers(model: Any, words: int) -> list[Line]:
    """Our naive model itself, in float64, against transformers' in float64 (whose norms stay in float32)."""
    import copy

    form, w = form_of(model), naive.weights_of(model)
    lm = copy.deepcopy(model.lm).double().cpu()
    ids = np.random.default_rng(0).integers(5, words, 60)
    with torch.no_grad():
        theirs = torch.log_softmax(lm(input_ids=torch.from_numpy(ids)[None]).logits[0].double(), -1)
        mine = naive.words(naive.states(w, form, ids), w)
    kind = type(lm).__name__
    return [Line(f"the naive model against transformers' {kind}", float((theirs - mine).abs().max()), 1e-4)]


def check(name: str, model: Any, words: int, device: str, compute: torch.dtype, held: torch.dtype, plan: Plan,
          fast: bool = True, rows: int = 8, context: int = 256, reference: str = "cpu") -> list[Line]:  # fmt: skip
    """Conversations with the native or the torch engine, weights of its own kind, one change of them."""
    for p in model.parameters():
        p.data = p.data.to(held)
    policy = Policy(model.to(device), PocketTokens(PHRASES), torch.device(device), compute)
    parts = adapt_model(model)
    assert parts is not None
    engine: Any = FastEngine(policy, parts, rows, context, 0.03) if fast else TorchEngine(policy)
    return check_engine(name, engine, policy, words, plan, reference)


def check_engine(name: str, engine: Any, policy: Policy, words: int, plan: Plan, reference: str) -> list[Line]:
    """Conversations, then a change of the weights, then conversations again."""
    model, compute = policy.model, policy.dtype
    exact, plain, answers = [], [], list[Answer]()
    for version in range(2):
        if version:
            made = torch.Generator().manual_seed(9)
            with torch.no_grad():
                for p in model.parameters():
                    p.mul_((1 + 0.2 * torch.randn(p.shape, generator=made)).to(p))
            engine.refresh()
        exact.append(naive.weights_of(model, torch.float64, reference))
        plain.append(naive.weights_of(model, compute, str(policy.device)))
        answers += converse(engine, plan, words, version, seed=version)
    engine.close()
    return lines_of(name, *compared(answers, exact, plain, form_of(model)), compute)


def frequencies(model: Llama, words: int, device: str, dtype: torch.dtype, count: int, rows: int) -> list[Line]:
    """One prompt, answered by one token many times: how often each word comes."""
    from scipy.stats import chisquare

    for p in model.parameters():
        p.data = p.data.to(dtype)
    policy = Policy(model.to(device), PocketTokens(PHRASES), torch.device(device), dtype)
    parts = adapt_model(model)
    assert parts is not None
    engine, rng = FastEngine(policy, parts, rows, 128, 0.03), np.random.default_rng(6)
    prompt = rng.integers(5, words, 20).tolist()
    engine.open(range(count))
    asked = [Request(s, prompt, rng.random(1, dtype=np.float32), 0.9, lambda tail: False) for s in range(count)]
    seen = np.bincount([int(a.ids[0]) for a in engine.sample(asked)], minlength=words)
    w = naive.weights_of(model)
    p = naive.words(naive.states(w, naive.form_of(model.shape), prompt)[-1:], w, 0.9)[0].exp().numpy()
    rare = count * p < 5
    seen, p = np.append(seen[~rare], seen[rare].sum()), np.append(p[~rare], p[rare].sum())
    if p[-1] == 0:
        seen, p = seen[:-1], p[:-1]
    found = chisquare(seen, count * p / p.sum())
    note = f"chi-square {found.statistic:.1f}, {len(p) - 1} degrees of freedom, p {found.pvalue:.4f}"
    kind = "bf16" if dtype == HALF else "fp32"
    return [Line(f"engine frequencies of {words} words {kind}: 1 - p", 1 - float(found.pvalue), 1 - 1e-4, note)]
