"""Whole updates by a learner, and the same in float64 and in plain torch of the learner's own precision.

What plain torch is off by is the yardstick: kernels of the same precision may be off by about as much, not by more.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isentrope.config.kinds import ClipOptions, GaeOptions, GigpoOptions
from isentrope.config.schema import RunConfig
from isentrope.core.types import Episode, RolloutPlan
from isentrope.engines.registry import make_engine
from isentrope.learning.learner import Learner
from isentrope.methods.registry import make_methods
from isentrope.models.llama import Llama
from isentrope.models.policy import Policy
from isentrope.rollout.collector import Collector
from tests.audit import naive
from tests.audit.staged import Watched, config_of, policy_of, rewarded

STEP, CAP, SPREAD = 2, 1.5, 0.15
_EPO = ("coefficient=0.5", "alpha=0.5", "kappa_low=0.95", "kappa_high=1.05")
_CORRECTED = ("learn.old_logprobs=recompute", "learn.mismatch=truncate", f"learn.mismatch_cap={CAP}")
CASES: dict[str, tuple[str, ...]] = {
    "grpo": ("learn.algorithm=grpo",),
    "grpo kl": ("learn.algorithm=grpo", "learn.kl=0.05"),
    "grpo corrected": ("learn.algorithm=grpo", *_CORRECTED),
    "gigpo": ("learn.algorithm=gigpo",),
    "gspo": ("learn.algorithm=gspo",),
    "gspo kl corrected": ("learn.algorithm=gspo", "learn.kl=0.05", *_CORRECTED),
    "ppo": ("learn.algorithm=ppo", "learn.advantage.discount=0.99", "learn.advantage.gae_lambda=0.95",
            "critic.lr=1e-3"),
    "epo": ("methods=['epo']", *(f"method.epo.{x}" for x in _EPO)),
    "seal": ("methods=['seal']", "method.seal.alpha=0.5"),
    "aem": ("methods=['aem']",),
    "all of them": ("learn.algorithm=gigpo", "learn.kl=0.05", "methods=['aem', 'epo', 'seal']",
                    *(f"method.epo.{x}" for x in _EPO)),
}  # fmt: skip


@dataclass(frozen=True)
class Line:
    """One thing that was measured: it holds if it is no more than the bar."""

    name: str
    measured: float
    bar: float
    note: str = ""

    @property
    def holds(self) -> bool:
        return self.measured <= self.bar  # not if it is NaN


class Hot:
    """Every third token of a response is sampled hotter, as ActRe's branching tokens are."""

    needs_entropy = False

    def __call__(self, response: Sequence[int], entropy: float) -> float:
        return 1.2 if len(response) % 3 == 1 else 0.9


def play(policy: Policy, config: RunConfig, hot: bool = True) -> list[Episode]:
    """Episodes sampled by the engine; drawn rewards; log-probs shifted a little so that ratios leave 1."""
    plan = RolloutPlan("think_act", 1.0, (lambda *_: Hot()) if hot else None)
    with Collector(config, make_engine(config, policy)) as collector:
        episodes = rewarded(collector.play_groups(STEP, plan), 7)
    rng, found = np.random.default_rng(8), []
    for e in episodes:
        turns = [replace(t, logprobs=(t.logprobs + rng.normal(0, SPREAD, len(t.logprobs))).astype(np.float32))
                 for t in e.turns]  # fmt: skip
        found.append(replace(e, turns=tuple(turns)))
    return found


def prepared(model: Llama, device: str, compute: torch.dtype, held: torch.dtype, config: RunConfig) -> Learner:
    """A learner whose reference is near the policy, with a critic that already says something."""
    policy = policy_of(model, device, compute, held)
    reference = None
    if config.learn.kl:
        near, made = copy.deepcopy(model), torch.Generator().manual_seed(3)
        with torch.no_grad():
            for p in near.parameters():
                p.mul_(1 + 0.03 * torch.randn(p.shape, generator=made).to(p))
        reference = Policy(near.requires_grad_(False), policy.tokenizer, policy.device, compute)
    learner = Learner(policy, reference, config, make_methods(config))
    if learner.critic is not None:
        made = torch.Generator().manual_seed(4)
        with torch.no_grad():
            for p in learner.critic.head.parameters():
                p.copy_(0.1 * torch.randn(p.shape, generator=made))
    return learner


