"""Mathematical claims, checked by computing them: no runs, no seeds. They go through the code that trains and measures.

docs/theory.md has the whole list, with proofs by enumeration in tests/theory; here are those that methods rest on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from torch import Tensor

from isentrope.methods.epo import penalty
from isentrope.metrics.probes.interference import EpisodeStates, kernel
from isentrope.models.token_head import token_head
from isentrope.papers.record import Verdict

TRIALS = 20
TOLERANCE = 1e-3  # relative; the token head is float32


@dataclass(frozen=True)
class Computed:
    id: str
    paper: str
    says: str
    verdict: Verdict
    off: float  # how far the two sides are apart, relative to their size: the worst of the trials

    @property
    def apart(self) -> str:
        """By how much the two sides differ; rounding, which is another on each machine, is not told."""
        return f"under {TOLERANCE:g}" if self.off < TOLERANCE else f"{self.off:.1g}"


def compute() -> list[Computed]:
    found: list[Computed] = []
    for name, says, how in COMPUTATIONS:
        off = how()
        verdict = Verdict.holds if off < TOLERANCE else Verdict.fails
        found.append(Computed(name, name.split()[0], says, verdict, off))
    return found


def drift_on_the_simplex() -> float:
    """dH along the natural gradient of A log π(a), against A · (S - H)."""
    worst = 0.0
    for seed in range(TRIALS):
        logits, target, advantage = _policy(seed)
        up, slope, forecast = _slopes(logits, target)
        p = torch.softmax(logits.detach()[0].double(), 0)
        fisher = torch.diag(p) - torch.outer(p, p)
        inverse = cast("Tensor", torch.linalg.pinv(fisher, hermitian=True, rtol=1e-9))
        step = inverse @ (advantage * up)
        worst = max(worst, _apart(slope @ step, advantage * forecast))
    return worst


def drift_of_a_plain_step() -> float:
    """The same along the plain gradient in logits: 1 if there is a case in which the two signs differ, else 0."""
    # of a flat policy the second response is a little less surprising than average, and still the step raises entropy
    flat = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log().requires_grad_(), torch.tensor([1])
    cases = [flat, *(_policy(seed)[:2] for seed in range(TRIALS))]
    found = [_slopes(logits, target) for logits, target in cases]
    return float(any(float(up @ slope) * float(forecast) < 0 for up, slope, forecast in found))


def _slopes(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the chosen token's log-probability and of the entropy, and S - H."""
    logp, h = token_head(logits, torch.eye(logits.shape[1]), target, torch.ones(1))
    up, slope = (torch.autograd.grad(value, logits, retain_graph=True)[0][0].double() for value in (logp, h))
    return up, slope, (-logp - h)[0].detach().double()


def interference_of_the_output_matrix() -> float:
    """The kernel that probes measure, against the products of autograd's gradients of the same matrix."""
    return max(_interference(seed)[0] for seed in range(TRIALS))


def likelihood_of_the_group() -> float:
    """d/dt of the mean log-likelihood under the group's update, η = 1, against Σ A c."""
    return max(_interference(seed)[1] for seed in range(TRIALS))


def _interference(seed: int) -> tuple[float, float]:
    make = torch.Generator().manual_seed(seed)
    words, size, count, length = 7, 5, 4, 3
    weight = torch.randn(words, size, generator=make).requires_grad_()
    hidden = torch.randn(count, length, size, generator=make)
    target = torch.randint(words, (count, length), generator=make)
    advantage = torch.randn(count, generator=make)
    ones = torch.ones(length)
    logp = torch.stack([token_head(hidden[i], weight, target[i], ones)[0].sum() for i in range(count)])
    grads = torch.stack([torch.autograd.grad(logp[i], weight, retain_graph=True)[0].flatten() for i in range(count)])
    measured = torch.from_numpy(
        kernel([EpisodeStates(hidden[i], target[i], ones) for i in range(count)], weight.detach())
    )
    update = torch.autograd.grad((advantage * logp).sum(), weight, retain_graph=True)[0].flatten()
    rate = torch.autograd.grad(logp.mean(), weight)[0].flatten() @ update
    return _apart(grads @ grads.T, measured), _apart(rate, advantage.double() @ measured.mean(0))


def entropy_against_covariance() -> float:
    """dH/dt against -Cov(log π, d/dt log π) along a random direction in logits."""
    worst = 0.0
    for seed in range(TRIALS):
        logits, target, _ = _policy(seed)
        direction = torch.randn(logits.shape, generator=torch.Generator().manual_seed(seed + 1000))
        _, h = token_head(logits, torch.eye(logits.shape[1]), target, torch.ones(1))
        rate = (torch.autograd.grad(h, logits)[0] * direction).sum()
        words = torch.log_softmax(logits.detach()[0].double(), 0)
        p, moved = words.exp(), direction[0].double() - (words.exp() * direction[0].double()).sum()
        covariance = (p * words * moved).sum() - (p * words).sum() * (p * moved).sum()
        worst = max(worst, _apart(rate, -covariance))
    return worst


def penalty_gradient(indicator: bool) -> float:
    """Of EPO's penalty in H, token by token, against its sign times α: -α ∇H below the band, α ∇H above, 0 inside; with
    a history of 1 and α = 0.1. `indicator`: in the appendix's form, 0 or α, instead of that of Eq. 5."""
    entropy = torch.linspace(0.05, 2.95, 30).requires_grad_()
    values = penalty(entropy, 1.0, 0.1, 0.5, 2.0, indicator)
    expected = 0.1 * ((entropy > 2.0).float() - (entropy < 0.5).float())
    if not values.requires_grad:
        return _apart(torch.zeros_like(expected), expected)
    return _apart(torch.autograd.grad(values.sum(), entropy)[0], expected)


def _policy(seed: int) -> tuple[Tensor, Tensor, float]:
    """Logits of one token, what was chosen, and its advantage."""
    make = torch.Generator().manual_seed(seed)
    logits = (1.5 * torch.randn(1, 5, generator=make)).requires_grad_()
    return logits, torch.randint(5, (1,), generator=make), float(torch.randn((), generator=make))


def _apart(a: Tensor, b: Tensor) -> float:
    a, b = a.detach().double(), b.detach().double()
    return float((a - b).square().sum().sqrt()) / max(float(b.square().sum().sqrt()), 1e-3)


COMPUTATIONS: tuple[tuple[str, str, Callable[[], float]], ...] = (  # by the paper and where it stands there
    ("AEM 3.2.2", "On the simplex entropy drifts by A · (S - H).", drift_on_the_simplex),
    ("AEM sign", "A plain gradient step moves entropy with the same sign.", drift_of_a_plain_step),
    ("SEAL 3.2", "Interference in the output matrix is Σ ⟨q, q'⟩ ⟨h, h'⟩.", interference_of_the_output_matrix),
    ("SEAL 3.3", "An update moves the group's mean log-likelihood by Σ A c, times the rate.", likelihood_of_the_group),
    ("SEAL 3.4", "Entropy moves by -Cov(log π, d/dt log π).", entropy_against_covariance),
    ("EPO Eq. 5", "The penalty pulls entropy towards its band with strength α.", partial(penalty_gradient, False)),
    ("EPO 0/α", "So does the appendix's penalty, 0 or α.", partial(penalty_gradient, True)),
)