@dataclass
class Truth:
    """One update by `naive`, from weights of any precision."""

    parts: dict[str, float]
    grads: naive.Weights
    seen: naive.Seen
    critic_loss: float = 0.0
    critic_grads: naive.Weights | None = None


def _numbers(x: Tensor) -> np.ndarray:
    return x.detach().double().cpu().numpy()


def _values(body: naive.Weights, form: naive.Form, tokens: naive.Tokens) -> Tensor:
    before = naive.look(body, form, tokens).before
    wide = before if before.dtype == torch.float64 else before.float()
    return (wide @ body["head.weight"].to(wide).T + body["head.bias"].to(wide)).squeeze(-1)


def _methods(config: RunConfig, methods: Sequence[Any], dtype: torch.dtype, device: str) -> Any:
    """What EPO and SEAL add to the loss."""
    by_name = {m.name: m for m in methods}
    if not {"epo", "seal"} & set(by_name):
        return None
    history = float(np.mean(by_name["epo"].history[:1])) if "epo" in by_name else 0.0

    def term(seen: naive.Seen, tokens: naive.Tokens) -> Tensor:
        total = torch.zeros((), dtype=seen.logp.dtype, device=seen.logp.device)
        if "epo" in by_name:
            o, h = config.method["epo"], seen.entropy
            k, middle = STEP - 1, config.run.steps // 2
            beta = 2.0 + (1 - 2.0) * (1 - math.exp(-3.0 * k / middle))
            low, high = o["kappa_low"] * history, o["kappa_high"] * history
            penalty = o["alpha"] * (torch.clamp(low - h, min=0) + torch.clamp(h - high, min=0))
            weight = torch.as_tensor(naive.token_weight(tokens, "turn")).to(h)
            total = total - o["coefficient"] * ((weight * h).sum() - beta * (weight * penalty).sum())
        if "seal" in by_name:
            wide = seen.at if seen.at.dtype == torch.float64 else seen.at.float()
            a, b, c, d = (p.detach().to(wide) for p in by_name["seal"].classifier.parameters())
            x = wide @ a.T + b
            x = 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))
            logit = (x @ c.T + d).squeeze(-1)
            z = torch.as_tensor(tokens.success).to(logit)
            log = torch.nn.functional.logsigmoid
            total = total - by_name["seal"].options.alpha * (z * log(logit) + (1 - z) * log(-logit)).mean()
        return total

    return term


def truth(learner: Learner, config: RunConfig, episodes: Sequence[Episode], dtype: torch.dtype, device: str) -> Truth:
    """The update that the equations ask for, from the learner's weights as they are now."""
    s, model, clip = config.learn, learner.policy.model, ClipOptions(**config.learn.loss.options)
    assert isinstance(model, Llama)
    form, tokens = naive.form_of(model.shape), naive.tokens_of(episodes)
    w = naive.weights_of(model, dtype, device)
    old, weight, reference = tokens.recorded.astype(np.float64), None, None
    with torch.no_grad():
        if s.old_logprobs == "recompute":
            old = _numbers(naive.look(w, form, tokens).logp)
            by = tokens.response if s.loss.kind == "sequence" else None
            weight = naive.corrected(old, tokens.recorded, CAP, by)
        if learner.reference is not None:
            theirs = naive.weights_of(learner.reference.module, dtype, device)
            reference = _numbers(naive.look(theirs, form, tokens).logp)
    returns, body = None, {}
    if learner.critic is not None:
        assert learner.critic.body is not None
        body = naive.weights_of(learner.critic.body.module, dtype, device)
        body |= {f"head.{n}": p.detach().to(device, torch.float64 if dtype == torch.float64 else torch.float32)
                 for n, p in learner.critic.head.named_parameters()}  # fmt: skip
        with torch.no_grad():
            value = _numbers(_values(body, form, tokens))
        gae = GaeOptions(**s.advantage.options)
        advantage, returns = naive.gae(episodes, tokens, value, gae.discount, gae.gae_lambda)
    elif s.advantage.kind == "gigpo":
        advantage = naive.gigpo(episodes, tokens, GigpoOptions(**s.advantage.options).discount)
    else:
        advantage = naive.grpo(episodes, tokens)
    if "aem" in config.methods:
        advantage = naive.aem(tokens, advantage)
    extra = _methods(config, learner.methods, dtype, device)
    aim = naive.Aim(advantage, old, s.aggregation, "sequence" if s.loss.kind == "sequence" else "clip", clip.clip_low,
                    clip.clip_high, weight, s.kl, reference, extra)  # fmt: skip
    found = Truth(*naive.gradient(w, form, tokens, aim))
    if returns is not None:
        mine = naive.learning(body)
        v = _values(mine, form, tokens)
        weight_N = torch.as_tensor(naive.token_weight(tokens, s.aggregation)).to(v)
        loss = (weight_N * (v - torch.as_tensor(returns).to(v)) ** 2 / 2).sum()
        loss.backward()
        found.critic_loss = float(loss.detach())
        found.critic_grads = {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in mine.items()}
    return found


def update(learner: Learner, episodes: Sequence[Episode]) -> tuple[dict[str, float], Watched, Watched | None]:
    for method in learner.methods:
        if method.name == "epo":
            method.history = [0.9 * float(np.mean(naive.tokens_of(episodes).entropy))]  # type: ignore[attr-defined]
        if method.name == "seal":
            width = learner.policy.model.head_weight().shape[1]
            method._ready(torch.zeros(1, width, device=learner.policy.device))  # type: ignore[attr-defined]
    watch = Watched(learner.optimiser)
    critic = Watched(learner.critic.optimiser) if learner.critic is not None else None
    return learner.learn(STEP, episodes).metrics, watch, critic


def gradients(names: Sequence[str], found: Sequence[Tensor], exact: naive.Weights, plain: naive.Weights,
              what: str, tight: float) -> list[Line]:  # fmt: skip
    """All tensors as one, and the worst single one, against what plain torch is off by."""

    def joined(values: Sequence[Tensor]) -> Tensor:
        return torch.cat([v.detach().double().cpu().flatten() for v in values])

    want = joined([exact[n] for n in names])
    turned, off = naive.apart(joined(found), want)
    plain_turned, plain_off = naive.apart(joined([plain[n] for n in names]), want)
    lines = [
        Line(f"{what} gradient, relative error", off, max(tight, 1.5 * plain_off), f"plain {plain_off:.2e}"),
        Line(f"{what} gradient, 1 - cosine", turned, max(tight**2, 2 * plain_turned), f"plain {plain_turned:.2e}"),
    ]
    worst = (0.0, "", 0.0, 0.0)
    for name, g in zip(names, found, strict=True):
        ours, theirs = naive.apart(g, exact[name])[1], naive.apart(plain[name], exact[name])[1]
        worst = max(worst, (ours / max(theirs, tight), name, ours, theirs))
    note = f"{worst[1]}: ours {worst[2]:.2e}, plain {worst[3]:.2e}"
    return [*lines, Line(f"{what} gradient, worst tensor over plain", worst[0], 2.5, note)]


def adam(watch: Watched, names: Sequence[str], limit: float, decay: float, what: str) -> list[Line]:
    """The steps on the copies in units of float32's last place, their norms, and the weights as rounded copies."""
    m = [torch.zeros_like(c).double() for c in watch.steps[0]["copies"]]
    v = [x.clone() for x in m]
    off, norm_off, unrounded = 0.0, 0.0, 0
    for number, made in enumerate(watch.steps, 1):
        norm = math.sqrt(sum(float(g.double().square().sum()) for g in made["grads"]))
        norm_off = max(norm_off, abs(norm - made["norm"]) / max(norm, 1e-30))
        share = min(1.0, limit / (norm + 1e-6))
        for i in range(len(names)):
            g, before = made["grads"][i].double() * share, made["copies"][i].double()
            wanted, m[i], v[i] = naive.adamw(before, g, m[i], v[i], number, made["rate"], decay)
            small = g.abs() < 1e-12  # there ε decides, and rounding with it
            place = 2.0 ** torch.floor(torch.log2(before.abs().clamp(min=1e-30))) * 2.0**-23
            gap = (made["copies_after"][i].double() - wanted).abs() / (place + 1e-5 * made["rate"])
            off = max(off, float(gap[~small].max()) if bool((~small).any()) else 0.0)
            unrounded += int((made["copies_after"][i].to(made["held_after"][i].dtype) != made["held_after"][i]).sum())
    return [
        Line(f"{what} AdamW on the copies, last places", off, 4.0, "float64 step from the same gradient"),
        Line(f"{what} gradient norm, relative error", norm_off, 1e-5),
        Line(f"{what} weights that are not the copies rounded", float(unrounded), 0.0),
    ]


def check(name: str, model: Llama, device: str, compute: torch.dtype, held: torch.dtype, *changes: str,
          reference: str = "cpu") -> list[Line]:  # fmt: skip
    """One case from start to end."""
    config = config_of("new", f"run.device={device}", "learn.grad_clip=0.5", *CASES[name], *changes)
    learner = prepared(model, device, compute, held, config)
    with torch.no_grad():
        episodes = play(learner.policy, config)
    for method in learner.methods:  # so that what the truth reads is there
        if method.name == "epo":
            method.history = [0.9 * float(np.mean(naive.tokens_of(episodes).entropy))]  # type: ignore[attr-defined]
        if method.name == "seal":
            method._ready(torch.zeros(1, model.shape.width, device=device))  # type: ignore[attr-defined]
    exact = truth(learner, config, episodes, torch.float64, reference)
    plain = truth(learner, config, episodes, compute, device)
    metrics, watch, critic = update(learner, episodes)
    names = [n for n, _ in learner.policy.module.named_parameters()]
    tight = 1e-2 if compute == torch.bfloat16 else 2e-5
    noise = float((plain.seen.logp.double().cpu() - exact.seen.logp).abs().mean().detach())
    bar = max(3 * abs(plain.parts["total"] - exact.parts["total"]), 3 * noise, 1e-5)
    lines = [Line("loss", abs(metrics["loss/total"] - exact.parts["total"]), bar,
                  f"ours {metrics['loss/total']:.6f}, float64 {exact.parts['total']:.6f}, "
                  f"plain {plain.parts['total']:.6f}")]  # fmt: skip
    lines += gradients(names, watch.steps[0]["grads"], exact.grads, plain.grads, "policy", tight)
    if critic is not None:
        assert exact.critic_grads is not None
        assert plain.critic_grads is not None
        parts = (metrics["critic/loss"], exact.critic_loss, plain.critic_loss)
        bar = max(3 * abs(parts[2] - parts[1]), 1e-2 * parts[1] if compute == torch.bfloat16 else 1e-4 * parts[1])
        lines.append(Line("critic loss", abs(parts[0] - parts[1]), bar, "ours {:.6f}, float64 {:.6f}, plain {:.6f}".
                          format(*parts)))  # fmt: skip
        body = [*names, "head.weight", "head.bias"]
        lines += gradients(body, critic.steps[0]["grads"], exact.critic_grads, plain.critic_grads, "critic", tight)
        lines += adam(critic, body, 0.5, 0.0, "critic")
    learner.learn(STEP, episodes)  # once more, so that moments count
    lines += adam(watch, names, 0.5, 0.0, "policy")
    want = float(config.learn.lr * (0.2 + 0.8 * (1 + math.cos(math.pi * 1 / 3)) / 2))  # the second of four updates
    lines.append(Line("rate of the second update, relative error", abs(watch.steps[1]["rate"] / want - 1), 1e-9))
    return [replace(line, name=f"{name}: {line.name}") for line in lines]
